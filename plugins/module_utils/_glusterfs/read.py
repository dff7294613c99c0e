# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is decided by: the volume, its bricks and the pool as gluster tells them. Nothing is changed here."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.cli import Gluster
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.model import (
    Brick,
    Facts,
    Peer,
    Removal,
    Volume,
    Wanted,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.plan import given_up
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.replies import parse_names, parse_peers


def read_pool(gluster: Gluster) -> tuple[Peer, ...]:
    """The nodes of the pool."""
    return tuple(parse_peers(gluster.ask("pool", "list")))


def read_offline(gluster: Gluster, volume: Volume) -> tuple[Brick, ...]:
    """The bricks of the volume whose process does not run."""
    online = gluster.online(volume.name)
    return tuple(brick for brick in volume.bricks if brick not in online)


def read_facts(gluster: Gluster, wanted: Wanted) -> Facts:
    """What there is before the volume is started."""
    volume = gluster.volume(wanted.name)
    if volume is None:
        return Facts(None, peers=read_pool(gluster))
    offline = read_offline(gluster, volume) if volume.started else ()
    # A node that has a brick and keeps it is in the pool: a volume that is right costs no question more.
    settled = {brick.node for brick in volume.bricks}.issuperset(wanted.nodes) and not wanted.forget
    return Facts(volume, offline, () if settled else read_pool(gluster))


def read_removal(gluster: Gluster, wanted: Wanted, *, pool: bool = False) -> Removal:
    """What there is before the volume is taken away. ``pool``: whether the pool goes with it unless another volume needs it."""
    volume = gluster.volume(wanted.name)
    lost: tuple[Brick, ...] = ()
    if volume and (named := given_up(wanted, volume)):
        lost = tuple(brick for brick in read_offline(gluster, volume) if brick in named)
    last = pool and not set(parse_names(gluster.ask("volume", "list"))) - {wanted.name}
    return Removal(volume, lost, read_pool(gluster) if last else ())


__all__ = ["read_facts", "read_offline", "read_pool", "read_removal"]
