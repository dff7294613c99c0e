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

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.topology import Topology
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._ranges import format_ranges

#: The algorithm's number and pattern (src/init.cc, NCCL_TOPO_PATTERN_* of src/include/graph.h), and whose channels it has: ring,
#: balanced tree, and the tree of CollNet.
_GRAPHS = ((0, 4, "rings"), (1, 1, "trees"), (2, 3, "trees"))
#: MAXCHANNELS of NCCL's headers at its smallest: those of the file are written into arrays of so many, and nobody counts them.
_MOST = 32
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


def _bad(what: str, value: t.Any) -> ClusterError:
    return ClusterError(
        "bad_input",
        f"`profile`: `channels` of its NCCL settings: {what}, not {value!r}.",
        "Correct the profile: `rings` and `trees` are lists of orders of all GPUs by index, `gbytes_s` is a number.",
    )


def _gpus_of(channels: t.Any) -> list[int]:
    """The GPUs by index that all channels go through. Raises ClusterError where it is not so: NCCL believes its file."""
    if not isinstance(channels, t.Mapping):
        raise _bad("it is a mapping", channels)
    speed = channels.get("gbytes_s")
    if isinstance(speed, bool) or not isinstance(speed, (int, float)) or speed <= 0:
        raise _bad("`gbytes_s` is a number above 0", speed)
    found: list[list[int]] = []
    for kind in ("rings", "trees"):
        orders = channels.get(kind)
        if not isinstance(orders, list) or not 0 < len(orders) <= _MOST:
            raise _bad(f"`{kind}` is a list of 1 to {_MOST} orders", orders)
        for order in orders:
            if not isinstance(order, list) or any(type(gpu) is not int or gpu < 0 for gpu in order):
                raise _bad(f"an order of `{kind}` is a list of GPUs by index", order)
            found.append(sorted(order))
            if found[-1] != found[0] or len(set(order)) != len(order):
                raise _bad(f"each order of `{kind}` has the same GPUs, and each of them once", order)
    return found[0]


def nccl_graph(topology: Topology, channels: Channels) -> tuple[str | None, str]:
    """The file's text, or None and the reason. ``channels``: ``rings`` and ``trees``, each a list of orders of all GPUs by index,
    and ``gbytes_s``, what one channel carries. Raises ClusterError for channels that are none."""
    named = _gpus_of(channels)
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
