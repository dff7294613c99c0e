# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Compare what was seen on every node with what is asked for: pure, no node is touched."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond.model import (
    LEAST_BYTES,
    LEAST_INODES,
    Plan,
    Request,
    Seen,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

Cluster = t.Mapping[str, Seen]
Problems = dict[str, tuple[str, ...]]

_CONSENT = "Set `allow_data_loss: true` for one run if this may be lost."


def named(problems: t.Mapping[str, t.Sequence[str]]) -> str:
    """Nodes with what is wrong on them, in one line."""
    return "; ".join(f"{node}: {', '.join(texts)}" for node, texts in problems.items())


def version_of(request: Request, cluster: Cluster) -> int:
    """The version that the nodes have. Raises ClusterError where they differ, or have another one than was asked for."""
    lacking = {
        node: ("BeeOND is not installed",)
        for node, seen in cluster.items()
        if not seen.unreachable and not seen.program
    }
    if lacking:
        raise ClusterError("not_installed", f"{named(lacking)}.", "Install the package beeond there.")
    found = {node: seen.version for node, seen in cluster.items() if not seen.unreachable}
    if len(set(found.values())) > 1:
        told = ", ".join(f"{node}: {number or 'unknown'}" for node, number in found.items())
        raise ClusterError(
            "versions_differ", f"The nodes have different versions of BeeGFS: {told}.", "Install the same one."
        )
    version = next(iter(found.values()), request.version) or request.version or 8
    if request.version and request.version != version:
        raise ClusterError(
            "wrong_version", f"The nodes have BeeGFS {version}, and `version` is {request.version}.", "Make them agree."
        )
    return version


def problems_of(request: Request, node: str, seen: Seen) -> tuple[str, ...]:
    """What is not as a running file system has it on this node; () where all is right."""
    if seen.unreachable:
        return (seen.unreachable,)
    found = [f"{service} does not run" for service in request.services_of(node) if not seen.services.get(service)]
    if seen.version == 7 and not seen.services.get("beegfs-helperd"):
        found.append("beegfs-helperd does not run")
    if seen.foreign_mount:
        found.append(f"{seen.foreign_mount} is mounted at {request.mount_point}")
    elif not seen.mounted:
        found.append(f"nothing is mounted at {request.mount_point}")
    extra = sorted((set(seen.services) | set(seen.strays)) - set(request.services_of(node)) - {"beegfs-helperd"})
    found += [f"{service} runs or is listed, and does not belong here" for service in extra]
    found += [
        f"process {pid} of {service} is not in the status file"
        for service, pid in sorted(seen.strays.items())
        if service not in extra
    ]
    return tuple(found)


def all_problems(request: Request, cluster: Cluster) -> Problems:
    """The same for all nodes, those without a problem left out."""
    found = {node: problems_of(request, node, seen) for node, seen in cluster.items()}
    return {node: texts for node, texts in found.items() if texts}


def check_runs(request: Request, cluster: Cluster) -> None:
    """Raise ClusterError while another run works on these nodes, from a first node of its own, and for two names of one machine."""
    other = [node for node, seen in cluster.items() if seen.other_run]
    if other:
        raise ClusterError(
            "busy",
            f"Another run is working on the file system with port shift {request.port_shift}, from {', '.join(other)}.",
            "Wait until it has ended, and run again.",
        )
    names: dict[str, list[str]] = {}
    for node, seen in cluster.items():
        if seen.machine:
            names.setdefault(seen.machine, []).append(node)
    twice = [", ".join(same) for same in names.values() if len(same) > 1]
    if twice:
        raise ClusterError(
            "same_machine",
            f"{'; '.join(twice)} are names of one machine. Nothing was changed.",
            "Correct the names' addresses, or name the machine once.",
        )


def others(request: Request, seen: Seen) -> tuple[str, ...]:
    """What of another file system is at work in this node's data: neither a start nor a stop of this one may touch it."""
    found = [f"the file system of {request.data_path} is mounted at {point}" for point in seen.mounted_elsewhere]
    shift = (seen.mark or {}).get("port_shift", request.port_shift)
    if seen.strays and shift != request.port_shift:
        found.append(f"services with port shift {shift} use {request.data_path}")
    return tuple(found)


def members_left_out(request: Request, cluster: Cluster) -> tuple[str, ...]:
    """Nodes of the file system that runs, or half runs, which were not named."""
    found = {member for seen in cluster.values() if seen.remains for member in seen.members}
    return tuple(sorted(found - set(request.nodes)))


def check_names(request: Request, cluster: Cluster, purge: t.Sequence[str]) -> None:
    """Raise ClusterError for data of users of a file system in which no node has this name: it may be the wrong machine."""
    strange = {
        node: (f"{request.data_path} is of a file system of {', '.join(cluster[node].members)}",)
        for node in purge
        if cluster[node].used and cluster[node].members and node not in cluster[node].members
    }
    if strange:
        raise ClusterError(
            "data_of_others",
            f"{named(strange)}. Nothing was changed.",
            "Correct the name's address. If the node was renamed and the data may be lost, remove that directory there.",
            problems=strange,
        )


