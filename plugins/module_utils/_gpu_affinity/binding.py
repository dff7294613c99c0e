# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The map that gpu-bind reads on a node: from which source, with which text, and whether a bound process is where it says."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.foreign import HEAD
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.nccl_files import also_written
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.topology import (
    from_profile,
    numa_nodes,
    same_cpus,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._ranges import format_ranges, parse_ranges

SOURCES = ("auto", "facts", "profile")
# Prints what the kernel says of a bound process: its CPUs, then its memory policy where the kernel has NUMA.
PROBE = "cat /proc/self/status; head -n 1 /proc/self/numa_maps 2>/dev/null || :"

Mapping = t.Mapping[str, t.Any]


def sources(source: str, facts: Mapping, profile: Mapping) -> tuple[dict[str, t.Any], Mapping]:
    """Facts and profile as the planner should see them.

    A map is only ever made of CPUs that the node has: the profile may say where GPUs are, never which CPUs there are.
    """
    planned = dict(facts)
    if source == "facts":
        # What the profile says of NCCL is no place of a GPU.
        return planned, {key: profile[key] for key in ("name", "nccl") if key in profile}
    if source == "auto":
        return planned, profile
    if not profile:
        raise ClusterError(
            "bad_input",
            "The map is to come from the profile, but there is none.",
            "Run node_profile first, or set `source` to facts.",
        )
    here, there = numa_nodes(facts), from_profile(profile)
    if not same_cpus(here, there.nodes):
        described = "; ".join(f"node {node.id}: {format_ranges(node.cpus) or 'none'}" for node in here)
        raise ClusterError(
            "profile_does_not_fit",
            f"The NUMA map of the profile {profile.get('name')} is for other CPUs than this node has ({described}): ranks "
            "would be bound to CPUs that are not there.",
            "Set `source` to facts or auto, or choose the profile of this machine type.",
        )
    planned["gpus"] = [{**gpu, "numa": None} for gpu in facts.get("gpus") or []] or [
        {"index": gpu.index, "numa": gpu.numa, "bus_id": gpu.bus_id, "name": gpu.model} for gpu in there.gpus
    ]
    return planned, profile


def nothing_to_pin(facts: Mapping, profile: Mapping) -> bool:
    """Whether the node has no GPU and is not known to be one that should have some."""
    return not facts.get("gpus") and not (profile.get("gpus") or {}).get("count")


def map_text(plan: Mapping, beside: t.Iterable[str] = ()) -> str:
    """The plan's map with a head that says where it came from, and which files for NCCL were written ``beside`` it."""
    notes = "".join(f"# Note: {note}.\n" for note in plan["notes"] if not re.match(r"^[a-z_.]+: ", note))
    return (
        f"{HEAD}# Source: {plan['source']}; every rank is bound to "
        f"{'its whole NUMA node' if plan['binding'] == 'numa' else 'CPUs of its own'}.\n{notes}{also_written(beside)}{plan['gpu_bind_map']}"
    )


def probes(plan: Mapping) -> list[dict[str, t.Any]]:
    """One rank for every different place: the others would be shown the same."""
    different: dict[tuple[str, tuple[int, ...]], dict[str, t.Any]] = {}
    for rank in plan["ranks"]:
        different.setdefault((rank["cpus"], tuple(rank["numa"])), rank)
    return list(different.values())


def judge_probe(rank: Mapping, output: str, memory_nodes: int) -> str:
    """What is wrong with a process that gpu-bind started for a rank; empty if nothing is."""
    found = re.search(r"^Cpus_allowed_list:\s*(\S+)", output, re.MULTILINE)
    if not found:
        return f"rank {rank['rank']}: the probe did not say on which CPUs it may run"
    # A cgroup may leave a rank fewer CPUs than planned, but never others.
    beyond = set(parse_ranges(found.group(1))) - set(parse_ranges(rank["cpus"]))
    if beyond:
        return f"rank {rank['rank']} may run on CPUs {format_ranges(beyond)}, which are not among {rank['cpus']}"
    policy = re.search(r"^[0-9a-f]+ (\S+)", output, re.MULTILINE)
    wanted = f"bind:{format_ranges(rank['numa'])}"
    if memory_nodes > 1 and policy and policy.group(1) not in (wanted, wanted.replace("bind", "bind=static")):
        return f"rank {rank['rank']} takes memory by the policy {policy.group(1)}, not {wanted}"
    return ""


__all__ = ["PROBE", "SOURCES", "judge_probe", "map_text", "nothing_to_pin", "probes", "sources"]
