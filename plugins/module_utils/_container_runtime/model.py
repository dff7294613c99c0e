# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""A node with its container runtimes, as it was found."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Installed

DOCKER, CONTAINERD = "docker.service", "containerd.service"


class Access(t.NamedTuple):
    """The permissions of a file, and the numbers of its owner and group."""

    mode: int
    owner: int
    group: int


@dataclasses.dataclass(frozen=True)
class Facts:
    """What is on a node before anything is done to it.

    ``manager``: ``dpkg`` or ``rpm``. ``machine``: as `uname -m` has it. ``docker``: Docker is there, whoever installed it.
    ``texts``: the settings files that are there, by path, to the byte. ``imported``: the path and text of each file that
    containerd reads after ``config.toml`` once that imports our part, in its order; ours is among them, with no text where it is
    not there yet. ``modes``: the permissions of the request's directories that are there, by path. ``unread``: the units that
    run with settings from before an earlier run of the module, and how they take the new ones. ``access``: who may read the settings
    files that are there, and what containerd imports.
    """

    manager: str
    machine: str
    docker: bool
    packages: t.Mapping[str, Installed]
    texts: t.Mapping[str, str]
    imported: tuple[tuple[str, str], ...] = ()
    modes: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    unread: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    access: t.Mapping[str, Access] = dataclasses.field(default_factory=dict)

    def text(self, path: str) -> str:
        """A settings file; empty where there is none."""
        return self.texts.get(path, "")


@dataclasses.dataclass(frozen=True)
class Dump:
    """containerd's settings with all that it imports, as it says itself, or why it refuses them. Both are empty without containerd."""

    text: str = ""
    refused: str = ""


__all__ = ["CONTAINERD", "DOCKER", "Access", "Dump", "Facts"]
