# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Write a plan the way launchers want it: Slurm, Open MPI, Intel MPI, NVIDIA's HPL, gres.conf, and our own map."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.nccl import nccl_topology
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.plan import Plan, Rank
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.topology import Gpu, Hca
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.sysfs import normalize_bus_id
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._ranges import format_ranges

HCA_NAMES = ("auto", "device", "pci")
MAP_HEADER = "# rank gpus cpus memory hca uuids"
# A comment, so that an older gpu-bind, which takes indexes for minors, can read the map.
MAP_MINORS = "# minors"


@dataclasses.dataclass(frozen=True)
class Style:
    """``hca_names``: what to call HCAs; ``gres_type``: Type= of gres.conf; ``rankfile_host``: the node in a rankfile."""

    hca_names: str = "auto"
    gres_type: str = ""
    rankfile_host: str = "+n0"
    pci_switches: str = "auto"
    cpu_identity: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)


def cpu_mask(cpus: t.Iterable[int]) -> str:
    """Hexadecimal without prefix, as Slurm and Intel MPI read it."""
    return f"{sum(1 << cpu for cpu in set(cpus)):x}"


def mask_cpus(mask: str) -> list[int]:
    """The CPUs of a mask: with or without ``0x``, with or without the commas of the kernel. Raises ValueError where it is none."""
    value = int(mask.strip().replace(",", ""), 16)
    if value < 0:
        raise ValueError("a mask has no sign")
    return [cpu for cpu in range(value.bit_length()) if value >> cpu & 1]


def pci_name(bus_id: str, prefix: str = "ib") -> str:
    """How udev's NAME_PCI policy calls an RDMA device: domain, bus and slot in decimal (rdma-core, 60-rdma...rules)."""
    domain, bus, rest = normalize_bus_id(bus_id).split(":")
    slot, function = rest.split(".")
    name = prefix + (f"P{int(domain, 16)}" if int(domain, 16) else "") + f"p{int(bus, 16)}s{int(slot, 16)}"
    return name + (f"f{function}" if function != "0" else "")


def hca_name(hca: Hca, plan: Plan, names: str) -> str:
    """By default the name that the node's facts have. A profile does not know how a node's udev rules name its HCAs, but
    the address, from which the default rules make the name."""
    by_address = names == "pci" or (names == "auto" and plan.topology.source == "profile")
    return pci_name(hca.bus_id) if by_address and hca.bus_id else hca.name


def _numbers(gpus: t.Iterable[Gpu]) -> str:
    return ",".join(str(gpu.index) for gpu in gpus)


def _map_by(plan: Plan) -> tuple[str | None, list[int], list[str]]:
    """Open MPI's ``--map-by``, the order of GPUs that goes with it, and why there is none.

    Open MPI counts NUMA nodes upwards and puts as many ranks on each, so that rank 0 runs on the first NUMA node,
    wherever GPU 0 is: the order of the GPUs must follow.
    """
    natural = [gpu.index for rank in plan.ranks for gpu in rank.gpus]
    plain = list(dict.fromkeys(natural))
    nodes = [node for node in plan.topology.nodes if node.cpus]
    if any(len(rank.memory) > 1 for rank in plan.ranks):
        return None, plain, ["mpirun_map_by: a rank is on several NUMA nodes; use gpu-bind"]
    by_node = {node.id: [rank for rank in plan.ranks if rank.memory == (node.id,)] for node in nodes}
    counts = {len(ranks) for ranks in by_node.values()}
    if len(counts) != 1:
        each = ", ".join(f"{len(ranks)} on {numa}" for numa, ranks in by_node.items())
        reason = (
            f"mpirun_map_by: ppr wants as many ranks on every NUMA node, these are {each}; use gpu-bind or rankfile"
        )
        return None, plain, [reason]
    if plan.reserved or not plan.request.smt:
        return None, plain, ["mpirun_map_by: it cannot leave CPUs out; use gpu-bind or rankfile"]
    text = f"ppr:{counts.pop()}:numa"
    if plan.request.threads_per_rank:
        text += f":pe={_cores_per_rank(plan)}"
    order = [gpu.index for ranks in by_node.values() for rank in ranks for gpu in rank.gpus]
    return text, list(dict.fromkeys(order)), []


