# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Bring a volume, seen from the one node that leads, to the wanted state: create, grow, repair, stop, and delete it."""

from __future__ import annotations

import dataclasses
import secrets
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.cli import Gluster
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.model import (
    Brick,
    Facts,
    Step,
    Volume,
    Wanted,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.plan import (
    check_wanted,
    plan,
    plan_delete,
    plan_restart,
    plan_start,
    plan_stop,
    unready,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.read import (
    read_facts,
    read_offline,
    read_pool,
    read_removal,
)

_POLL_S = 0.5
# How long a brick that was told to start may take to be reported.
_BRICK_WAIT_S = 15


def _wait_joined(gluster: Gluster, nodes: t.Sequence[str]) -> None:
    while nodes and (waiting := unready(nodes, read_pool(gluster))):
        gluster.wait(f"{', '.join(waiting)} did not join the pool")


def _do(gluster: Gluster, steps: t.Iterable[Step], *, check: bool = False) -> list[str]:
    """Run the commands, none in check mode; returns in words what was done, or would be."""
    done = []
    for step in steps:
        if not check:
            _wait_joined(gluster, step.joined)
            gluster.ask(*step.argv)
        done.append(step.what)
    return done


def _wait_bricks(gluster: Gluster, volume: Volume, offline: tuple[Brick, ...]) -> tuple[Brick, ...]:
    """The bricks that do not run after all had their time to come up. ``offline``: those before."""
    until = time.monotonic() + min(_BRICK_WAIT_S, max(0.0, gluster.left()))
    while offline and time.monotonic() < until:
        time.sleep(_POLL_S)
        offline = read_offline(gluster, volume)
    return offline


def _revive(gluster: Gluster, wanted: Wanted, facts: Facts) -> tuple[list[str], Facts]:
    """Start what there is of the volume: which bricks are lost can be told only then. Returns what was done, and the facts."""
    if facts.volume is None:
        return [], facts
    volume = dataclasses.replace(facts.volume, started=True)
    done = _do(gluster, plan_start(wanted, facts.volume))
    before = read_offline(gluster, volume) if done else facts.offline
    if not before:
        return done, dataclasses.replace(facts, volume=volume)
    gluster.ask("volume", "start", volume.name, "force")
    after = _wait_bricks(gluster, volume, before)
    back = sorted({brick.node for brick in before} - {brick.node for brick in after})
    done += [step.what for step in plan_restart(volume.name, back)]
    return done, dataclasses.replace(facts, volume=volume, offline=after, revived=True)


def start(gluster: Gluster, wanted: Wanted, me: str, *, check: bool) -> list[str]:
    """Create, grow, repair and start the volume; returns what was done, in words."""
    check_wanted(wanted)
    facts = read_facts(gluster, wanted)
    done, facts = ([], facts) if check else _revive(gluster, wanted, facts)
    return done + _do(gluster, plan(wanted, facts, me, secrets.token_hex(4)), check=check)


def stop(gluster: Gluster, wanted: Wanted, hosts: t.Collection[str], *, check: bool) -> list[str]:
    """Stop the volume; its data stays. ``hosts`` are the nodes of this run."""
    check_wanted(wanted)
    return _do(gluster, plan_stop(read_removal(gluster, wanted), hosts), check=check)


def delete(gluster: Gluster, wanted: Wanted, me: str, hosts: t.Collection[str], *, check: bool) -> list[str]:
    """Stop and delete the volume, and dissolve the pool if it was the last one. ``hosts`` are the nodes of this run."""
    check_wanted(wanted)
    return _do(gluster, plan_delete(read_removal(gluster, wanted, pool=True), hosts, me), check=check)


__all__ = ["delete", "start", "stop"]
