# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Which HCA is nearest to which GPU, and which devices lie below one PCIe switch. Pure.

By the chains of bridges that the kernel tells first, then by NUMA node, then by host bridge: ``nvidia-smi topo -m`` calls these
PIX and PXB, NODE, and PHB. Virtual machines hide switches: there NUMA nodes decide, and the order of addresses.
"""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.topology import (
    Device,
    Gpu,
    Hca,
    Topology,
    shared_bridges,
)


def switch_of(device: Device) -> tuple[str, ...]:
    """What is the same for all devices below one port of the host bridge; empty where the kernel tells no such port."""
    return device.pci_path[:2] if len(device.pci_path) > 1 else ()


def distance(gpu: Gpu, hca: Hca) -> tuple[int, bool, bool]:
    """Smaller is nearer."""
    return -shared_bridges(gpu, hca), gpu.numa != hca.numa, gpu.pci_path[:1] != hca.pci_path[:1]


def nearest_hcas(topology: Topology) -> dict[int, Hca]:
    """The HCA of each GPU, by index; empty without HCAs. GPUs that have several equally near share them evenly, in order.

    Of those one that lies below a switch with a GPU comes first: a port away from all GPUs, as fast as the others, is for storage.
    """
    beside = {hca for hca in topology.hcas if any(shared_bridges(gpu, hca) for gpu in topology.gpus)}
    sharers: dict[tuple[int, tuple[Hca, ...]], list[Gpu]] = {}
    for gpu in topology.gpus:
        order = {hca: (distance(gpu, hca), hca not in beside) for hca in topology.hcas}
        least = min(order.values(), default=None)
        near = tuple(hca for hca in topology.hcas if order[hca] == least)
        sharers.setdefault((gpu.numa, near), []).append(gpu)
    chosen = {}
    for (_numa, near), gpus in sharers.items():
        for position, gpu in enumerate(gpus if near else ()):
            bridges, other_numa, _other_bridge = distance(gpu, near[0])
            # Of HCAs that are all far away they take turns.
            place = gpu.index % len(near) if not bridges and other_numa else position * len(near) // len(gpus)
            chosen[gpu.index] = near[place]
    return chosen


__all__ = ["distance", "nearest_hcas", "switch_of"]
