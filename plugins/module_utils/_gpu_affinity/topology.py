# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Where the CPUs, GPUs and HCAs of a node are, from its facts, from the profile of its machine type, or from both."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._ranges import parse_ranges

Core = tuple[int, ...]
#: GPUs or ports as the facts have them.
Entries = t.Sequence[t.Mapping[str, t.Any]]
UNPLACED = ("refuse", "any")
#: The NUMA node of a GPU that may be anywhere.
ANYWHERE = -1


@dataclasses.dataclass(frozen=True)
class NumaNode:
    """``cores`` are tuples of the CPUs (hardware threads) of one core; None where it is not known which share one."""

    id: int
    cpus: tuple[int, ...]
    cores: tuple[Core, ...] | None


@dataclasses.dataclass(frozen=True)
class Gpu:
    """``minor`` is the N of its /dev/nvidiaN; None where it is not known. ``pci_path``: see node_facts."""

    index: int
    numa: int
    bus_id: str = ""
    uuid: str = ""
    model: str = ""
    minor: int | None = None
    pci_path: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Hca:
    name: str
    numa: int
    bus_id: str = ""
    rate_gbps: float = 0
    pci_path: tuple[str, ...] = ()


Device = t.Union[Gpu, Hca]


@dataclasses.dataclass(frozen=True)
class Topology:
    """``source`` is ``facts``, ``profile`` or ``facts+profile``; every GPU is on a NUMA node that has CPUs, or ANYWHERE."""

    source: str
    nodes: tuple[NumaNode, ...]
    gpus: tuple[Gpu, ...]
    hcas: tuple[Hca, ...]
    notes: tuple[str, ...] = ()

    def node(self, number: int) -> NumaNode:
        return next(node for node in self.nodes if node.id == number)

    def cpus(self) -> list[int]:
        return sorted(cpu for node in self.nodes for cpu in node.cpus)


def _numbers(indexes: t.Iterable[int]) -> str:
    return ", ".join(map(str, indexes))


def _ranges(text: t.Any, where: str) -> tuple[int, ...]:
    try:
        return tuple(parse_ranges(str(text or "")))
    except ValueError as exc:
        raise ClusterError("bad_topology", f"{where}: {text!r} is not a list of CPUs: {exc}.", "Correct it.") from exc


def cores_of(
    cpus: t.Sequence[int], threads_per_core: int, siblings: t.Sequence[t.Sequence[int]]
) -> tuple[Core, ...] | None:
    """The cores of a NUMA node, in the order of their first CPU; None when it is not known which CPUs share a core.

    Without a list of siblings two numberings give themselves away: with one thread per core there is nothing to know,
    and as many separate runs of equal length as a core has threads are what Linux makes of the firmware's tables on
    bare metal and on EC2 (``0-23,48-71``: CPU 0 and CPU 48 share a core).
    """
    if siblings:
        mine = set(cpus)
        found = sorted({tuple(sorted(mine & set(group))) for group in siblings if mine & set(group)})
        return tuple(found) if sorted(cpu for core in found for cpu in core) == sorted(cpus) else None
    if threads_per_core <= 1:
        return tuple((cpu,) for cpu in cpus)
    runs: list[list[int]] = []
    for cpu in cpus:
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    if len(runs) == threads_per_core and len({len(run) for run in runs}) == 1:
        return tuple(zip(*runs))
    return None


