# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Cut names into buckets that the service itself can list: all names of one directory that begin with one prefix.

AzCopy hands a pattern to the service as a prefix only if it is a single one, ends in its only ``*``, and the copy is not
recursive. Then it lists just those blobs; with every other pattern each rank lists the whole container.
"""

from __future__ import annotations

import heapq
import itertools
import typing as t
from bisect import bisect_right

_NOT_IN_A_PREFIX = frozenset("*?[]\\;")


class Bucket(t.NamedTuple):
    """The blobs of ``directory`` (without its subdirectories) that ``pattern`` selects. ``members`` index the names."""

    directory: str  # "" or ending in "/"
    pattern: str  # a prefix and "*"
    members: list[int]
    weight: float


def prefix_buckets(names: t.Sequence[str], weights: t.Sequence[float], wanted: int) -> tuple[list[Bucket], list[int]]:
    """At least ``wanted`` buckets where the names allow, the heaviest cut first, and the names that fit in none.

    Buckets are disjoint and in the order of directory and prefix. A name fits in none where the prefix it would need
    holds a character with a meaning in patterns; such names need a file list.
    """
    keys = [_split(name) for name in names]
    order = sorted(range(len(names)), key=keys.__getitem__)
    directories, files = [keys[index][0] for index in order], [keys[index][1] for index in order]
    sums = [0.0, *itertools.accumulate(weights[index] for index in order)]
    final: list[tuple[int, int, str]] = []
    # The heaviest range of names is on top; a range knows the prefix that selects it.
    heap: list[tuple[float, int, int, str]] = []
    start = 0
    while start < len(order):
        stop = bisect_right(directories, directories[start], lo=start)
        heapq.heappush(heap, (sums[start] - sums[stop], start, stop, ""))
        start = stop
    while heap and len(heap) + len(final) < wanted:
        _weight, start, stop, prefix = heapq.heappop(heap)
        parts = _cut(files, start, stop)
        if len(parts) < 2:
            final.append((start, stop, prefix))
        for low, high, longer in parts if len(parts) > 1 else ():
            heapq.heappush(heap, (sums[low] - sums[high], low, high, longer))
    buckets: list[Bucket] = []
    left: list[int] = []
    for start, stop, prefix in sorted(final + [entry[1:] for entry in heap]):
        members = sorted(order[start:stop])
        if _NOT_IN_A_PREFIX.isdisjoint(prefix):
            buckets.append(Bucket(directories[start], f"{prefix}*", members, sums[stop] - sums[start]))
        else:
            left += members
    return buckets, sorted(left)


def _cut(files: list[str], start: int, stop: int) -> list[tuple[int, int, str]]:
    """Cut sorted names where they first differ; one part where a name is the beginning of all the others."""
    first, last = files[start], files[stop - 1]
    place = next((place for place, pair in enumerate(zip(first, last)) if pair[0] != pair[1]), len(first))
    if place == len(first):
        return []
    parts: list[tuple[int, int, str]] = []
    while start < stop:
        low, high = start, stop
        character = files[start][place]
        while low < high:
            middle = (low + high) // 2
            if files[middle][place] > character:
                high = middle
            else:
                low = middle + 1
        parts.append((start, low, first[:place] + character))
        start = low
    return parts


def _split(name: str) -> tuple[str, str]:
    directory, slash, file = name.rpartition("/")
    return directory + slash, file


__all__ = ["Bucket", "prefix_buckets"]
