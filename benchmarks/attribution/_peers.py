# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What others do, modelled from their documents and published code: one sample, and one threshold for all sizes.

Each takes a fleet and gives the nodes that it names. The threshold is 94 % of what a healthy launch of that size has, which flatters
them: they have one number for all sizes.
"""

from __future__ import annotations

import typing as t

from _fleets import Fleet

FLOOR = 0.94


def fast(fleet: Fleet, nodes: t.Sequence[str]) -> bool:
    found = fleet.measure(nodes)
    leaves = len({fleet.leaf_of[node] for node in nodes})
    return found is not None and found[0] >= FLOOR * fleet.healthy(len(nodes), leaves)


def one_round(fleet: Fleet, parties: t.Iterable[t.Sequence[str]]) -> list[tuple[t.Sequence[str], bool]]:
    fleet.rounds += 1
    return [(nodes, fast(fleet, nodes)) for nodes in parties]


def all_pairs(fleet: Fleet) -> set[str]:
    """SuperBench's pair-wise pattern: the circle method, n - 1 rounds. Bad is whose pairs were mostly slow."""
    circle, slow = list(fleet.nodes), dict.fromkeys(fleet.nodes, 0)
    half = len(circle) // 2
    for _round in range(len(circle) - 1):
        for pair, good in one_round(fleet, zip(circle[:half], reversed(circle[half:]))):
            for node in pair:
                slow[node] += not good
        circle.insert(1, circle.pop())
    return {node for node, count in slow.items() if 2 * count > len(circle)}


def two_passes(fleet: Fleet) -> set[str]:
    """Google's cluster health scanner: random pairs, then suspects with nodes that passed."""
    order = list(fleet.nodes)
    fleet.chance.shuffle(order)
    first = one_round(fleet, zip(order[::2], order[1::2]))
    good = [node for pair, passed in first if passed for node in pair]
    suspects = [node for pair, passed in first if not passed for node in pair]
    named: set[str] = set()
    for start in range(0, len(suspects), max(len(good), 1)):
        pairs = list(zip(suspects[start:], good))
        named.update(pair[0] for pair, passed in one_round(fleet, pairs) if not passed)
    return named


def bisection(fleet: Fleet) -> set[str]:
    """Halve what is slow until single nodes are left, each launched with a node that passed."""
    slow: list[t.Sequence[str]] = [fleet.nodes] if not one_round(fleet, [fleet.nodes])[0][1] else []
    good: list[str] = []
    while any(len(nodes) > 2 for nodes in slow):
        parts = [part for nodes in slow for part in (nodes[: len(nodes) // 2], nodes[len(nodes) // 2 :])]
        ended = one_round(fleet, [part for part in parts if len(part) > 1])
        good += [node for nodes, passed in ended if passed for node in nodes]
        slow = [nodes for nodes, passed in ended if not passed]
    return confirmed(fleet, [node for nodes in slow for node in nodes], good)


def staged(fleet: Fleet) -> set[str]:
    """NVIDIA's cluster-readiness-engine 0.7.0, ``diagnose``: groups, halves in parallel, one confirmation. Groups of the square root."""
    size = max(2, round(fleet.count**0.5))
    slow: list[t.Sequence[str]] = [fleet.nodes[start : start + size] for start in range(0, fleet.count, size)]
    good: list[str] = []
    suspects: list[str] = []
    while slow:
        ended = one_round(fleet, [nodes for nodes in slow if len(nodes) > 1])
        good += [node for nodes, passed in ended if passed for node in nodes]
        failed = [nodes for nodes, passed in ended if not passed]
        suspects += [node for nodes in failed if len(nodes) == 2 for node in nodes]
        slow = [
            part for nodes in failed if len(nodes) > 2 for part in (nodes[: len(nodes) // 2], nodes[len(nodes) // 2 :])
        ]
    return confirmed(fleet, suspects, good)


def confirmed(fleet: Fleet, suspects: list[str], good: list[str]) -> set[str]:
    if not suspects or not good:
        return set()
    pairs = [(node, good[at % len(good)]) for at, node in enumerate(suspects)]
    return {pair[0] for pair, passed in one_round(fleet, pairs) if not passed}


PEERS = {"all pairs": all_pairs, "two passes": two_passes, "bisection": bisection, "staged bisection": staged}