def obstacles(request: Request, node: str, seen: Seen, version: int) -> tuple[str, ...]:
    """Why nothing can be started with this node. What a session of ours left is no obstacle: it is cleaned up."""
    found = [seen.unreachable] if seen.unreachable else []
    if found:
        return tuple(found)
    if not seen.shell_is_bash:
        found.append("root's login shell is not /bin/bash, which BeeOND requires")
    if seen.unresolved:
        found.append(f"cannot resolve {', '.join(seen.unresolved)}")
    if seen.foreign_mount:
        found.append(f"{seen.foreign_mount} is mounted at {request.mount_point}")
    found += others(request, seen)
    if seen.point_is_link:
        found.append(f"{request.mount_point} or a directory above it is a link")
    if seen.point_is_no_directory:
        found.append(f"{request.mount_point} is no directory")
    if seen.mount_entries:
        found.append(f"{request.mount_point} is not empty ({seen.mount_entries[0]})")
    if seen.foreign:
        found.append(f"a file system of another session is mounted at {request.mount_point}")
    if not seen.config_there:
        found.append(f"there is no directory {request.config_dir}")
    if version == 7 and not seen.control_configured:
        found.append(
            "/etc/beegfs/beegfs-client.conf has neither a connAuthFile that is there, nor none and connDisableAuthentication = true: "
            "beegfs-ctl would fail"
        )
    if not seen.remains:
        busy = set(request.ports_of(node, version)) & set(seen.ports_busy)
        found += [f"port {port} is in use" for port in sorted(busy)]
    return tuple(found) + storage_obstacles(request, node, seen)


def storage_obstacles(request: Request, node: str, seen: Seen) -> tuple[str, ...]:
    """Why the services of this node could not keep their files."""
    found = []
    if seen.data_is_link:
        found.append(f"{request.data_path} or a directory above it is a link")
    if seen.inside_data:
        found.append(f"{request.storage_path} lies in {seen.inside_data}, the data of another file system")
    found += [f"{place} is a mount point" for place in seen.data_mounts]
    if seen.data_entries and seen.mark is None:
        found.append(f"{request.data_path} holds {seen.data_entries[0]}, which is not this module's")
    if not request.services_of(node):
        return tuple(found)
    if seen.on_os_disk:
        found.append(f"{request.storage_path} is on the disk of the operating system")
    if seen.data_there:
        # Its users may have filled it, and get at their files by a start alone.
        return tuple(found)
    if seen.free_bytes < LEAST_BYTES:
        found.append(f"{request.storage_path} has {seen.free_bytes >> 20} MiB left, and {LEAST_BYTES >> 20} are needed")
    if 0 <= seen.free_inodes < LEAST_INODES:
        found.append(f"{request.storage_path} has {seen.free_inodes} inodes left, and {LEAST_INODES} are needed")
    return tuple(found)


def data_to_remove(request: Request, cluster: Cluster, version: int) -> tuple[str, ...]:
    """Nodes whose old data has to go before a start; () where it is whole and of this very layout, or there is none.

    Raises ClusterError where users' files may be among it and there is no consent.
    """
    layout = request.layout(version)
    holding = {node: seen for node, seen in cluster.items() if seen.data_there}
    if not holding:
        return ()
    wanted = {node: set(request.services_of(node)) for node in request.nodes}
    whole = all(wanted[node] == set(cluster[node].data_there) for node in request.nodes)
    same = all((seen.mark or {}).get("layout") == layout for seen in holding.values())
    sessions = {(seen.mark or {}).get("session") for seen in holding.values()}
    # A run that was cut off may have noted it on some nodes only.
    used = [node for node, seen in holding.items() if seen.used]
    if whole and same and used and len(sessions) == 1:
        return ()
    if used and not request.allow_data_loss:
        gone = [node for node in request.nodes if wanted[node] - set(cluster[node].data_there)]
        why = f"it is missing on {', '.join(gone)}" if gone else "it is of other nodes, servers, or another session"
        raise ClusterError(
            "data_would_be_lost",
            f"{', '.join(used)} hold data of an earlier session, and {why}. Nothing was changed.",
            _CONSENT,
        )
    check_names(request, cluster, used)
    return tuple(holding)


