# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What several files of the volume know: nodes, bricks and volumes as gluster tells them, and as they should be."""

from __future__ import annotations

import dataclasses
import typing as t


@dataclasses.dataclass(frozen=True)
class Peer:
    """A node of the trusted pool as another one sees it."""

    names: tuple[str, ...]
    connected: bool
    in_cluster: bool


@dataclasses.dataclass(frozen=True)
class Brick:
    """A directory of a node that is part of a volume."""

    node: str
    path: str

    def __str__(self) -> str:
        return f"{self.node}:{self.path}"


@dataclasses.dataclass(frozen=True)
class Volume:
    """What `volume info` says."""

    name: str
    started: bool
    replica: int
    bricks: tuple[Brick, ...]
    options: t.Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The volume as it should be. ``bricks`` is the directory in which each node makes its brick."""

    name: str
    nodes: tuple[str, ...]
    bricks: str
    replica: int = 1
    options: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    forget: tuple[str, ...] = ()
    allow_data_loss: bool = False


@dataclasses.dataclass(frozen=True)
class Facts:
    """What gluster says of a volume that is to be started.

    ``offline``: the bricks of a started volume whose process does not run. ``revived``: whether these were told to start
    before. ``peers``: the pool, or nothing where every node is in it for certain.
    """

    volume: Volume | None
    offline: tuple[Brick, ...] = ()
    peers: tuple[Peer, ...] = ()
    revived: bool = False


@dataclasses.dataclass(frozen=True)
class Removal:
    """What gluster says of a volume that is to be taken away.

    ``lost``: bricks that a person has given up and that do not run. ``peers``: the pool, or nothing where other volumes
    need it.
    """

    volume: Volume | None
    lost: tuple[Brick, ...] = ()
    peers: tuple[Peer, ...] = ()


@dataclasses.dataclass(frozen=True)
class Step:
    """A gluster command, and what it does in words. ``joined``: the nodes that the pool has to count on before."""

    argv: tuple[str, ...]
    what: str
    joined: tuple[str, ...] = ()


__all__ = ["Brick", "Facts", "Peer", "Removal", "Step", "Volume", "Wanted"]
