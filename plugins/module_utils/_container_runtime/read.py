# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What a node's container runtimes are: their packages, settings, and what of them runs. Changes nothing."""

from __future__ import annotations

import contextlib
import os
import platform
import stat
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime import settings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.model import Facts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.plan import enroot_directories
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.request import Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.apt import Apt
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.dnf import Dnf
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.units import UNIT_DIRECTORIES, is_active

DOCKER, CONTAINERD = "docker.service", "containerd.service"


def has_unit(name: str) -> bool:
    """Whether systemd would find this unit."""
    return any(os.path.exists(f"{directory}{name}") for directory in UNIT_DIRECTORIES)


def read_facts(request: Request, host: Host, manager: Apt | Dnf) -> Facts:
    """The node, as its files and its package system tell it."""
    return Facts(
        manager="dpkg" if isinstance(manager, Apt) else "rpm",
        machine=platform.machine(),
        docker=bool(host.get_bin_path("dockerd")) or has_unit(DOCKER),
        packages=manager.installed(),
        texts=read_texts(),
        modes=_read_modes(entry["path"] for entry in enroot_directories(request)),
    )


def _read_modes(paths: t.Iterable[str]) -> dict[str, int]:
    return {path: stat.S_IMODE(os.stat(path).st_mode) for path in paths if os.path.isdir(path)}


def read_texts() -> dict[str, str]:
    """The settings files that are there, by path, with their line ends and what is not UTF-8 (surrogateescape)."""
    paths = (
        settings.DAEMON_JSON,
        settings.CONTAINERD,
        settings.CONTAINERD_PART,
        settings.ENROOT_CONF,
        settings.ENROOT_MOUNTS,
        settings.PYXIS,
        *sorted(map(str, Path(settings.CONTAINERD_PARTS).glob("*.toml"))),
    )
    found = {}
    for path in paths:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found[path] = Path(path).read_bytes().decode("utf-8", "surrogateescape")
    return found


def running_containers(host: Host) -> list[str]:
    """The containers that Docker runs now."""
    if not host.get_bin_path("docker"):
        return []
    _rc, out, _err = host.run_command(["docker", "ps", "--quiet"])
    return out.split()


def default_runtime(host: Host) -> str:
    """What the Docker that runs starts containers with; empty where it cannot be asked.

    That is not what its file says until it has read it again.
    """
    if not host.get_bin_path("docker") or not is_active(host, DOCKER):
        return ""
    rc, out, _err = host.run_command(["docker", "info", "--format", "{{.DefaultRuntime}}"])
    return out.strip() if rc == 0 else ""


__all__ = ["CONTAINERD", "DOCKER", "default_runtime", "has_unit", "read_facts", "read_texts", "running_containers"]
