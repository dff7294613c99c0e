# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fleets with faults, as a launch sees them: its bandwidth is that of its slowest member, times what size, tier and chance make of it."""

from __future__ import annotations

import dataclasses
import math
import random
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._attribution.plan import FaultFinder

if t.TYPE_CHECKING:
    from collections.abc import Callable

HANG = 0.0
LEAF_NODES, RACK_NODES = 4, 8


def names(count: int) -> list[str]:
    return [f"n{number:04}" for number in range(count)]


@dataclasses.dataclass
class Fleet:
    """``slow``: node -> factor, 0 for one that hangs. ``links``: factor where both take part. ``leaves``: factor of what leaves a leaf."""

    nodes: list[str]
    slow: dict[str, float] = dataclasses.field(default_factory=dict)
    links: dict[tuple[str, str], float] = dataclasses.field(default_factory=dict)
    leaves: dict[str, float] = dataclasses.field(default_factory=dict)
    noise: float = 0.01
    seed: int = 0
    #: What a launch over several leaves has of the bandwidth within one.
    tier: float = 0.95
    noisy: Callable[[random.Random, float], float] = lambda chance, noise: chance.gauss(0, noise)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"fleet {self.seed}")
        self.spread = {node: max(0.97, 1 - abs(self.chance.gauss(0, 0.005))) for node in self.nodes}
        self.topology = {
            node: {"leaf": f"l{at // LEAF_NODES}", "rack": f"r{at // RACK_NODES}"} for at, node in enumerate(self.nodes)
        }

    def expected(self) -> float:
        """GB/s of all nodes together: rings lose a little with every doubling."""
        return self.healthy(len(self.nodes), True)

    def healthy(self, size: int, crosses: bool) -> float:
        return 400 * (1 - 0.01 * math.log2(max(size, 2))) * (self.tier if crosses else 1.0)

    def speed(self, nodes: t.Sequence[str]) -> float:
        """The share of a healthy launch's bandwidth."""
        inside = set(nodes)
        speed = min(self.spread[node] * self.slow.get(node, 1.0) for node in nodes)
        speed = min([speed, *(factor for ends, factor in self.links.items() if inside.issuperset(ends))])
        leaves = {self.topology[node]["leaf"] for node in nodes}
        if len(leaves) > 1:
            speed = min([speed, *(factor for leaf, factor in self.leaves.items() if leaf in leaves)])
        return speed

    def measure(self, nodes: t.Sequence[str], samples: int) -> list[float] | None:
        speed = self.speed(nodes)
        if speed == HANG:
            return None
        crosses = len({self.topology[node]["leaf"] for node in nodes}) > 1
        value = self.healthy(len(nodes), crosses) * speed
        return [value * max(0.05, 1 + self.noisy(self.chance, self.noise)) for _sample in range(samples)]


class Seen(t.NamedTuple):
    bad: set[str]
    links: set[frozenset[str]]
    domains: set[str]
    unknown: set[str]
    rounds: int
    launches: int
    node_launches: int
    verdict: dict[str, t.Any]


def check(fleet: Fleet, topology: bool = True, expected: bool = True, **options: t.Any) -> Seen:
    """Run a check to its end. Where the planner knows no places, they make no difference to healthy launches."""
    fleet.tier = 0.95 if topology else 1.0
    finder = FaultFinder(
        fleet.nodes,
        topology=fleet.topology if topology else None,
        expected_gbytes_s=fleet.expected() if expected else None,
        **options,
    )
    node_launches = 0
    while launches := finder.next_round():
        busy = [node for launch in launches for node in launch.nodes]
        assert len(busy) == len(set(busy)), "a node is in two launches of a round"
        node_launches += len(busy)
        for launch in launches:
            finder.record(launch.nodes, fleet.measure(launch.nodes, launch.samples))
    return seen(finder, node_launches)


def seen(finder: FaultFinder, node_launches: int = 0) -> Seen:
    verdict = finder.verdict()
    return Seen(
        bad={one["node"] for one in verdict["bad_nodes"]},
        links={frozenset(one["between"]) for one in verdict["bad_links"]},
        domains={one["domain"] for one in verdict["bad_domains"]},
        unknown={one["node"] for one in verdict["unknown"]},
        rounds=verdict["rounds"],
        launches=verdict["launches"],
        node_launches=node_launches,
        verdict=verdict,
    )
