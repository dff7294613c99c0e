# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Which commands lead to the wanted volume, and what is refused before any of them."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.model import (
    Brick,
    Facts,
    Peer,
    Removal,
    Step,
    Volume,
    Wanted,
)


def check_wanted(wanted: Wanted) -> None:
    """What can be wrong in a request before any node is asked."""
    count = len(wanted.nodes)
    if len(set(wanted.nodes)) != count or not count:
        raise ClusterError("bad_input", "A node is listed twice, or none is.", "Correct `nodes`.")
    if wanted.replica < 1 or count % wanted.replica:
        raise ClusterError(
            "bad_input",
            f"{count} nodes cannot hold {wanted.replica} copies of everything.",
            "Set `replica` to a number that divides the number of nodes.",
        )


def nodes_to_probe(nodes: t.Iterable[str], peers: t.Sequence[Peer], me: str) -> list[str]:
    """The nodes that are not in the pool yet."""
    known = {name for peer in peers for name in peer.names}
    return [node for node in nodes if node != me and node not in known]


def unready(nodes: t.Iterable[str], peers: t.Sequence[Peer]) -> list[str]:
    """The nodes that the pool does not count on yet. The node that is asked is not among ``nodes``."""
    ready = {name for peer in peers if peer.connected and peer.in_cluster for name in peer.names}
    return [node for node in nodes if node not in ready]


def _joining(wanted: Wanted, peers: t.Sequence[Peer], me: str, steps: t.Sequence[Step]) -> list[Step]:
    """The steps, behind those that take missing nodes into the pool. The first of them waits until the pool counts on all."""
    probes = [
        Step(("peer", "probe", node), f"take {node} into the pool") for node in nodes_to_probe(wanted.nodes, peers, me)
    ]
    others = tuple(node for node in wanted.nodes if node != me)
    return [*probes, *(dataclasses.replace(step, joined=others) for step in steps[:1]), *steps[1:]]


def plan_create(wanted: Wanted, tag: str) -> list[Step]:
    """Make the volume. ``tag`` is new with every volume, so a brick is never made of a directory that was there before."""
    replica = ("replica", str(wanted.replica)) if wanted.replica > 1 else ()
    bricks = [f"{node}:{wanted.bricks}/{wanted.name}-{tag}" for node in wanted.nodes]
    # Without force gluster refuses bricks that are not mount points of their own, and replica 2.
    create = Step(
        ("volume", "create", wanted.name, *replica, *bricks, "force"), f"create the volume on {', '.join(wanted.nodes)}"
    )
    return [create, *plan_options(wanted, {}), Step(("volume", "start", wanted.name), "start the volume")]


def plan_options(wanted: Wanted, have: t.Mapping[str, str]) -> list[Step]:
    """Options that differ. Options that are not wanted explicitly are left as they are."""
    return [
        Step(("volume", "set", wanted.name, key, value), f"set {key} to {value}")
        for key, value in sorted(wanted.options.items())
        if have.get(key) != value
    ]


def forgotten(wanted: Wanted, volume: Volume, offline: t.Collection[Brick]) -> list[Brick]:
    """The bricks to give up: on nodes that are to be forgotten, and really gone. One that is online is never given up."""
    gone = [brick for brick in volume.bricks if brick.node in wanted.forget and brick in offline]
    if gone and volume.replica > 1:
        raise ClusterError(
            "bad_input",
            f"{wanted.name} keeps {volume.replica} copies, so no brick has to be forgotten.",
            "Bring the node back, or replace its brick with `gluster volume replace-brick`.",
        )
    if gone and not wanted.allow_data_loss:
        names = ", ".join(brick.node for brick in gone)
        raise ClusterError(
            "consent_missing",
            f"Forgetting {names} loses every file of {wanted.name} that lies there, for good.",
            "Set `allow_data_loss: true` if that is what you want.",
        )
    if gone and len(gone) == len(volume.bricks):
        raise ClusterError("bad_input", "All bricks are gone.", "Remove the volume and start again.")
    return gone


