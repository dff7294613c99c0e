# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The graph file that NCCL reads (``NCCL_GRAPH_FILE``): the order in which each channel goes through the GPUs.

Read in NCCL's src/graph/xml.cc and search.cc: where the file has a graph of an algorithm's number NCCL takes its channels as they
are and searches for none. A GPU in it that the job has not is an error, which ends the job ("XML Import Channel : dev 1 not
found"), and so is a file that is not there.
"""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.topology import Topology
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._ranges import format_ranges

#: The algorithm's number and pattern (src/init.cc, NCCL_TOPO_PATTERN_* of src/include/graph.h), and whose channels it has: ring,
#: balanced tree, and the tree of CollNet.
_GRAPHS = ((0, 4, "rings"), (1, 1, "trees"), (2, 3, "trees"))
Channels = t.Mapping[str, t.Any]


def _path(orders: t.Iterable[t.Sequence[int]], topology: Topology) -> str:
    """NCCL's word for the longest way from a GPU to the next: over the processors' link, or over one processor."""
    numa = {gpu.index: gpu.numa for gpu in topology.gpus}
    far = any(numa[one] != numa[other] for order in orders for one, other in zip(order, order[1:]))
    return "SYS" if far else "PHB"


def _graph(number: int, pattern: int, orders: t.Sequence[t.Sequence[int]], speed: t.Any, path: str) -> list[str]:
    attributes = {
        "id": number,
        "pattern": pattern,
        "crossnic": 0,
        "nchannels": len(orders),
        "speedintra": speed,
        "speedinter": speed,
        "latencyinter": 0,
        "typeintra": path,
        # Without a NIC in the channels it says nothing, but must be there.
        "typeinter": "PIX",
        "samechannels": 0,
    }
    lines = ["  <graph " + " ".join(f'{name}="{value}"' for name, value in attributes.items()) + ">\n"]
    for order in orders:
        # NCCL read decimal numbers first and reads hexadecimal ones now: with 0x it has always been the same number.
        lines += ["    <channel>\n", *(f'      <gpu dev="0x{gpu:x}"/>\n' for gpu in order), "    </channel>\n"]
    return [*lines, "  </graph>\n"]


def nccl_graph(topology: Topology, channels: Channels) -> tuple[str | None, str]:
    """The file's text, or None and the reason. ``channels``: ``rings`` and ``trees``, each a list of orders of all GPUs by index,
    and ``gbytes_s``, what one channel carries."""
    named = sorted({gpu for kind in ("rings", "trees") for order in channels[kind] for gpu in order})
    here = sorted(gpu.index for gpu in topology.gpus)
    if named != here:
        return None, (
            f"nccl_graph_xml: the channels of the profile are for GPU {format_ranges(named)}, and the node has GPU "
            f"{format_ranges(here)}; NCCL ends a job that lacks a GPU of its graph"
        )
    lines = ['<graphs version="1">\n']
    for number, pattern, kind in _GRAPHS:
        orders = channels[kind]
        lines += _graph(number, pattern, orders, channels["gbytes_s"], _path(orders, topology))
    return "".join([*lines, "</graphs>\n"]), ""


__all__ = ["Channels", "nccl_graph"]
