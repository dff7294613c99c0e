# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Judge whether processes are on the CPUs and the memory that are next to the GPUs they use."""

from __future__ import annotations

import re
import typing as t
from collections import Counter

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_bind.model import (
    Finding,
    Node,
    Process,
    format_set,
    parse_set,
)

# Memory on other NUMA nodes that is worth a remark.
_FAR_MEMORY_PERCENT, _FAR_MEMORY_MIB = 10, 64
_REBIND = "Start it with gpu-bind, or correct the launcher's binding."


def _judge_cpus(node: Node, process: Process, near: set[int], where: str) -> t.Iterator[Finding]:
    beyond, gpu = process.cpus - near, process.gpus[0].index
    if not process.cpus & near:
        what = f"may run on CPUs {format_set(process.cpus)} only, none of them next to {where}"
        yield Finding("wrong_cpus", "fail", what, _REBIND, process.pid, gpu)
    elif beyond:
        nodes = ", ".join(map(str, node.numa_of(beyond)))
        what = f"may leave {where} for CPUs {format_set(beyond)} of NUMA node {nodes}"
        yield Finding("not_bound", "fail", what, _REBIND, process.pid, gpu)
    strays = [thread for thread in process.threads if thread.cpus - near and thread.cpus != process.cpus]
    if strays:
        names = ", ".join(
            f"{name} ({count})" for name, count in Counter(thread.name for thread in strays).most_common(3)
        )
        allowed = format_set({cpu for thread in strays for cpu in thread.cpus})
        what = f"{len(strays)} of {len(process.threads)} threads may run away from {where}, on CPUs {allowed}: {names}"
        remedy = "See who rebinds them: OMP_PLACES, GOMP_CPU_AFFINITY, KMP_AFFINITY, NCCL, the program itself."
        yield Finding("stray_threads", "fail", what, remedy, process.pid, gpu)


def judge_memory(process: Process, home: set[int], where: str) -> t.Iterator[Finding]:
    gpu = process.gpus[0].index
    remedy = "Bind memory to the GPU's NUMA node: gpu-bind does, or numactl --membind."
    if process.mems and not process.mems & home:
        what = f"may use memory of NUMA node {format_set(process.mems)} only, not of {where}"
        yield Finding("wrong_memory", "fail", what, "Let the cpuset of the job include that node.", process.pid, gpu)
    mode, _colon, nodes = (process.policy or "default").partition(":")
    if nodes and re.match(r"^[\d,-]+$", nodes):
        bound = parse_set(nodes)
        if not bound & home or (mode.startswith("bind") and bound - home):
            what = f"takes its memory by the policy {process.policy}, away from {where}"
            yield Finding("wrong_memory", "fail", what, remedy, process.pid, gpu)
    total = sum((process.memory_mib or {}).values())
    far = sum(amount for number, amount in (process.memory_mib or {}).items() if number not in home)
    if far >= _FAR_MEMORY_MIB and 100 * far > _FAR_MEMORY_PERCENT * total:
        what = f"has {far} of {total} MiB on other NUMA nodes than {where}"
        yield Finding("far_memory", "warn", what, remedy, process.pid, gpu)


def _judge_process(node: Node, process: Process) -> t.Iterator[Finding]:
    if process.shows_no_gpu:
        # It has no place that it could miss.
        return
    if not process.gpus:
        what = "nothing tells which GPU it uses"
        remedy = "Look while it computes, or start it with a launcher that tells the local rank."
        yield Finding("gpu_unknown", "incomplete", what, remedy, process.pid)
        return
    homeless = [gpu for gpu in process.gpus if gpu.numa is None]
    for gpu in homeless:
        what = f"the NUMA node of GPU {gpu.index} is not known (numa_node is -1, and no map names it)"
        remedy = "Run the role hpcai.gpu_cluster.numa_pinning, which writes the map from the machine's profile."
        yield Finding("gpu_numa_unknown", "incomplete", what, remedy, process.pid, gpu.index)
    if homeless:
        return
    home = {gpu.numa for gpu in process.gpus if gpu.numa is not None}
    indices, near = ", ".join(str(gpu.index) for gpu in process.gpus), node.near(home)
    where = f"GPU {indices} (NUMA node {format_set(home)}, CPUs {format_set(near)})"
    yield from _judge_cpus(node, process, near, where)
    # A NUMA node without memory leaves no choice but the memory of others.
    if home & node.memory:
        yield from judge_memory(process, home & node.memory, where)