def _threads_per_core(section: t.Mapping[str, t.Any]) -> int:
    cores, threads = section.get("cores"), section.get("threads")
    return max(1, int(threads) // int(cores)) if cores and threads else 1


def _nodes(entries: t.Iterable[t.Mapping[str, t.Any]], cpu: t.Mapping[str, t.Any], where: str) -> tuple[NumaNode, ...]:
    per_core = _threads_per_core(cpu)
    siblings = [_ranges(group, f"{where}.siblings") for group in cpu.get("siblings") or []]
    nodes = []
    for entry in entries:
        cpus = _ranges(entry.get("cpus"), f"{where}: NUMA node {entry.get('id')}")
        nodes.append(NumaNode(int(entry["id"]), cpus, cores_of(cpus, per_core, siblings)))
    return tuple(sorted(nodes, key=lambda node: node.id))


def shared_bridges(one: Device, other: Device) -> int:
    """How many PCI bridges lie above both devices; the host bridge, at which every chain begins, is none of them."""
    shared = 0
    for mine, its in zip(one.pci_path, other.pci_path):
        if mine != its:
            break
        shared += 1
    return max(0, shared - 1)


def _of_fabric(hcas: t.Iterable[Hca], gpus: t.Sequence[Gpu] = ()) -> tuple[Hca, ...]:
    """The ports of the fabric: a node's slower NICs (management, storage) are no help to a GPU.

    Where most GPUs have a port of their own below their switches, these are the fabric, and ports elsewhere do not say how fast it is:
    those of storage may be faster, and a port without a link tells a rate that is not its own.
    """
    found = sorted(hcas, key=lambda hca: (hca.bus_id, hca.name))
    beside = [hca for hca in found if any(shared_bridges(gpu, hca) for gpu in gpus)]
    judged = beside if 2 * len(beside) > len(gpus) > 2 else found
    best = max((hca.rate_gbps for hca in judged), default=0)
    return tuple(hca for hca in found if hca.rate_gbps >= best)


def _placed(topology: Topology, homeless: t.Sequence[int]) -> Topology:
    """Refuse what no rank can be bound by."""
    if not topology.gpus and not homeless:
        raise ClusterError(
            "no_gpus",
            f"There is no GPU in the {topology.source}.",
            "Pinning follows GPUs: leave it out on this node, or see under unknown in the facts why none was found.",
        )
    if homeless:
        raise ClusterError(
            "gpu_numa_unknown",
            f"The NUMA node of GPU {_numbers(homeless)} is not known (the kernel says -1), and the node has {len(topology.nodes)}.",
            "Give the profile of the machine type: its NUMA map is used for GPUs that the kernel cannot place. Or let ranks "
            "of such GPUs run anywhere (`unplaced: any`).",
        )
    with_cpus = {ANYWHERE, *(node.id for node in topology.nodes if node.cpus)}
    for gpu in topology.gpus:
        if gpu.numa not in with_cpus:
            raise ClusterError(
                "numa_without_cpus",
                f"GPU {gpu.index} is on NUMA node {gpu.numa}, which has no CPU.",
                "Bring the CPUs of that node online, or correct the NUMA map of the profile.",
            )
    return topology


def _planned_gpus(gpus: t.Mapping[str, t.Any], entries: Entries) -> tuple[Gpu, ...]:
    """The GPUs that the NUMA nodes of a profile name, by index; ``gpus`` is its section of them."""
    bus_ids = gpus.get("bus_ids") or []
    models = gpus.get("models") or [{}]
    found = [
        Gpu(
            index=index,
            numa=int(entry["id"]),
            bus_id=bus_ids[index] if index < len(bus_ids) else "",
            model=models[0].get("name") or "",
        )
        for entry in entries
        for index in entry.get("gpus") or []
    ]
    return tuple(sorted(found, key=lambda gpu: gpu.index))


def _planned_hcas(hcas: Entries, entries: Entries) -> tuple[Hca, ...]:
    """The fabric's HCAs that the NUMA nodes of a profile name."""
    home = {hca: int(entry["id"]) for entry in entries for hca in entry.get("hcas") or []}
    return _of_fabric(
        Hca(hca["name"], home[hca["name"]], hca.get("bus_id") or "", hca.get("rate_gbps") or 0)
        for hca in hcas
        if hca.get("name") in home
    )


def from_profile(profile: t.Mapping[str, t.Any]) -> Topology:
    """The topology that the machine type should have; for planning without a node."""
    name = profile.get("name") or "?"
    entries = (profile.get("numa") or {}).get("nodes") or []
    if not entries:
        raise ClusterError(
            "profile_without_numa",
            f"The profile {name} has no NUMA map.",
            "Plan from the facts of a node, or add numa.nodes to a profile of your own.",
        )
    gpus = _planned_gpus(profile.get("gpus") or {}, entries)
    count = (profile.get("gpus") or {}).get("count") or 0
    homeless = sorted(set(range(count)) - {gpu.index for gpu in gpus})
    topology = Topology(
        "profile",
        _nodes(entries, profile.get("cpu") or {}, f"profile {name}"),
        gpus,
        _planned_hcas((profile.get("fabric") or {}).get("hcas") or [], entries),
    )
    return _placed(topology, homeless)


def same_cpus(nodes: t.Iterable[NumaNode], others: t.Iterable[NumaNode]) -> bool:
    """Whether the same NUMA nodes have the same CPUs; nodes without CPUs (CXL, GPU memory) do not count."""
    mine, theirs = ({node.id: node.cpus for node in each if node.cpus} for each in (nodes, others))
    return mine == theirs


def numa_nodes(facts: t.Mapping[str, t.Any]) -> tuple[NumaNode, ...]:
    """The NUMA nodes that a node says it has."""
    return _nodes(facts.get("numa") or [], facts.get("cpus") or {}, "facts")


def _homes_told(gpus: Entries, nodes: t.Sequence[NumaNode]) -> dict[int, int]:
    """NUMA nodes by GPU index as the kernel tells them; where one node has all the CPUs, GPUs can only be there."""
    known = {node.id for node in nodes}
    with_cpus = [node.id for node in nodes if node.cpus]
    home: dict[int, int] = {}
    for gpu in gpus:
        numa = gpu.get("numa")
        if numa is not None and int(numa) in known:
            home[gpu["index"]] = int(numa)
        elif len(with_cpus) == 1:
            home[gpu["index"]] = with_cpus[0]
    return home


def _fitting(
    profile: t.Mapping[str, t.Any], nodes: t.Sequence[NumaNode], homeless: t.Sequence[int], unplaced: str
) -> Topology | None:
    """The profile's topology for GPUs that the kernel does not place; None without a NUMA map, and where one for other
    CPUs is not refused."""
    if not (profile.get("numa") or {}).get("nodes"):
        return None
    planned = from_profile(profile)
    if same_cpus(planned.nodes, nodes):
        return planned
    if unplaced == "refuse":
        raise ClusterError(
            "profile_does_not_fit",
            f"The kernel does not know the NUMA node of GPU {_numbers(homeless)}, and the NUMA map of the "
            f"profile {profile.get('name')} is for other CPUs than this node has.",
            "Choose the profile of this machine type, or add one with this node's NUMA nodes.",
        )
    return None


def _homes_planned(gpus: Entries, planned: Topology) -> dict[int, int]:
    """NUMA nodes by GPU index as the profile has them: by address where it has some, because an index shifts when a GPU
    is missing."""
    by_bus = {gpu.bus_id: gpu.numa for gpu in planned.gpus if gpu.bus_id}
    by_index = {gpu.index: gpu.numa for gpu in planned.gpus}
    places = {
        gpu["index"]: by_bus.get(gpu.get("bus_id") or "") if by_bus else by_index.get(gpu["index"]) for gpu in gpus
    }
    return {index: numa for index, numa in places.items() if numa is not None}


def _gpus_at_home(gpus: Entries, home: t.Mapping[int, int]) -> tuple[Gpu, ...]:
    """The GPUs of the facts whose NUMA node is known, by index."""
    found = [
        Gpu(
            gpu["index"],
            home[gpu["index"]],
            gpu.get("bus_id") or "",
            gpu.get("uuid") or "",
            gpu.get("name") or "",
            gpu.get("minor"),
            tuple(gpu.get("pci_path") or ()),
        )
        for gpu in gpus
        if gpu["index"] in home
    ]
    return tuple(sorted(found, key=lambda gpu: gpu.index))


def _hcas_at_home(
    ports: Entries, nodes: t.Sequence[NumaNode], planned: Topology | None, gpus: t.Sequence[Gpu]
) -> tuple[Hca, ...]:
    """The fabric's HCAs whose NUMA node is known: from the kernel, else by address from the profile."""
    places = {hca.bus_id: hca.numa for hca in planned.hcas if hca.bus_id} if planned else {}
    known = {node.id for node in nodes}
    hcas: dict[str, Hca] = {}
    for port in ports:
        bus_id = port.get("bus_id") or ""
        numa = int(port["numa"]) if port.get("numa") is not None else -1
        numa = places.get(bus_id, -1) if numa < 0 else numa
        path = tuple(port.get("pci_path") or ())
        hcas[port["device"]] = Hca(port["device"], numa, bus_id, port.get("rate_gbps") or 0, path)
    return _of_fabric((hca for hca in hcas.values() if hca.numa in known), gpus)


def from_facts(
    facts: t.Mapping[str, t.Any], profile: t.Mapping[str, t.Any] | None = None, unplaced: str = "refuse"
) -> Topology:
    """The topology that the node has. ``profile`` is asked only where the kernel does not know a GPU's NUMA node;
    GPUs that it does not place either are refused or, with ``any``, ANYWHERE."""
    nodes = numa_nodes(facts)
    if not any(node.cpus for node in nodes):
        raise ClusterError("bad_topology", "The facts name no CPU.", "Gather them with hpcai.gpu_cluster.node_facts.")
    gpus = list(facts.get("gpus") or [])
    home, notes = _homes_told(gpus, nodes), []
    homeless = [gpu["index"] for gpu in gpus if gpu["index"] not in home]
    planned = _fitting(profile, nodes, homeless, unplaced) if homeless and profile else None
    if planned:
        notes.append(f"the kernel does not place GPU {_numbers(homeless)}: taken from the profile")
        home = {**_homes_planned(gpus, planned), **home}
        homeless = [index for index in homeless if index not in home]
    if homeless and unplaced == "any":
        notes.append(f"nobody knows the NUMA node of GPU {_numbers(homeless)}: its ranks may run anywhere")
        home.update(dict.fromkeys(homeless, ANYWHERE))
        homeless = []
    if any((gpu.get("mig") or {}).get("enabled") for gpu in gpus):
        notes.append("MIG is on: its instances are not numbered like GPUs, so CUDA_VISIBLE_DEVICES must name them")
    placed = _gpus_at_home(gpus, home)
    topology = Topology(
        "facts+profile" if planned else "facts",
        nodes,
        placed,
        _hcas_at_home(facts.get("hcas") or [], nodes, planned, placed),
        tuple(notes),
    )
    return _placed(topology, homeless)


__all__ = [
    "ANYWHERE",
    "UNPLACED",
    "Core",
    "Device",
    "Gpu",
    "Hca",
    "NumaNode",
    "Topology",
    "cores_of",
    "from_facts",
    "from_profile",
    "shared_bridges",
]
