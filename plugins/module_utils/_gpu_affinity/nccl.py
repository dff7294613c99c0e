# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The topology file that NCCL reads (``NCCL_TOPO_FILE``): system, cpu and pci elements.

Read in NCCL's src/graph/xml.cc: NCCL looks up every device by its busid, keeps the place that the file gives it, and adds
the elements gpu, nic and net below it by itself, from NVML and sysfs; the same goes for attributes of cpu that are absent.
A bridge that does not exist (domain ffff) stands for the PCIe switch that virtual machines hide, and must bring its own
link_speed. GPU and HCA below one switch is what permits GPUDirect RDMA at NCCL's default distance, so that a switch is only
drawn where there is reason to believe in one.
"""

from __future__ import annotations

# Not xml.sax: importing it takes a node ten times as long.
import html
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.nearest import nearest_hcas, switch_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.topology import (
    ANYWHERE,
    Gpu,
    Hca,
    NumaNode,
    Topology,
)

PCI_SWITCHES = ("auto", "numa", "pair", "none")
# PCIe generation by the GPU's model, in NCCL's words. Source: the data sheets of the GPUs.
_LINK_SPEED = (
    ("V100", "8.0 GT/s PCIe"),
    ("T4", "8.0 GT/s PCIe"),
    ("A100", "16.0 GT/s PCIe"),
    ("A10", "16.0 GT/s PCIe"),
    ("A30", "16.0 GT/s PCIe"),
    ("A40", "16.0 GT/s PCIe"),
    ("L4", "16.0 GT/s PCIe"),
    ("H100", "32.0 GT/s PCIe"),
    ("H200", "32.0 GT/s PCIe"),
)
_BRIDGE, _GPU, _INFINIBAND = "0x060400", "0x030200", "0x020700"
_IDENTITY = ("arch", "vendor", "familyid", "modelid")
#: A value has 253 characters at most (MAX_STR_LEN in src/graph/xml.h): 28 words of 8 digits, and commas between them.
_MASK_CPUS = 28 * 32
# The layout that needs no guess: what lies below one port of the host bridge.
_KNOWN = "known"
#: GPUs and HCAs that lie together.
Group = tuple[list[Gpu], list[Hca]]


def kernel_mask(cpus: t.Iterable[int], width: int) -> str:
    """The kernel's spelling of a mask: words of 32 bits, commas between them, wide enough for ``width`` CPUs."""
    value = sum(1 << cpu for cpu in set(cpus))
    words = max(1, -(-width // 32))
    return ",".join(f"{value >> 32 * word & 0xFFFFFFFF:08x}" for word in reversed(range(words)))


def link_speed(model: str) -> str:
    """By the words of the model's name, so that A100 is not taken for A10."""
    words = model.replace("-", " ").split()
    return next((speed for name, speed in _LINK_SPEED if name in words), "")


def _element(depth: int, tag: str, attributes: dict[str, t.Any], closed: bool) -> str:
    text = " ".join(f'{key}="{html.escape(str(value))}"' for key, value in attributes.items())
    return f"{'  ' * depth}<{tag} {text}{'/' if closed else ''}>\n"


def _near(node: NumaNode, topology: Topology) -> Group:
    """The GPUs and HCAs of a NUMA node."""
    gpus = [gpu for gpu in topology.gpus if gpu.numa == node.id]
    return gpus, [hca for hca in topology.hcas if hca.numa == node.id and hca.bus_id]


def _likely_layout(topology: Topology) -> str:
    """Where the kernel tells of GPUs below a port of their host bridge, that is what it is. Virtual machines hide it:

    Two GPUs with two HCAs share a switch of an HGX A100 board (NDv4), more than two are pairs (NDv5). Where no NUMA node
    has as many of both (NDv2: four GPUs and one HCA, NCv4: GPUs alone) nothing tells what lies together.

    One whole NUMA node decides for all, so that a GPU that is missing does not change what is said of the others.
    """
    if any(switch_of(gpu) for gpu in topology.gpus):
        return _KNOWN
    near = [_near(node, topology) for node in topology.nodes]
    even = [len(gpus) for gpus, hcas in near if gpus and len(gpus) == len(hcas)]
    return "none" if not even else "pair" if max(even) > 2 else "numa"


def _groups(node: NumaNode, topology: Topology, layout: str) -> list[Group]:
    """What of a NUMA node lies below one PCIe switch. A group of one device needs none."""
    gpus, hcas = _near(node, topology)
    if layout == "none":
        return [*(([gpu], []) for gpu in gpus), *(([], [hca]) for hca in hcas)]
    if layout == "numa":
        return [(gpus, hcas)] if gpus or hcas else []
    nearest = nearest_hcas(topology) if layout == "pair" else {}
    groups: dict[t.Hashable, Group] = {}
    for gpu in gpus:
        hca = nearest.get(gpu.index)
        near = hca if hca in hcas else None
        groups.setdefault(near or (layout == _KNOWN and switch_of(gpu)) or gpu, ([], []))[0].append(gpu)
    for hca in hcas:
        groups.setdefault((layout == _KNOWN and switch_of(hca)) or hca, ([], []))[1].append(hca)
    return list(groups.values())


def _devices(group: Group, depth: int, link: t.Mapping[str, t.Any]) -> list[str]:
    """The elements of a group's devices, the GPUs first."""
    gpus, hcas = group
    devices = [(gpu.bus_id, _GPU) for gpu in gpus] + [(hca.bus_id, _INFINIBAND) for hca in hcas]
    return [_element(depth, "pci", {"busid": bus_id, "class": kind, **link}, True) for bus_id, kind in devices]


def nccl_topology(
    topology: Topology, layout: str = "auto", identity: t.Mapping[str, t.Any] | None = None
) -> tuple[str | None, str]:
    """The file's text, or None and the reason."""
    if any(not gpu.bus_id for gpu in topology.gpus):
        return None, "nccl_topology_xml: the PCI addresses of the GPUs are not known"
    if any(gpu.numa == ANYWHERE for gpu in topology.gpus):
        return None, "nccl_topology_xml: the NUMA nodes of the GPUs are not known"
    speeds = {link_speed(gpu.model) for gpu in topology.gpus}
    if len(speeds) != 1 or "" in speeds:
        models = ", ".join(sorted({gpu.model or "?" for gpu in topology.gpus}))
        return None, f"nccl_topology_xml: the PCIe speed of {models} is not known"
    link = {"link_speed": speeds.pop(), "link_width": 16}
    layout = _likely_layout(topology) if layout == "auto" else layout
    width = max(topology.cpus()) + 1
    if width > _MASK_CPUS:
        return None, f"nccl_topology_xml: NCCL reads masks of {_MASK_CPUS} CPUs at most, this node has {width}"
    lines = ['<system version="1">\n']
    bridges = 0
    for node in topology.nodes:
        attributes: dict[str, t.Any] = {"numaid": node.id, "affinity": kernel_mask(node.cpus, width)}
        attributes.update({key: identity[key] for key in _IDENTITY if identity and key in identity})
        groups = _groups(node, topology, layout)
        lines.append(_element(1, "cpu", attributes, closed=not groups))
        for group in groups:
            if len(group[0]) + len(group[1]) == 1:
                lines += _devices(group, 2, link)
                continue
            bridges += 1
            lines.append(_element(2, "pci", {"busid": f"ffff:ff:{bridges:02x}.0", "class": _BRIDGE, **link}, False))
            lines += [*_devices(group, 3, link), "    </pci>\n"]
        if groups:
            lines.append("  </cpu>\n")
    lines.append("</system>\n")
    return "".join(lines), ""


__all__ = ["PCI_SWITCHES", "kernel_mask", "link_speed", "nccl_topology"]