def _heads(members: list[Process], parents: dict[int, int]) -> list[Process]:
    """Those that none of the others started: data loaders and the like share what their parent has."""
    pids, found = {process.pid for process in members}, []
    for process in members:
        pid, seen = parents.get(process.pid, 0), {process.pid}
        while pid in parents and pid not in pids and pid not in seen:
            seen.add(pid)
            pid = parents[pid]
        if pid not in pids:
            found.append(process)
    return found


def _judge_together(node: Node, processes: list[Process]) -> t.Iterator[Finding]:
    parents = {process.pid: process.parent for process in processes}
    ranks = [process for process in processes if process.gpus]
    for place, one in enumerate(ranks):
        for other in ranks[place + 1 :]:
            common = one.cpus & other.cpus
            if common and one.cpus != other.cpus and len(_heads([one, other], parents)) == 2:
                what = f"shares CPUs {format_set(common)} with process {other.pid}, but not all of them"
                remedy = "Give every rank its whole NUMA node or CPUs of its own."
                yield Finding("overlap", "warn", what, remedy, one.pid)
    for cpus in {frozenset(process.cpus) for process in ranks}:
        members = _heads([process for process in ranks if process.cpus == cpus], parents)
        if len(members) > max(1, len(cpus)):
            names = ", ".join(str(process.pid) for process in members)
            what = f"{len(members)} processes ({names}) share {len(cpus)} CPUs ({format_set(cpus)})"
            # With a whole NUMA node there is no better place: there are too many ranks, but they are bound right.
            verdict = "warn" if any(cpus >= mine for mine in node.cpus.values() if mine) else "fail"
            remedy = f"Launchers that do not know of each other all begin with the first core. {_REBIND}"
            yield Finding("overlap", verdict, what, remedy, members[0].pid)
    for gpu in node.gpus:
        members = _heads([process for process in ranks if gpu in process.gpus], parents)
        if len(members) > 1:
            names = ", ".join(str(process.pid) for process in members)
            what = f"GPU {gpu.index} is used by {len(members)} processes: {names}"
            yield Finding("gpu_shared", "warn", what, "Intended with MPS; else give each its own GPU.", gpu=gpu.index)
        if not gpu.pids:
            remedy = "Start as many ranks as there are GPUs, or mind CUDA_VISIBLE_DEVICES."
            yield Finding("gpu_unused", "warn", f"GPU {gpu.index} is used by no process", remedy, gpu=gpu.index)


def judge(node: Node, processes: list[Process]) -> list[Finding]:
    findings = list(node.findings)
    for process in processes:
        findings += _judge_process(node, process)
    if any(process.gpus for process in processes):
        findings += _judge_together(node, processes)
    else:
        what = "no process that uses a GPU was found"
        without = ", ".join(str(process.pid) for process in processes if process.shows_no_gpu)
        what += f" (CUDA_VISIBLE_DEVICES shows none to {without})" if without else ""
        remedy = "Run this while the job computes, on its node; --name or --pid choose processes that use no GPU yet."
        findings.append(Finding("no_process", "incomplete", what, remedy))
    return findings


def verdict_of(findings: t.Iterable[Finding]) -> str:
    found = {finding.verdict for finding in findings}
    # Something wrong is wrong, whatever else could not be seen.
    return next((verdict for verdict in ("fail", "incomplete", "warn") if verdict in found), "ok")


__all__ = ["judge", "judge_memory", "verdict_of"]
