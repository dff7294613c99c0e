# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Decide which GPUs, CPUs, memory and HCA every rank of a node gets.

Ranks are numbered like the GPUs they use: rank 0 takes the first GPU (or the first few), and so on. CPUs come from the
NUMA nodes of those GPUs and from nowhere else, the HCA is the nearest to the first of them.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.nearest import nearest_hcas
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.topology import (
    ANYWHERE,
    Core,
    Gpu,
    Hca,
    NumaNode,
    Topology,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._ranges import format_ranges, parse_ranges

BINDINGS = ("auto", "numa", "cores")


@dataclasses.dataclass(frozen=True)
class Request:
    """0 means: one rank per GPU, all GPUs spread over the ranks, all CPUs there are."""

    ranks_per_node: int = 0
    gpus_per_rank: int = 0
    threads_per_rank: int = 0
    reserve_cpus: str = ""
    smt: bool = True
    binding: str = "auto"


@dataclasses.dataclass(frozen=True)
class Rank:
    """``shared`` are all usable CPUs of its NUMA nodes, ``own`` those that no other rank has (empty if there are none
    to be had), ``cpus`` the ones of the two that the request binds to."""

    rank: int
    gpus: tuple[Gpu, ...]
    memory: tuple[int, ...]
    shared: tuple[int, ...]
    own: tuple[int, ...]
    cpus: tuple[int, ...]
    hca: Hca | None


@dataclasses.dataclass(frozen=True)
class Plan:
    topology: Topology
    request: Request
    binding: str
    ranks: tuple[Rank, ...]
    reserved: tuple[int, ...]
    notes: tuple[str, ...]


def _bad(message: str, remedy: str, kind: str = "bad_input") -> ClusterError:
    return ClusterError(kind, message, remedy)


def _check(request: Request) -> None:
    for name in ("ranks_per_node", "gpus_per_rank", "threads_per_rank"):
        if getattr(request, name) < 0:
            raise _bad(f"`{name}` is {getattr(request, name)}.", "Give 0 or a positive number.")
    if request.binding not in BINDINGS:
        raise _bad(f"`binding` is {request.binding!r}.", f"Choose one of {', '.join(BINDINGS)}.")
    if request.binding == "numa" and request.threads_per_rank:
        raise _bad(
            "`binding` is numa, which gives every rank its whole NUMA node, but `threads_per_rank` asks for so many CPUs.",
            "Set `binding: cores`, or leave `threads_per_rank` out.",
        )


def _reserved(topology: Topology, text: str) -> set[int]:
    try:
        wanted = set(parse_ranges(text))
    except ValueError as exc:
        raise _bad(f"`reserve_cpus`: {exc}.", "Write a list such as 0,24-25.") from exc
    missing = sorted(wanted - set(topology.cpus()))
    if missing:
        raise _bad(f"`reserve_cpus` names CPU {format_ranges(missing)}, which the node does not have.", "Correct it.")
    # A core that the system uses by one of its threads is no core for a rank.
    cores = [core for node in topology.nodes for core in node.cores or ()]
    return wanted | {cpu for core in cores if wanted & set(core) for cpu in core}


def _share_gpus(topology: Topology, request: Request) -> tuple[list[tuple[Gpu, ...]], list[str]]:
    """The GPUs of every rank, and remarks."""
    gpus = topology.gpus
    ranks = request.ranks_per_node or len(gpus) // max(1, request.gpus_per_rank)
    each = request.gpus_per_rank
    if ranks > len(gpus):
        if ranks % len(gpus) or each > 1:
            raise _bad(
                f"{ranks} ranks cannot share {len(gpus)} GPUs evenly.",
                f"Choose a multiple of {len(gpus)}, or at most {len(gpus)}.",
            )
        several = ranks // len(gpus)
        note = f"{several} ranks share every GPU: start NVIDIA MPS, or their kernels take turns"
        return [(gpus[rank // several],) for rank in range(ranks)], [note]
    if not each:
        if not ranks or len(gpus) % ranks:
            raise _bad(
                f"{len(gpus)} GPUs cannot be spread evenly over {ranks} ranks.",
                "Choose a divisor, or say with `gpus_per_rank` how many each uses.",
            )
        each = len(gpus) // ranks
    if not ranks or ranks * each > len(gpus):
        raise _bad(
            f"{ranks or 1} ranks with {each} GPUs each need more than the {len(gpus)} that there are.",
            "Lower `ranks_per_node` or `gpus_per_rank`.",
        )
    left = gpus[ranks * each :]
    notes = [f"GPU {', '.join(str(gpu.index) for gpu in left)} is used by no rank"] if left else []
    return [gpus[rank * each : (rank + 1) * each] for rank in range(ranks)], notes


def _numa_of(gpus: t.Sequence[Gpu], topology: Topology) -> tuple[int, ...]:
    """The NUMA nodes next to some GPUs: all of them for one that may be anywhere."""
    if any(gpu.numa == ANYWHERE for gpu in gpus):
        return tuple(node.id for node in topology.nodes if node.cpus)
    return tuple(sorted({gpu.numa for gpu in gpus}))


def _usable(node: NumaNode, reserved: set[int], smt: bool) -> tuple[tuple[int, ...], tuple[Core, ...] | None]:
    """CPUs and cores of a NUMA node that ranks may use."""
    if node.cores is None:
        return tuple(cpu for cpu in node.cpus if cpu not in reserved), None
    cores = [core for core in node.cores if not reserved & set(core)]
    kept = tuple(core if smt else core[:1] for core in cores)
    return tuple(sorted(cpu for core in kept for cpu in core)), kept


def _deal(items: t.Sequence[Core], parts: int) -> list[tuple[Core, ...]]:
    """Cut into consecutive parts whose sizes differ by one at most."""
    size, extra = divmod(len(items), parts)
    cuts = [part * size + min(part, extra) for part in range(parts + 1)]
    return [tuple(items[start:end]) for start, end in zip(cuts, cuts[1:])]


def _take(shares: t.Sequence[t.Sequence[Core]], threads: int) -> list[Core]:
    """So many CPUs from the shares of a rank, in turns where it has shares on several NUMA nodes; all for 0."""
    if not threads:
        return [core for share in shares for core in share]
    taken: list[list[Core]] = [[] for _share in shares]
    have = 0
    for turn in range(max((len(share) for share in shares), default=0)):
        for place, share in enumerate(shares):
            if have < threads and turn < len(share):
                # A core with two threads may be one too many: it is cut, so that the rank gets what it asked for.
                core = share[turn][: threads - have]
                taken[place].append(core)
                have += len(core)
    return [core for share in taken for core in share]


class _Shares:
    """Own cores for every rank, or the reason why there are none."""

    def __init__(self, users: dict[int, list[int]], cores: dict[int, tuple[Core, ...] | None]) -> None:
        self.reason = ""
        self._parts: dict[tuple[int, int], tuple[Core, ...]] = {}
        for numa, ranks in users.items():
            available = cores[numa]
            if available is None:
                self.reason = (
                    f"which CPUs of NUMA node {numa} share a core is not known; give the facts of a node, "
                    "which tell it (cpus.siblings)"
                )
                return
            if len(available) < len(ranks):
                self.reason = f"NUMA node {numa} has {len(available)} usable cores for {len(ranks)} ranks"
                return
            self._parts.update({(rank, numa): part for rank, part in zip(ranks, _deal(available, len(ranks)))})

    def of(self, rank: int, memory: tuple[int, ...], threads: int) -> tuple[int, ...]:
        if self.reason:
            return ()
        shares = [self._parts[(rank, numa)] for numa in memory]
        cpus = sum(len(core) for share in shares for core in share)
        if threads > cpus:
            raise _bad(
                f"Rank {rank} asks for {threads} CPUs, but its share of NUMA node {', '.join(map(str, memory))} is {cpus}.",
                "Lower `threads_per_rank`, `ranks_per_node` or `reserve_cpus`.",
                "too_few_cpus",
            )
        return tuple(sorted(cpu for core in _take(shares, threads) for cpu in core))


def make_plan(topology: Topology, request: Request) -> Plan:
    """Every rank's GPUs, CPUs, memory nodes and HCA. Raises ClusterError with the reason for what cannot be."""
    _check(request)
    reserved = _reserved(topology, request.reserve_cpus)
    groups, notes = _share_gpus(topology, request)
    binding = request.binding if request.binding != "auto" else ("cores" if request.threads_per_rank else "numa")
    users: dict[int, list[int]] = {}
    for rank, group in enumerate(groups):
        for numa in _numa_of(group, topology):
            users.setdefault(numa, []).append(rank)
    usable = {numa: _usable(topology.node(numa), reserved, request.smt) for numa in users}
    for numa, (cpus, _cores) in usable.items():
        if not cpus:
            raise _bad(
                f"`reserve_cpus` leaves NUMA node {numa} no CPU, but GPUs are on it.",
                "Reserve fewer CPUs there.",
                "too_few_cpus",
            )
    if not request.smt and any(cores is None for _cpus, cores in usable.values()):
        raise _bad(
            "`smt` is false, but which CPUs share a core is not known.",
            "Give the facts of a node (cpus.siblings tells it), or leave `smt` as it is.",
            "smt_unknown",
        )
    shares = _Shares(users, {numa: cores for numa, (_cpus, cores) in usable.items()})
    if shares.reason and binding == "cores":
        raise _bad(
            f"No rank can have CPUs of its own: {shares.reason}.",
            "Set `binding: numa` without `threads_per_rank`, or plan fewer ranks.",
            "too_few_cpus",
        )
    if shares.reason:
        notes.append(f"no CPUs of their own for the ranks: {shares.reason}")
    if any(len(_numa_of(group, topology)) > 1 for group in groups):
        notes.append("a rank uses GPUs of several NUMA nodes: part of its memory is far from each GPU")
    ranks = []
    hcas = nearest_hcas(topology)
    for rank, group in enumerate(groups):
        memory = _numa_of(group, topology)
        shared = tuple(sorted(cpu for numa in memory for cpu in usable[numa][0]))
        own = shares.of(rank, memory, request.threads_per_rank)
        ranks.append(
            Rank(rank, group, memory, shared, own, own if binding == "cores" else shared, hcas.get(group[0].index))
        )
    return Plan(topology, request, binding, tuple(ranks), tuple(sorted(reserved)), (*topology.notes, *notes))


__all__ = ["BINDINGS", "Plan", "Rank", "Request", "make_plan"]
