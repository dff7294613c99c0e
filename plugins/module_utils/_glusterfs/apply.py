# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Bring a volume, seen from the one node that leads, to the wanted state: create, grow, repair, stop, and delete it."""

from __future__ import annotations

import secrets
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.cli import Gluster
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.model import Brick, Step, Volume, Wanted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.plan import (
    check_wanted,
    check_whole_run,
    forgotten,
    given_up,
    nodes_to_probe,
    offline_error,
    plan_create,
    plan_forget,
    plan_grow,
    plan_options,
    unlisted,
    unready,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.replies import parse_names, parse_peers

_POLL_S = 0.5
# How long a brick that was told to start may take to be reported.
_BRICK_WAIT_S = 15


def check_run(gluster: Gluster, wanted: Wanted, volume: Volume, hosts: t.Collection[str]) -> list[Brick]:
    """Refuse to take the volume away unless all its nodes are in this run; returns the bricks that are lost instead."""
    lost = given_up(wanted, volume)
    if lost:
        online = gluster.online(volume.name)
        lost = [brick for brick in lost if brick not in online]
    check_whole_run(volume, hosts, lost)
    return lost


class VolumeKeeper:
    """Brings the volume, seen from the one node that leads, to the wanted state."""

    def __init__(self, gluster: Gluster, wanted: Wanted, me: str, *, check: bool) -> None:
        check_wanted(wanted)
        self.gluster, self.wanted, self.me, self.check = gluster, wanted, me, check
        self.done: list[str] = []

    def _do(self, steps: t.Iterable[Step]) -> None:
        for step in steps:
            if not self.check:
                self.gluster.ask(*step.argv)
            self.done.append(step.what)

    def _pool(self, nodes: t.Sequence[str]) -> None:
        """Take nodes into the pool, and wait until it counts on them."""
        peers = parse_peers(self.gluster.ask("pool", "list"))
        missing = nodes_to_probe(nodes, peers, self.me)
        self._do(Step(("peer", "probe", node), f"take {node} into the pool") for node in missing)
        while not self.check and unready(nodes, parse_peers(self.gluster.ask("pool", "list")), self.me):
            waiting = unready(nodes, parse_peers(self.gluster.ask("pool", "list")), self.me)
            self.gluster.wait(f"{', '.join(waiting)} did not join the pool")

    def _offline(self, volume: Volume) -> list[Brick]:
        online = self.gluster.online(volume.name)
        return [brick for brick in volume.bricks if brick not in online]

    def start(self) -> list[str]:
        """Create, grow, repair and start the volume; returns what was done, in words."""
        name, tag = self.wanted.name, secrets.token_hex(4)
        volume = self.gluster.volume(name)
        if volume is None:
            self._pool(self.wanted.nodes)
            self._do(plan_create(self.wanted, tag))
            return self.done
        if volume.replica != self.wanted.replica:
            raise ClusterError(
                "volume_conflict",
                f"{name} keeps {volume.replica} copies, but {self.wanted.replica} are wanted.",
                "Set `replica` to what it is, or remove the volume first.",
            )
        if not volume.started:
            self._do([Step(("volume", "start", name), "start the volume")])
        bricks = self._repair(volume) if volume.started or not self.check else list(volume.bricks)
        extra = unlisted(self.wanted, bricks)
        if extra:
            raise ClusterError(
                "volume_conflict",
                f"{', '.join(extra)} holds a brick of {name} but is not in `nodes`.",
                f"List it, or move its data away first: `gluster volume remove-brick {name} … start`, then `commit`.",
            )
        grown = plan_grow(self.wanted, bricks, tag)
        if grown:
            self._pool(self.wanted.nodes)
            self._do(grown)
        self._do(plan_options(self.wanted, volume.options))
        return self.done

    def _repair(self, volume: Volume) -> list[Brick]:
        """Bring bricks back, give up those that are to be forgotten; returns the bricks that remain."""
        offline = self._offline(volume)
        if offline and not self.check:
            self.gluster.ask("volume", "start", volume.name, "force")
            until = time.monotonic() + min(_BRICK_WAIT_S, max(0.0, self.gluster.left()))
            before = offline
            while offline and time.monotonic() < until:
                time.sleep(_POLL_S)
                offline = self._offline(volume)
            back = sorted({brick.node for brick in before} - {brick.node for brick in offline})
            if back:
                self.done.append(f"restart the brick of {', '.join(back)}")
        gone = forgotten(self.wanted, volume, offline)
        if gone:
            self._do(plan_forget(volume.name, gone, self.me))
        still = [brick for brick in offline if brick not in gone]
        if still and self.check:
            self.done.append(f"restart the brick of {', '.join(brick.node for brick in still)}")
        elif still:
            raise offline_error(volume.name, still)
        return [brick for brick in volume.bricks if brick not in gone]

    def _stop(self, volume: Volume) -> None:
        if volume.started:
            self._do([Step(("volume", "stop", volume.name, "force"), "stop the volume")])

    def stop(self, hosts: t.Collection[str]) -> list[str]:
        """Stop the volume; its data stays. ``hosts`` are the nodes of this run."""
        volume = self.gluster.volume(self.wanted.name)
        if volume:
            check_run(self.gluster, self.wanted, volume, hosts)
            self._stop(volume)
        return self.done

    def delete(self, hosts: t.Collection[str]) -> list[str]:
        """Stop and delete the volume, and dissolve the pool if it was the last one. ``hosts`` are the nodes of this run."""
        volume = self.gluster.volume(self.wanted.name)
        if volume:
            lost = check_run(self.gluster, self.wanted, volume, hosts)
            # gluster deletes no volume while a peer is down, and gives no volume's last brick up.
            if 0 < len(lost) < len(volume.bricks):
                self._do(plan_forget(volume.name, lost, self.me))
            self._stop(volume)
            self._do([Step(("volume", "delete", volume.name), "delete the volume")])
        others = set(parse_names(self.gluster.ask("volume", "list"))) - {self.wanted.name}
        peers = [] if others else parse_peers(self.gluster.ask("pool", "list"))
        names = [peer.names[0] for peer in peers if peer.names and "localhost" not in peer.names]
        self._do(Step(("peer", "detach", peer, "force"), f"forget {peer}") for peer in names)
        return self.done


__all__ = ["VolumeKeeper", "check_run"]
