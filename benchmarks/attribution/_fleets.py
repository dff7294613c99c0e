# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fleets with faults. A launch has the bandwidth of its slowest member, times what chance makes of it.

``tuned``: normal noise, as in the unit tests. ``held_out``: noise with heavy tails (Student's t, 4 degrees of freedom, of the same standard
deviation), part of which all samples of a launch share, and other seeds. The planner has never been changed for what these gave.
"""

from __future__ import annotations

import dataclasses
import math
import random
import typing as t

LEAF_NODES, RACK_NODES = 16, 64
FACTORS = (0.0, 0.45, 0.6, 0.8, 0.88)  # 0: it hangs


@dataclasses.dataclass
class Fleet:
    """``slow``: node -> factor. ``link``: two nodes and a factor. ``leaf``: its name and a factor."""

    count: int
    noise: float
    seed: int
    held_out: bool
    slow: dict[str, float] = dataclasses.field(default_factory=dict)
    link: tuple[frozenset[str], float] | None = None
    leaf: tuple[str, float] | None = None
    launches: int = 0
    rounds: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.held_out} {self.count} {self.seed}")
        self.nodes = [f"n{number:04}" for number in range(self.count)]
        self.leaf_of = {node: f"leaf={at // LEAF_NODES}" for at, node in enumerate(self.nodes)}
        self.spread = {node: 1 - abs(self.chance.gauss(0, 0.005)) for node in self.nodes}
        self.topology = {
            node: {"leaf": str(at // LEAF_NODES), "rack": str(at // RACK_NODES)} for at, node in enumerate(self.nodes)
        }

    def healthy(self, size: int, leaves: int = 2) -> float:
        return 400 * (1 - 0.01 * math.log2(max(size, 2))) * (0.97 if leaves > 1 else 1.0)

    def measure(self, nodes: t.Sequence[str], samples: int = 1) -> list[float] | None:
        """GB/s of each sample; None if it hangs."""
        self.launches += 1
        speed = min(self.spread[node] * self.slow.get(node, 1.0) for node in nodes)
        leaves = {self.leaf_of[node] for node in nodes}
        if self.link and self.link[0].issubset(nodes):
            speed = min(speed, self.link[1])
        if self.leaf and self.leaf[0] in leaves and len(leaves) > 1:
            speed = min(speed, self.leaf[1])
        if speed == 0:
            return None
        value = self.healthy(len(nodes), len(leaves)) * speed
        if not self.held_out:
            return [value * (1 + self.chance.gauss(0, self.noise)) for _sample in range(samples)]
        shared = 0.3 * self.noise * self.chance.gauss(0, 1)
        return [value * max(0.1, 1 + shared + 0.95 * self.noise * self._tailed()) for _sample in range(samples)]

    def _tailed(self) -> float:
        """Student's t with 4 degrees of freedom, whose variance is 2, scaled to 1."""
        square = sum(self.chance.gauss(0, 1) ** 2 for _one in range(4)) / 4
        return self.chance.gauss(0, 1) / math.sqrt(square) / math.sqrt(2)


def with_bad_nodes(count: int, bad: int, noise: float, seed: int, held_out: bool) -> Fleet:
    fleet = Fleet(count, noise, seed, held_out)
    fleet.slow = {node: fleet.chance.choice(FACTORS) for node in fleet.chance.sample(fleet.nodes, bad)}
    return fleet


def with_bad_link(count: int, noise: float, seed: int, held_out: bool) -> Fleet:
    fleet = Fleet(count, noise, seed, held_out)
    fleet.link = frozenset(fleet.chance.sample(fleet.nodes, 2)), fleet.chance.choice(FACTORS)
    return fleet


def with_bad_leaf(count: int, noise: float, seed: int, held_out: bool) -> Fleet:
    fleet = Fleet(count, noise, seed, held_out)
    fleet.leaf = fleet.chance.choice(sorted(set(fleet.leaf_of.values()))), fleet.chance.choice(FACTORS[1:])
    return fleet
