# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Who is launched with whom: near nodes first, because a pair that stays below one leaf says nothing bad about the fabric above it."""

from __future__ import annotations

import math
import random
import statistics
import typing as t

Pair = tuple[str, str]


class Topology:
    """Which nodes share a leaf, a rack, and whatever else the inventory knows."""

    def __init__(self, places: t.Mapping[str, t.Mapping[str, t.Any]], nodes: t.Sequence[str]) -> None:
        self._places = {node: {key: str(value) for key, value in places.get(node, {}).items()} for node in nodes}
        sizes = {
            key: self._typical_size(key, nodes)
            for key in dict.fromkeys(key for place in self._places.values() for key in place)
        }
        #: Narrowest first.
        self.keys = sorted(sizes, key=lambda key: (sizes[key], key))

    def _typical_size(self, key: str, nodes: t.Sequence[str]) -> float:
        return statistics.median(len(members) for members in self.domains(key, nodes).values())

    def domains(self, key: str, nodes: t.Iterable[str]) -> dict[str, list[str]]:
        """``key=value`` and the nodes that are there."""
        found: dict[str, list[str]] = {}
        for node in nodes:
            if key in self._places[node]:
                found.setdefault(f"{key}={self._places[node][key]}", []).append(node)
        return found

    def _place(self, item: str, key: str) -> str:
        """Where an item is: in a place of its own if that is not known, and everything in one without a key."""
        return self._places.get(item, {}).get(key, item) if key else ""

    def spanned(self, nodes: t.Iterable[str]) -> tuple[str, ...]:
        """The keys in which these nodes differ: traffic between them takes another tier of the network."""
        places = [self._places[node] for node in nodes]
        return tuple(key for key in self.keys if len({place.get(key) for place in places}) > 1)

    def shuffled(self, nodes: t.Iterable[str], chance: random.Random) -> list[str]:
        """In random order, but neighbors stay together."""
        order = sorted(nodes)
        chance.shuffle(order)
        return sorted(order, key=lambda node: tuple(self._places[node].get(key, "") for key in reversed(self.keys)))

    def partners(self, wanting: t.Sequence[str], good: t.Sequence[str], met: t.Container[frozenset[str]]) -> list[Pair]:
        """Each of ``wanting`` with another of ``good`` that it has not met, as near as can be; who finds none, with one like it."""
        pairs: list[Pair] = []
        free = dict.fromkeys(good)
        left = list(wanting)
        for key in [*self.keys, ""]:
            pools: dict[str, list[str]] = {}
            for node in free:
                pools.setdefault(self._place(node, key), []).append(node)
            unmatched = []
            for node in left:
                partner = _take(node, pools.get(self._place(node, key), []), met)
                if partner is None:
                    unmatched.append(node)
                else:
                    del free[partner]
                    pairs.append((node, partner))
            left = unmatched
        while left:
            node = left.pop(0)
            partner = _take(node, left, met)
            if partner is not None:
                pairs.append((node, partner))
        return pairs

    def controls(self, like: Pair, free: t.Sequence[str], wanted: int) -> list[Pair]:
        """Pairs of good nodes that span what ``like`` spans: what its launch is compared with."""
        spanned = self.spanned(like)
        left = list(free)
        pairs: list[Pair] = []
        for _node in range(4 * wanted):  # there need not be any
            if len(left) < 2 or len(pairs) == wanted:
                break
            node = left.pop()
            other = next((one for one in left if self.spanned((node, one)) == spanned), None)
            if other is not None:
                left.remove(other)
                pairs.append((node, other))
        return pairs


def _take(node: str, pool: list[str], met: t.Container[frozenset[str]]) -> str | None:
    for index in range(len(pool) - 1, -1, -1):
        if pool[index] != node and frozenset((node, pool[index])) not in met:
            return pool.pop(index)
    return None


def group_size(nodes: int) -> int:
    """Nodes per group of the first screen.

    With one bad node n / g groups and g members are launched, least at g = sqrt(n); with many, small groups leave more nodes proven
    good: at g = 4 two thirds where 10 % are bad. So it is sqrt(n) / 2, and less while 64 groups are enough.
    """
    return 2 if nodes < 64 else max(4, min(nodes // 64, round(math.sqrt(nodes) / 2)))


def groups(order: t.Sequence[str], size: int) -> list[tuple[str, ...]]:
    """Neighbors together, in groups of about ``size``. A pair is exactly two, and who is left over waits for the next round."""
    if size == 2:
        return list(zip(order[::2], order[1::2]))
    count = max(len(order) // size, 1)
    return [tuple(order[len(order) * part // count : len(order) * (part + 1) // count]) for part in range(count)]


def tournament(nodes: t.Sequence[str]) -> t.Iterator[list[Pair]]:
    """All pairs in as few rounds as can be: the circle method."""
    circle: list[str | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    for _round in range(len(circle) - 1):
        half = len(circle) // 2
        yield [(a, b) for a, b in zip(circle[:half], reversed(circle[half:])) if a is not None and b is not None]
        circle.insert(1, circle.pop())