def plan_start(request: Request, cluster: Cluster) -> Plan:
    """What brings the file system up. Raises ClusterError where that is not possible, or asks for consent."""
    check_runs(request, cluster)
    version = version_of(request, cluster)
    problems = all_problems(request, cluster)
    left_out = members_left_out(request, cluster)
    if left_out:
        raise ClusterError(
            "other_nodes",
            f"The file system that is there has more nodes than were named: {', '.join(left_out)}. Nothing was changed.",
            "Name them, too; or stop it first (`state: stopped`) with all of them.",
        )
    if not problems:
        cut_off = any(seen.mark is not None and seen.mark.get("state") == "starting" for seen in cluster.values())
        return Plan(keep=cut_off)
    # Without it everywhere the file system would start, open to everybody.
    secured = version == 8 and any(seen.authentication for seen in cluster.values())
    lacking = (f"there is no {request.config_dir}/conn.auth, which other nodes have",)
    blocked = {
        node: obstacles(request, node, seen, version)
        + (lacking if secured and not seen.authentication and not seen.unreachable else ())
        for node, seen in cluster.items()
    }
    blocked = {node: texts for node, texts in blocked.items() if texts}
    if blocked:
        raise ClusterError(
            "cannot_start_here",
            f"{named(blocked)}. Nothing was changed.",
            "Correct this, and run again.",
            problems=blocked,
        )
    began = any(seen.used or (seen.mark or {}).get("state") != "starting" for seen in cluster.values() if seen.mounted)
    mounted = [node for node, seen in cluster.items() if seen.mounted and (began or seen.users)]
    if mounted and not request.allow_data_loss:
        raise ClusterError(
            "half_there",
            f"The file system is in use on {', '.join(mounted)} and not whole: {named(problems)}. Nothing was changed. To repair it, "
            "it has to be stopped and started again, and what programs have not written yet is lost.",
            f"End the programs that use it and run with `state: stopped`, then with `started`. Or: {_CONSENT}",
            problems=problems,
        )
    remains = tuple(node for node, seen in cluster.items() if seen.remains)
    return Plan(
        sweep=remains, purge=data_to_remove(request, cluster, version), start=True, problems=problems
    )  # fmt: skip


def plan_stop(request: Request, cluster: Cluster) -> Plan:
    """What ends the file system on the nodes that answer. The data stays, or goes with ``cleaned``."""
    reached = {node: seen for node, seen in cluster.items() if not seen.unreachable}
    if not reached:
        raise ClusterError(
            "no_node", f"No node answers: {named(all_problems(request, cluster))}.", "Correct this, and run again."
        )
    check_runs(request, reached)
    foreign = [node for node, seen in reached.items() if seen.foreign]
    if foreign:
        raise ClusterError(
            "not_ours",
            f"What is mounted at {request.mount_point} on {', '.join(foreign)} was not started by this module with "
            f"`port_shift: {request.port_shift}`. Nothing was changed.",
            "Stop it with what started it, or give its port shift.",
        )
    other = {node: others(request, seen) for node, seen in reached.items()}
    other = {node: texts for node, texts in other.items() if texts}
    if other:
        raise ClusterError(
            "not_ours",
            f"{named(other)}. Nothing was changed.",
            "Give that mount point and port shift, to stop it.",
            problems=other,
        )
    left_out = members_left_out(request, reached)
    if left_out and not request.allow_data_loss:
        raise ClusterError(
            "other_nodes",
            f"The file system has more nodes than were named: {', '.join(left_out)}. Nothing was changed.",
            f"Name them, too, also those that have gone. Or: {_CONSENT}",
        )
    busy = {
        node: (*(f"process {pid}" for pid in seen.users), *(f"the mount at {place}" for place in seen.mounts_below))
        for node, seen in reached.items()
        if seen.users or seen.mounts_below
    }
    if busy and not request.allow_data_loss:
        raise ClusterError(
            "in_use",
            f"Programs use {request.mount_point}: {named(busy)}. Nothing was changed.",
            f"End them first. Or: {_CONSENT}",
        )
    purge: tuple[str, ...] = ()
    if request.state == "cleaned":
        purge = tuple(node for node, seen in reached.items() if seen.mark is not None)
        used = [node for node in purge if reached[node].used]
        if used and not request.allow_data_loss:
            raise ClusterError(
                "data_would_be_lost", f"There is data of users on {', '.join(used)}. Nothing was changed.", _CONSENT
            )
        check_names(request, reached, purge)
    remains = tuple(node for node, seen in reached.items() if seen.remains)
    # BeeOND ends whoever uses the mount point and unmounts what is there, whatever it is.
    stop = tuple(
        node for node in remains if reached[node].status_there and reached[node].program and reached[node].mounted
    )
    gone = {node: (seen.unreachable,) for node, seen in cluster.items() if seen.unreachable}
    return Plan(stop=stop, sweep=remains, purge=purge, problems=gone)


__all__ = [
    "all_problems",
    "check_names",
    "check_runs",
    "data_to_remove",
    "members_left_out",
    "named",
    "obstacles",
    "others",
    "plan_start",
    "plan_stop",
    "problems_of",
    "storage_obstacles",
    "version_of",
]
