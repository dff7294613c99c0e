# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Exact partitions of files over ranks, and of a rank's share into batches.

Every planner here puts each item into exactly one share, whatever the number of ranks, and gives the same answer for
the same input on every machine. Shares are indexes into what the caller has; a rank without work gets an empty one.
"""

from __future__ import annotations

import heapq
import itertools
import typing as t
from array import array
from bisect import bisect_left, bisect_right

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

# What a file costs besides its bytes: request, create, rename. 5 ms is the middle of the 2-10 ms seen on local disks.
DEFAULT_SECONDS_PER_FILE = 0.005
# 6 Gb/s, what one virtual NIC without accelerated networking pulls from Blob storage.
DEFAULT_BYTES_PER_SECOND = 750e6

DEFAULT_BATCH_SECONDS = 60.0
# 16 hours of batches of a minute each; a share that takes longer gets longer ones.
MAX_BATCHES_PER_RANK = 1000

# A plan this close to the ideal is not improved any further; its estimates of seconds are coarser by far.
_GOOD_ENOUGH = 1.0001
_EXCHANGES = 4
_TRIES = 32
# Weights that are sorted at once, and how many are drawn to tell where to cut more than these.
_SORTED_AT_ONCE = 1 << 20
_DRAWN = 1 << 12

_Weight = t.Union[int, float]


class ShardPlan(t.NamedTuple):
    """``shares[rank]`` are indexes in ascending order, ``loads[rank]`` the sums of their weights."""

    shares: list[array[int]]
    loads: list[float]
    ideal: float
    imbalance: float  # max(loads) / ideal; 1.0 is perfect


def file_seconds(
    sizes: t.Iterable[int],
    bytes_per_second: float = DEFAULT_BYTES_PER_SECOND,
    seconds_per_file: float = DEFAULT_SECONDS_PER_FILE,
) -> array[float]:
    """The estimated seconds of each file on one rank. Bytes alone would let a share of small files finish last."""
    if bytes_per_second <= 0 or seconds_per_file < 0:
        raise ClusterError(
            "bad_input",
            f"A rate of {bytes_per_second} bytes/s and {seconds_per_file} s per file cannot weigh a file.",
            "Give a rate above zero and a cost of zero or more.",
        )
    per_byte = 1.0 / bytes_per_second
    return array("d", (size * per_byte + seconds_per_file for size in sizes))


def plan_shards(weights: t.Sequence[_Weight], world_size: int) -> ShardPlan:
    """Longest processing time first: the heaviest file left goes to the rank with the least work so far.

    Ties go to the lower rank and the lower index. A rank without files has an empty share.
    """
    _check_world_size(world_size)
    if weights and min(weights) < 0:
        raise ClusterError("bad_input", "A file has a negative weight.", "Give sizes of zero bytes or more.")
    heaviest_first = _heaviest_first(weights)
    weighty = len(weights)
    if weights and not weights[heaviest_first[-1]]:
        weighty -= sum(1 for weight in weights if not weight)
    shares = [array("I") for _rank in range(world_size)]
    loads = _fill(shares, weights, heaviest_first[:weighty])
    heaviest = float(max(weights, default=0))
    ideal = max(sum(loads) / world_size, heaviest)
    _even_out(shares, loads, weights, ideal)
    # What weighs nothing never raises a load and would pile up on one rank: that is shared out by count.
    counts = [(len(share), rank) for rank, share in enumerate(shares)]
    heapq.heapify(counts)
    for index in itertools.islice(heaviest_first, weighty, None):
        count, rank = counts[0]
        shares[rank].append(index)
        heapq.heapreplace(counts, (count + 1, rank))
    return ShardPlan([array("I", sorted(share)) for share in shares], loads, ideal, imbalance(loads, heaviest))


def _heaviest_first(weights: t.Sequence[_Weight]) -> array[int]:
    """All indexes by weight, equal weights by index.

    A list of them and their weights takes 70 bytes each while it is sorted. So that is done with a part of the weights at a time,
    between marks that are drawn from them; what weighs as much as a mark needs no sorting.
    """
    if len(weights) <= _SORTED_AT_ONCE:
        return array("I", sorted(range(len(weights)), key=weights.__getitem__, reverse=True))
    drawn = sorted(weights[:: max(len(weights) // _DRAWN, 1)])
    marks = sorted(set(drawn[:: max(len(drawn) * _SORTED_AT_ONCE // len(weights), 1)]))
    parts = [array("I") for _part in range(2 * len(marks) + 1)]
    for index, weight in enumerate(weights):
        parts[bisect_left(marks, weight) + bisect_right(marks, weight)].append(index)
    order = array("I")
    while parts:
        part = parts.pop()
        is_mark = len(parts) % 2
        order.extend(part if is_mark else sorted(part, key=weights.__getitem__, reverse=True))
    return order


def _fill(shares: list[array[int]], weights: t.Sequence[_Weight], heaviest_first: array[int]) -> list[float]:
    """Give each file to the rank with the least work so far; returns the loads."""
    ranks = len(shares)
    state: list[tuple[_Weight, int]] = [(0, rank) for rank in range(ranks)]
    replace = heapq.heapreplace
    for start in range(0, len(heaviest_first), ranks):
        block = heaviest_first[start : start + ranks]
        if len(block) == ranks and state[-1][0] - state[0][0] <= weights[block[-1]]:
            # Whoever gets a file now has at least as much as all others had: each rank gets exactly one of this block,
            # and a sort does what a heap would do file by file, twice as fast.
            for (_load, rank), index in zip(state, block):
                shares[rank].append(index)
            state = [(load + weights[index], rank) for (load, rank), index in zip(state, block)]
        else:
            for index in block:
                load, rank = state[0]
                shares[rank].append(index)
                replace(state, (load + weights[index], rank))
        state.sort()
    loads = [0.0] * ranks
    for load, rank in state:
        loads[rank] = float(load)
    return loads


def _even_out(shares: list[array[int]], loads: list[float], weights: t.Sequence[_Weight], ideal: float) -> None:
    """Exchange files between the fullest and the emptiest ranks until none is above the ideal by more than 0.01 %.

    Files of nearly one size leave some ranks with a file more than others; exchanging heavier files for lighter ones
    makes up for it. The shares are sorted by weight, the heaviest file first, and stay so until files are exchanged.
    """
    for _round in range(_EXCHANGES):
        order = sorted(range(len(loads)), key=lambda rank: (loads[rank], rank))
        changed = False
        for low, high in zip(order[: len(order) // 2], reversed(order)):
            if loads[high] <= ideal * _GOOD_ENOUGH:
                break
            changed |= _exchange(shares, loads, weights, high, low)
        if not changed:
            return


def _exchange(shares: list[array[int]], loads: list[float], weights: t.Sequence[_Weight], high: int, low: int) -> bool:
    """Move half of the difference from rank ``high`` to rank ``low``, heaviest against lightest, then the best fit."""
    excess = (loads[high] - loads[low]) / 2
    givers = sorted(shares[high], key=weights.__getitem__, reverse=True)
    takers = sorted(shares[low], key=weights.__getitem__)
    moved: float = 0
    place = 0
    while place < min(len(givers), len(takers)):
        step = weights[givers[place]] - weights[takers[place]]
        if step <= 0 or moved + step > excess:
            break
        givers[place], takers[place] = takers[place], givers[place]
        moved += step
        place += 1
    lightest_first = [weights[index] for index in takers]
    best: float = 0
    chosen = (0, 0)
    for giver in range(place, min(place + _TRIES, len(givers))):
        weight = weights[givers[giver]]
        taker = bisect_left(lightest_first, weight - (excess - moved), place)
        if taker < len(takers) and best < weight - lightest_first[taker] <= excess - moved:
            best, chosen = weight - lightest_first[taker], (giver, taker)
    if best:
        giver, taker = chosen
        givers[giver], takers[taker] = takers[taker], givers[giver]
        moved += best
    shares[high], shares[low] = array("I", givers), array("I", takers)
    loads[high] -= moved
    loads[low] += moved
    return moved > 0


def contiguous(count: int, world_size: int) -> list[range]:
    """Blocks of neighbors that differ by one item at most: 64 over 16 gives 0-3, 4-7, ..."""
    _check_world_size(world_size)
    return [range(count * rank // world_size, count * (rank + 1) // world_size) for rank in range(world_size)]


def round_robin(count: int, world_size: int) -> list[range]:
    """Every ``world_size``-th item: 64 over 16 gives 0, 16, 32, 48 to rank 0."""
    _check_world_size(world_size)
    return [range(rank, count, world_size) for rank in range(world_size)]


def imbalance(loads: t.Sequence[_Weight], heaviest_item: _Weight = 0) -> float:
    """max/ideal, where ideal is an equal share, or the heaviest single item where that alone is more."""
    if not loads:
        return 1.0
    ideal = max(sum(loads) / len(loads), heaviest_item)
    return max(loads) / ideal if ideal > 0 else 1.0


def make_batches(
    share: t.Sequence[int],
    seconds: t.Sequence[float],
    *,
    target_s: float = DEFAULT_BATCH_SECONDS,
    max_batches: int = MAX_BATCHES_PER_RANK,
    min_batches: int = 1,
) -> list[list[int]]:
    """Cut one rank's share into batches of about ``target_s`` seconds, heaviest batch first, none of them empty.

    ``seconds`` are the estimates of all files, indexed as ``share`` indexes them. Fewer, longer batches cost less
    start-up (AzCopy needs 2 s for the smallest job); more, shorter ones leave less behind when a rank is slow.
    """
    if target_s <= 0 or max_batches < 1 or not 1 <= min_batches <= max_batches:
        raise ClusterError(
            "bad_input",
            f"Batches of {target_s} s, {min_batches} to {max_batches} of them, cannot be made.",
            "Give a target above zero and at least one batch.",
        )
    if not share:
        return []
    weights = array("d", map(seconds.__getitem__, share))
    wanted = min(max(int(sum(weights) / target_s), min_batches), max_batches, len(share))
    plan = plan_shards(weights, wanted)
    order = sorted(range(wanted), key=lambda batch: (-plan.loads[batch], batch))
    return [[share[position] for position in plan.shares[batch]] for batch in order if plan.shares[batch]]


def _check_world_size(world_size: int) -> None:
    if world_size < 1:
        raise ClusterError(
            "bad_input",
            f"`world_size` is {world_size}, so there is no rank to share work with.",
            "Give at least one rank.",
        )


__all__ = [
    "DEFAULT_BATCH_SECONDS",
    "DEFAULT_BYTES_PER_SECOND",
    "DEFAULT_SECONDS_PER_FILE",
    "MAX_BATCHES_PER_RANK",
    "ShardPlan",
    "contiguous",
    "file_seconds",
    "imbalance",
    "make_batches",
    "plan_shards",
    "round_robin",
]
