# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The topology file that NCCL reads (``NCCL_TOPO_FILE``): system, cpu and pci elements.

Read in NCCL's src/graph/xml.cc: NCCL looks up every device by its busid, keeps the place that the file gives it, and adds
the elements gpu, nic and net below it by itself, from NVML and sysfs; the same goes for attributes of cpu that are absent.
A bridge that does not exist (domain ffff) stands for the PCIe switch that virtual machines hide, and must bring its own
link_speed. GPU and HCA below one switch is what permits GPUDirect RDMA at NCCL's default distance.
"""

from __future__ import annotations

# Not xml.sax: importing it takes a node ten times as long.
import html
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.topology import (
    ANYWHERE,
    Gpu,
    Hca,
    NumaNode,
    Topology,
)

PCI_SWITCHES = ("auto", "numa", "pair")
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


def _switches(node: NumaNode, topology: Topology, layout: str) -> list[tuple[list[Gpu], list[Hca]]]:
    """What lies below each PCIe switch of a NUMA node."""
    gpus = [gpu for gpu in topology.gpus if gpu.numa == node.id]
    hcas = [hca for hca in topology.hcas if hca.numa == node.id and hca.bus_id]
    if layout == "auto":
        # Two GPUs with two HCAs share a switch of an HGX A100 board (NDv4); more than two are pairs (NDv5).
        layout = "pair" if len(gpus) > 2 and len(gpus) == len(hcas) else "numa"
    if layout == "pair":
        pairs = [(gpus[at : at + 1], hcas[at : at + 1]) for at in range(max(len(gpus), len(hcas)))]
        return [pair for pair in pairs if any(pair)]
    return [(gpus, hcas)] if gpus or hcas else []


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
    width = max(topology.cpus()) + 1
    lines = ['<system version="1">\n']
    bridges = 0
    for node in topology.nodes:
        attributes: dict[str, t.Any] = {"numaid": node.id, "affinity": kernel_mask(node.cpus, width)}
        attributes.update({key: identity[key] for key in _IDENTITY if identity and key in identity})
        groups = _switches(node, topology, layout)
        lines.append(_element(1, "cpu", attributes, closed=not groups))
        for gpus, hcas in groups:
            bridges += 1
            lines.append(_element(2, "pci", {"busid": f"ffff:ff:{bridges:02x}.0", "class": _BRIDGE, **link}, False))
            devices = [(gpu.bus_id, _GPU) for gpu in gpus] + [(hca.bus_id, _INFINIBAND) for hca in hcas]
            for bus_id, kind in devices:
                lines.append(_element(3, "pci", {"busid": bus_id, "class": kind, **link}, True))
            lines.append("    </pci>\n")
        if groups:
            lines.append("  </cpu>\n")
    lines.append("</system>\n")
    return "".join(lines), ""


__all__ = ["PCI_SWITCHES", "kernel_mask", "link_speed", "nccl_topology"]