def plan_forget(name: str, gone: t.Sequence[Brick], me: str) -> list[Step]:
    """Give bricks up, and their nodes: a machine that was made anew under the same name is another peer.

    The node that is asked cannot leave its own pool, and need not: it knows the volume, so it was not made anew.
    """
    steps = [
        Step(
            ("volume", "remove-brick", name, *map(str, gone), "force"),
            f"give up the brick of {', '.join(b.node for b in gone)}",
        )
    ]
    others = [brick.node for brick in gone if brick.node != me]
    return steps + [Step(("peer", "detach", node, "force"), f"forget {node}") for node in others]


def given_up(wanted: Wanted, volume: Volume) -> list[Brick]:
    """The bricks that a person has given up. Unless they run, the volume can be taken away without their nodes."""
    # Of several copies one cannot be given up alone.
    if volume.replica > 1 or not wanted.allow_data_loss:
        return []
    return [brick for brick in volume.bricks if brick.node in wanted.forget]


def check_whole_run(volume: Volume, hosts: t.Collection[str], lost: t.Collection[Brick]) -> None:
    """Refuse to take a volume away from nodes that are not in this run. ``lost``: bricks whose nodes cannot be asked."""
    absent = sorted({brick.node for brick in volume.bricks if brick.node not in hosts and brick not in lost})
    if not absent:
        return
    named = ", ".join(absent)
    dead = (
        "If one of them is lost for good, list it in `forget_nodes` and set `allow_data_loss: true`."
        if volume.replica == 1
        else f"If one of them is lost for good, replace its brick first: `gluster volume replace-brick {volume.name} …`."
    )
    raise ClusterError(
        "partial_run",
        f"{named} holds a brick of {volume.name} but is not in this run. Nothing was changed.",
        f"Run without --limit and without serial, with all of its nodes. {dead}",
        nodes=absent,
    )


def unlisted(wanted: Wanted, bricks: t.Iterable[Brick]) -> list[str]:
    """Nodes that hold a brick but are not to."""
    return sorted({brick.node for brick in bricks} - set(wanted.nodes))


def check_listed(wanted: Wanted, bricks: t.Iterable[Brick]) -> None:
    """Refuse to shrink: the data would have to move first."""
    extra = unlisted(wanted, bricks)
    if extra:
        raise ClusterError(
            "volume_conflict",
            f"{', '.join(extra)} holds a brick of {wanted.name} but is not in `nodes`.",
            f"List it, or move its data away first: `gluster volume remove-brick {wanted.name} … start`, then `commit`.",
        )


def plan_start(wanted: Wanted, volume: Volume) -> list[Step]:
    """Start the volume as it is, unless it keeps another number of copies than wanted."""
    if volume.replica != wanted.replica:
        raise ClusterError(
            "volume_conflict",
            f"{wanted.name} keeps {volume.replica} copies, but {wanted.replica} are wanted.",
            "Set `replica` to what it is, or remove the volume first.",
        )
    return [] if volume.started else [Step(("volume", "start", wanted.name), "start the volume")]


def plan_restart(name: str, nodes: t.Sequence[str]) -> list[Step]:
    """Start the bricks of a started volume that do not run; ``nodes`` hold them."""
    return [Step(("volume", "start", name, "force"), f"restart the brick of {', '.join(nodes)}")] if nodes else []


def plan_grow(wanted: Wanted, bricks: t.Iterable[Brick], tag: str) -> list[Step]:
    """Bricks for nodes that have none yet, and the layout that lets new files land on them."""
    have = {brick.node for brick in bricks}
    added = [f"{node}:{wanted.bricks}/{wanted.name}-{tag}" for node in wanted.nodes if node not in have]
    if not added:
        return []
    nodes = ", ".join(brick.split(":", 1)[0] for brick in added)
    return [
        Step(("volume", "add-brick", wanted.name, *added, "force"), f"add a brick on {nodes}"),
        Step(("volume", "rebalance", wanted.name, "fix-layout", "start"), "spread new files over the new bricks"),
    ]