def _cores_per_rank(plan: Plan) -> int:
    """``pe`` counts cores, ``threads_per_rank`` CPUs."""
    node = plan.topology.node(plan.ranks[0].memory[0])
    threads = len(node.cores[0]) if node.cores else 1
    return -(-plan.request.threads_per_rank // threads)


def pin_domain(plan: Plan) -> str:
    """Intel MPI's list of domains, one per rank.

    With ``0x``: without it newer versions (2021.19 does, 2021.11 did not) print an error and pin as they like.
    """
    return f"[{','.join(f'0x{cpu_mask(rank.own)}' for rank in plan.ranks)}]"


def rankfile(plan: Plan, host: str) -> str | None:
    """For ``mpirun --rankfile FILE --mca rmaps_rank_file_physical 1``: CPUs as the kernel numbers them."""
    if not all(rank.own for rank in plan.ranks):
        return None
    return "".join(f"rank {rank.rank}={host} slot={format_ranges(rank.own)}\n" for rank in plan.ranks)


def _hpl(plan: Plan, style: Style) -> dict[str, str | None]:
    ranks = plan.ranks
    own = all(rank.own for rank in ranks)
    hcas = [hca_name(rank.hca, plan, style.hca_names) for rank in ranks if rank.hca]
    return {
        "cpu_affinity": ":".join(format_ranges(rank.own) for rank in ranks) if own else None,
        "mem_affinity": ":".join(format_ranges(rank.memory) for rank in ranks),
        "gpu_affinity": ":".join(_numbers(rank.gpus) for rank in ranks),
        "ucx_affinity": ":".join(hcas) if len(hcas) == len(ranks) else None,
    }


def _core_numbers(plan: Plan) -> dict[int, str]:
    """``Cores=`` per NUMA node: Slurm numbers the cores of a node by itself, one after the other, not the CPUs."""
    numbers: dict[int, str] = {}
    position = 0
    for node in plan.topology.nodes:
        if node.cores is None:
            return {}
        numbers[node.id] = format_ranges(range(position, position + len(node.cores)))
        position += len(node.cores)
    return numbers


def device_numbers(gpus: t.Iterable[Gpu]) -> dict[int, int | None]:
    """The N of every GPU's /dev/nvidiaN, by index: the driver's minor number, which need not be the index.

    Where the driver told none it is taken for the index, unless those of other GPUs are not theirs: then it is None.
    """
    gpus = list(gpus)
    renumbered = any(gpu.minor not in (None, gpu.index) for gpu in gpus)
    return {gpu.index: gpu.index if gpu.minor is None and not renumbered else gpu.minor for gpu in gpus}


def gres_conf(plan: Plan, gres_type: str) -> str | None:
    """One line per run of GPUs on the same NUMA node, in the order of indexes: Slurm numbers GPUs by their lines.

    None where it is not known which CPUs share a core, or which device file is a GPU's.
    """
    cores = _core_numbers(plan)
    numbers = device_numbers(plan.topology.gpus)
    if not cores:
        return None
    groups: list[tuple[int, list[int]]] = []
    for gpu in plan.topology.gpus:
        number = numbers[gpu.index]
        if number is None:
            return None
        if groups and groups[-1][0] == gpu.numa and groups[-1][1][-1] == number - 1:
            groups[-1][1].append(number)
        else:
            groups.append((gpu.numa, [number]))
    kind = f" Type={gres_type}" if gres_type else ""
    lines = []
    for numa, minors in groups:
        which = str(minors[0]) if len(minors) == 1 else f"[{format_ranges(minors)}]"
        near = f" Cores={cores[numa]}" if numa in cores else ""
        lines.append(f"Name=gpu{kind} File=/dev/nvidia{which}{near}\n")
    return "".join(lines)


def _gres_notes(plan: Plan, text: str | None) -> list[str]:
    """Why there is no gres.conf, or what was assumed in it."""
    if not _core_numbers(plan):
        return ["gres_conf: which CPUs share a core is not known"]
    silent = ", ".join(str(gpu.index) for gpu in plan.topology.gpus if gpu.minor is None)
    if text is None:
        return [f"gres_conf: which /dev/nvidiaN is GPU {silent}, is not known, and the others' are not named by index"]
    return (
        [f"gres_conf: it is not known which /dev/nvidiaN is GPU {silent}, so N is taken for the index"]
        if silent
        else []
    )


def _map_minors(plan: Plan) -> list[str]:
    """One number for each index from 0 on, where one of them is not the index."""
    numbers = device_numbers(plan.topology.gpus)
    if all(number == index for index, number in numbers.items()):
        return []
    places = [numbers.get(index) for index in range(max(numbers) + 1)]
    return [f"{MAP_MINORS} {','.join('-' if number is None else str(number) for number in places)}"]


def gpu_bind_map(plan: Plan, style: Style) -> str:
    """What the wrapper gpu-bind reads: one line per rank, fields separated by a blank, ``-`` for what is not known."""
    lines = [*_map_minors(plan), MAP_HEADER]
    for rank in plan.ranks:
        uuids = ",".join(gpu.uuid for gpu in rank.gpus) if all(gpu.uuid for gpu in rank.gpus) else "-"
        hca = hca_name(rank.hca, plan, style.hca_names) if rank.hca else "-"
        memory = format_ranges(rank.memory)
        lines.append(f"{rank.rank} {_numbers(rank.gpus)} {format_ranges(rank.cpus)} {memory} {hca} {uuids}")
    return "\n".join(lines) + "\n"


def _rank(rank: Rank, plan: Plan, style: Style) -> dict[str, t.Any]:
    return {
        "rank": rank.rank,
        "gpus": [gpu.index for gpu in rank.gpus],
        "numa": list(rank.memory),
        "cpus": format_ranges(rank.cpus),
        "own_cpus": format_ranges(rank.own) or None,
        "hca": hca_name(rank.hca, plan, style.hca_names) if rank.hca else None,
    }


def render(plan: Plan, style: Style) -> dict[str, t.Any]:
    """Everything that module gpu_affinity returns. What cannot be said in a launcher's words is null, and notes say why."""
    map_by, order, notes = _map_by(plan)
    masks = [cpu_mask(rank.cpus) for rank in plan.ranks]
    own = all(rank.own for rank in plan.ranks)
    hpl = _hpl(plan, style)
    gres = gres_conf(plan, style.gres_type)
    nccl, nccl_note = nccl_topology(plan.topology, style.pci_switches, style.cpu_identity)
    if hpl["ucx_affinity"] is None:
        notes.append("hpl.ucx_affinity: no HCA with a known NUMA node")
    notes += _gres_notes(plan, gres)
    return {
        "source": plan.topology.source,
        "binding": plan.binding,
        "ranks": [_rank(rank, plan, style) for rank in plan.ranks],
        "cpu_masks": masks,
        "srun_cpu_bind": "mask_cpu:" + ",".join(masks),
        "cuda_visible_devices": ",".join(map(str, order)),
        "mpirun_map_by": map_by,
        "mpirun_bind_to": None if map_by is None else "core" if plan.request.threads_per_rank else "numa",
        "rankfile": rankfile(plan, style.rankfile_host),
        "hpl": hpl,
        # Its domains must not overlap, hence the ranks' own CPUs.
        "intel_mpi_pin_domain": pin_domain(plan) if own else None,
        "gres_conf": gres,
        "nccl_topology_xml": nccl,
        "gpu_bind_map": gpu_bind_map(plan, style),
        "notes": [*plan.notes, *notes, *([nccl_note] if nccl_note else [])],
    }


__all__ = [
    "HCA_NAMES",
    "MAP_HEADER",
    "MAP_MINORS",
    "Style",
    "cpu_mask",
    "device_numbers",
    "gpu_bind_map",
    "gres_conf",
    "mask_cpus",
    "pci_name",
    "rankfile",
    "render",
]
