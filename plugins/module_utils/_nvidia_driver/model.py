# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What several files of the driver know: the driver that the kernel runs, and a node before anything is done to it."""

from __future__ import annotations

import dataclasses
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Installed
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.hardware import Hardware


@dataclasses.dataclass(frozen=True)
class Loaded:
    """The NVIDIA kernel module that runs; an empty version means none."""

    version: str = ""
    flavor: str = ""
    parameters: t.Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Facts:
    """A node as it was found. ``root`` is where its files lie, ``kernel`` the release that the driver is for.

    ``openibd``: NVIDIA's InfiniBand stack is there. ``uninstaller``: a driver from a ``.run`` file is there. ``next_kernel`` is
    the release that boots by default, empty where that is not known.
    ``on_disk`` is version and flavor of the module that modprobe would load; it and ``libraries`` are read only where no
    package system knows them. ``stream`` is the module stream that dnf has enabled, None where there is no dnf.
    """

    root: Path
    hardware: Hardware
    loaded: Loaded
    kernel: str
    machine: str
    hostname: str
    chroot: bool
    os_release: str
    openibd: bool
    uninstaller: bool
    next_kernel: str = ""
    stream: str | None = None
    packages: t.Mapping[str, Installed] = dataclasses.field(default_factory=dict)
    libraries: tuple[str, ...] = ()
    on_disk: tuple[str, str] = ("", "")


__all__ = ["Facts", "Loaded"]