def offline_error(name: str, offline: t.Iterable[Brick]) -> ClusterError:
    """Bricks that do not come up, by name, with the two ways out."""
    nodes = sorted({brick.node for brick in offline})
    named = ", ".join(nodes)
    return ClusterError(
        "brick_offline",
        f"The brick of {name} on {named} does not run; what lies there cannot be read.",
        f"Bring {named} back. If it is lost, list it in `forget_nodes` and set `allow_data_loss: true`: "
        "every file on it is gone then.",
        nodes=nodes,
    )


def _without(peers: t.Iterable[Peer], bricks: t.Collection[Brick]) -> list[Peer]:
    """The pool after the nodes of these bricks were forgotten."""
    nodes = {brick.node for brick in bricks}
    return [peer for peer in peers if nodes.isdisjoint(peer.names)]


def plan(wanted: Wanted, facts: Facts, me: str, tag: str) -> list[Step]:
    """All that leads from the facts to the wanted volume, or why nothing may. ``me`` leads; ``tag`` is that of `plan_create`.

    Bricks that do not run are started first (`plan_start`, `plan_restart`): only what is offline after that is lost.
    """
    volume = facts.volume
    if volume is None:
        return _joining(wanted, facts.peers, me, plan_create(wanted, tag))
    start = plan_start(wanted, volume)
    gone = forgotten(wanted, volume, facts.offline)
    still = [brick for brick in facts.offline if brick not in gone]
    if still and facts.revived:
        raise offline_error(volume.name, still)
    kept = [brick for brick in volume.bricks if brick not in gone]
    check_listed(wanted, kept)
    return [
        *start,
        *(plan_forget(volume.name, gone, me) if gone else []),
        *plan_restart(volume.name, [brick.node for brick in still]),
        *_grow(wanted, kept, _without(facts.peers, gone), me, tag),
        *plan_options(wanted, volume.options),
    ]


def _grow(wanted: Wanted, kept: t.Sequence[Brick], peers: t.Sequence[Peer], me: str, tag: str) -> list[Step]:
    grown = plan_grow(wanted, kept, tag)
    return _joining(wanted, peers, me, grown) if grown else []


def plan_stop(found: Removal, hosts: t.Collection[str]) -> list[Step]:
    """Stop the volume; its data stays. ``hosts`` are the nodes of this run."""
    if found.volume is None:
        return []
    check_whole_run(found.volume, hosts, found.lost)
    return [Step(("volume", "stop", found.volume.name, "force"), "stop the volume")] if found.volume.started else []


def plan_delete(found: Removal, hosts: t.Collection[str], me: str) -> list[Step]:
    """Stop and delete the volume, and dissolve the pool that goes with it. ``hosts`` are the nodes of this run."""
    steps = plan_stop(found, hosts)
    gone: t.Sequence[Brick] = ()
    if found.volume:
        name = found.volume.name
        # gluster deletes no volume while a peer is down, and gives no volume's last brick up.
        gone = found.lost if len(found.lost) < len(found.volume.bricks) else ()
        forget = plan_forget(name, gone, me) if gone else []
        steps = [*forget, *steps, Step(("volume", "delete", name), "delete the volume")]
    peers = [peer.names[0] for peer in _without(found.peers, gone) if peer.names and "localhost" not in peer.names]
    return steps + [Step(("peer", "detach", peer, "force"), f"forget {peer}") for peer in peers]


def is_ours(mount: tuple[str, str], volume: str) -> bool:
    """Whether a mount is this volume."""
    kind, source = mount
    return kind == "fuse.glusterfs" and source.split(":", 1)[-1].strip("/") == volume


__all__ = [
    "check_wanted",
    "check_whole_run",
    "forgotten",
    "given_up",
    "is_ours",
    "nodes_to_probe",
    "offline_error",
    "plan",
    "plan_create",
    "plan_delete",
    "plan_forget",
    "plan_grow",
    "plan_options",
    "plan_restart",
    "plan_start",
    "plan_stop",
    "unlisted",
    "unready",
]
