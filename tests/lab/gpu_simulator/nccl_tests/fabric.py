# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How fast a collective is over simulated nodes: pure, from what each rank knows of its node.

A collective is as fast as its slowest member. The figures are those of the machine types; what a fault makes of them is the lab's word.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
from typing import NamedTuple

#: Busbw of all-reduce inside one node, GB/s. A100: SuperBench 0.4, baseline of NDv4 at 8 GiB. H100: azurehpc-health-checks 0.4.5,
#: conf/nd96isr_h100_v5.conf. H200: sichek, one node. Another model: of this order.
NODE_GBYTES_S = {"NVIDIA A100-SXM4": 235.0, "NVIDIA H100": 460.0, "NVIDIA H200": 470.0}
ANY_NODE_GBYTES_S = 100.0
#: What is left of an adapter's line rate. NVIDIA's cluster-readiness-engine documents 40.2 and 79.1 GB/s for the all-to-all of two
#: nodes with 200 and 400 Gbit/s per GPU; ``network_gbytes_s`` makes 44 and 88 of these.
EFFICIENCY = 0.94
#: Over sockets, for a whole node: of the order that a 40 Gbit/s interface gives.
SOCKET_GBYTES_S = 3.0
#: A bad link or leaf, and a GPU at its power cap (the simulated nvidia-smi has its clock at 1005 MHz then).
BAD = 0.5
POWER_CAP_MHZ = 1005
#: Each doubling of the nodes costs a little, and adds to the time of the smallest message.
PER_DOUBLING, LATENCY_S, LATENCY_PER_DOUBLING_S = 0.99, 20e-6, 5e-6
NOISE, MOST_NOISE = 0.003, 0.01


class Device(NamedTuple):
    """A GPU with CUDA's number; ``bus_id``: ``0001:00:00.0``."""

    number: int
    bus_id: str
    name: str
    memory_bytes: int


@dataclasses.dataclass(frozen=True)
class Member:
    """What a rank tells the others. ``factor``: its GPUs' and node's share of full speed; ``leaf`` only where it is bad."""

    host: str
    pid: int
    devices: tuple[Device, ...]
    hca_gbps: tuple[int, ...]
    factor: float = 1.0
    slow_links: tuple[str, ...] = ()
    bad_leaf: str = ""
    wrong: int = 0
    sockets: bool = False

    def pack(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode()

    @classmethod
    def unpack(cls, data: bytes) -> Member:
        told = json.loads(data)
        told["devices"] = [Device(*device) for device in told["devices"]]
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in told.items()})


@dataclasses.dataclass(frozen=True)
class Collective:
    """One of nccl-tests' programs; ``busbw_factor``: doc/PERFORMANCE.md, for n ranks."""

    name: str
    redop: str
    per_rank: bool  # whether its count is of one rank's part

    def busbw_factor(self, ranks: int) -> float:
        return (2 if self.name == "all_reduce" else 1) * (ranks - 1) / ranks

    def count(self, size: int, ranks: int) -> int:
        """Elements of float; parts of a rank begin at 16 bytes."""
        return (size // 4 // ranks) & ~3 if self.per_rank else size // 4


COLLECTIVES = {
    "all_reduce_perf": Collective("all_reduce", "sum", per_rank=False),
    "all_gather_perf": Collective("all_gather", "none", per_rank=True),
    "alltoall_perf": Collective("alltoall", "none", per_rank=True),
}


def hosts(members: list[Member]) -> dict[str, list[Member]]:
    found: dict[str, list[Member]] = {}
    for member in members:
        found.setdefault(member.host, []).append(member)
    return found


def network_gbytes_s(members: list[Member], collective: Collective) -> float:
    """Busbw over several nodes, each GPU beside its share of the adapters.

    A ring leaves a node once, over all of them: their sum. All-to-all: of the n - 1 parts that a rank sends, n - g leave its node, of
    which g ranks share the adapters; so busbw = its share of them times (n - 1) / (n - g).
    """
    nodes = hosts(members).values()
    ranks = sum(len(member.devices) for member in members)
    rates = []
    for node in nodes:
        used = sum(len(member.devices) for member in node)
        adapters = node[0].hca_gbps
        rate = sum(adapters[:used]) / 8 * EFFICIENCY
        if any(member.sockets for member in members) or not adapters:
            rate = SOCKET_GBYTES_S
        rates.append(rate / used * (ranks - 1) / (ranks - used) if collective.name == "alltoall" else rate)
    return min(rates)


def peak_gbytes_s(members: list[Member], collective: Collective) -> float:
    nodes = len(hosts(members))
    if nodes > 1:
        return network_gbytes_s(members, collective) * PER_DOUBLING ** math.log2(nodes)
    model = members[0].devices[0].name
    return next((rate for name, rate in NODE_GBYTES_S.items() if model.startswith(name)), ANY_NODE_GBYTES_S)


def share_left(members: list[Member]) -> float:
    """What faults leave of full speed."""
    share = min(member.factor for member in members)
    names = set(hosts(members))
    if any(name in names for member in members for name in member.slow_links):
        share = min(share, BAD)
    leaves = {member.bad_leaf for member in members}
    return min(share, BAD) if len(leaves) > 1 else share


def seconds(members: list[Member], collective: Collective, size: int, sample: object) -> float:
    """The time of one operation. The same launch measures the same every time; its sizes, cycles and columns (``sample``) differ."""
    ranks = sum(len(member.devices) for member in members)
    doublings = math.log2(len(hosts(members)))
    healthy = LATENCY_S + doublings * LATENCY_PER_DOUBLING_S
    healthy += size / 1e9 * collective.busbw_factor(ranks) / peak_gbytes_s(members, collective)
    noise = random.Random(f"{sorted(hosts(members))} {collective.name} {size} {sample}").gauss(0, NOISE)
    return healthy / share_left(members) / (1 + min(max(noise, -MOST_NOISE), MOST_NOISE))


def most_bytes(members: list[Member], check: bool) -> int:
    """How large a message may be: src/common.cu, ``memMaxBytes``."""
    gib = 1 << 30
    memory = min(device.memory_bytes for member in members for device in member.devices)
    reserve = min(math.ceil(memory / (16 * gib)) * gib, 4 * gib)
    return (memory - reserve - gib) // (3 if check else 2)
