# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Partitions: exact, balanced, the same every time."""

from __future__ import annotations

import itertools
import random
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._shards import plan as planner
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._shards.plan import (
    contiguous,
    file_seconds,
    imbalance,
    make_batches,
    plan_shards,
    round_robin,
)
from hypothesis import given
from hypothesis import strategies as st

weights_strategy = st.lists(st.one_of(st.integers(0, 10**9), st.floats(0, 1e6)), max_size=300)
ranks_strategy = st.one_of(st.integers(1, 40), st.integers(1, 10_000))


@pytest.mark.slow
@given(weights_strategy, ranks_strategy)
def test_every_file_is_in_exactly_one_share(weights: list[float], ranks: int) -> None:
    plan = plan_shards(weights, ranks)
    assert len(plan.shares) == len(plan.loads) == ranks
    assert sorted(itertools.chain(*plan.shares)) == list(range(len(weights)))
    for share, load in zip(plan.shares, plan.loads):
        assert list(share) == sorted(share)
        assert sum(weights[index] for index in share) == pytest.approx(load)


@given(weights_strategy, ranks_strategy)
def test_the_largest_share_stays_within_the_bound_of_the_method(weights: list[float], ranks: int) -> None:
    # Graham's bound: longest processing time first is at most 4/3 of the optimum, and the optimum at least the ideal;
    # against the ideal itself one more file than that may have to go somewhere.
    plan = plan_shards(weights, ranks)
    assert plan.imbalance >= 1 - 1e-9
    assert max(plan.loads) <= plan.ideal + max(weights, default=0) + 1e-6


#: Sizes in bytes, as datasets have them: records cut to about one length, anything up to a limit, many small and few big.
SIZES: dict[str, t.Callable[[random.Random], float]] = {
    "within 1 %": lambda chance: 1e9 * chance.uniform(0.99, 1.01),
    "within 10 %": lambda chance: 2.26e6 * chance.uniform(0.9, 1.1),
    "up to 1 GB": lambda chance: chance.uniform(0, 1e9),
    "Pareto": lambda chance: 1e5 * chance.paretovariate(1.5),
}


@pytest.mark.parametrize(("files", "ranks"), [(2_000, 8), (10_000, 24), (10_000, 64), (20_000, 100)])
@pytest.mark.parametrize("sizes", SIZES)
def test_no_rank_works_longer_than_the_others_by_more_than_a_fiftieth_of_a_percent(
    sizes: str, files: int, ranks: int
) -> None:
    chance = random.Random(1)
    seconds = file_seconds([int(SIZES[sizes](chance)) for _file in range(files)])
    plan = plan_shards(seconds, ranks)
    longest = max(sum(seconds[index] for index in share) for share in plan.shares)
    equal = sum(seconds) / ranks
    assert longest <= max(equal * 1.0002, max(seconds) * (1 + 1e-9))
    assert plan.imbalance == pytest.approx(longest / max(equal, max(seconds)))


def test_a_file_more_is_made_up_for_by_lighter_files() -> None:
    # One after the other, the heaviest first, would give 3 + 2 + 2 against 3 + 2.
    plan = plan_shards([3, 3, 2, 2, 2], 2)
    assert sorted(list(share) for share in plan.shares) == [[0, 1], [2, 3, 4]]
    assert (plan.loads, plan.imbalance) == ([6, 6], 1.0)


@given(weights_strategy, st.integers(1, 50))
def test_files_without_weight_are_shared_out_by_count(weights: list[float], ranks: int) -> None:
    plan = plan_shards([0] * len(weights), ranks)
    counts = [len(share) for share in plan.shares]
    assert max(counts) - min(counts) <= 1
    assert plan.imbalance == 1.0


def test_it_is_deterministic_and_ties_go_to_the_lower_rank() -> None:
    plan = plan_shards([5, 5, 5, 5, 5], 3)
    assert [list(share) for share in plan.shares] == [[0, 3], [1, 4], [2]]
    assert plan == plan_shards([5, 5, 5, 5, 5], 3)


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=200), st.integers(1, 8), st.integers(1, 50), st.integers(1, 20)
)
def test_many_weights_that_are_sorted_in_parts_give_the_same_plan(
    weights: list[int], ranks: int, at_once: int, drawn: int
) -> None:
    whole = plan_shards(weights, ranks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "_SORTED_AT_ONCE", at_once)
        patch.setattr(planner, "_DRAWN", drawn)
        assert plan_shards(weights, ranks) == whole


def test_a_giant_file_alone_is_ideal() -> None:
    plan = plan_shards([100, 1, 1, 1], 2)
    assert [list(share) for share in plan.shares] == [[0], [1, 2, 3]]
    assert (plan.ideal, plan.imbalance) == (100, 1.0)


def test_more_ranks_than_files_leaves_ranks_empty() -> None:
    assert [list(share) for share in plan_shards([3, 4], 4).shares] == [[1], [0], [], []]
    assert [list(share) for share in plan_shards([], 2).shares] == [[], []]


@given(st.integers(0, 2000), ranks_strategy)
def test_blocks_and_strides_are_exact_and_even(count: int, ranks: int) -> None:
    for parts in (contiguous(count, ranks), round_robin(count, ranks)):
        assert len(parts) == ranks
        assert sorted(itertools.chain(*parts)) == list(range(count))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_the_blocks_of_the_reference() -> None:
    assert [list(block) for block in contiguous(64, 16)][:2] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert list(round_robin(64, 16)[0]) == [0, 16, 32, 48]


def test_weight_is_bytes_over_rate_and_a_cost_per_file() -> None:
    assert list(file_seconds([0, 750_000_000], 750e6, 0.005)) == [0.005, pytest.approx(1.005)]


@given(
    st.lists(st.floats(0.001, 1000), min_size=1, max_size=200),
    st.floats(0.01, 1000),
    st.integers(1, 20),
    st.integers(1, 20),
)
def test_batches_partition_the_share(seconds: list[float], target: float, low: int, high: int) -> None:
    share = list(range(0, len(seconds), 2))
    low, high = min(low, high), max(low, high)
    batches = make_batches(share, seconds, target_s=target, min_batches=low, max_batches=high)
    assert sorted(itertools.chain(*batches)) == share
    assert all(batches)
    assert min(low, len(share)) <= len(batches) <= high
    sums = [sum(seconds[index] for index in batch) for batch in batches]
    assert sums == sorted(sums, reverse=True) or sums == pytest.approx(sorted(sums, reverse=True))
    assert batches == make_batches(share, seconds, target_s=target, min_batches=low, max_batches=high)


def test_batches_are_about_as_long_as_wanted() -> None:
    seconds = [1.0] * 600
    batches = make_batches(range(600), seconds, target_s=60)
    assert [len(batch) for batch in batches] == [60] * 10
    assert len(make_batches(range(600), seconds, target_s=1)) == 600
    assert len(make_batches(range(1200), [1.0] * 1200, target_s=1)) == 1000
    assert len(make_batches(range(600), seconds, target_s=10_000)) == 1
    assert make_batches([], seconds) == []


@pytest.mark.parametrize(("work_s", "batches"), [(59, 1), (119, 1), (120, 2), (179, 2)])
def test_a_batch_is_rather_too_long_than_too_short(work_s: int, batches: int) -> None:
    assert len(make_batches(range(work_s), [1.0] * work_s, target_s=60)) == batches


def test_the_heaviest_batch_comes_first() -> None:
    assert make_batches([0, 1, 2], [10.0, 30.0, 20.0], target_s=1) == [[1], [2], [0]]


def test_imbalance() -> None:
    assert imbalance([]) == imbalance([0, 0]) == imbalance([4, 4]) == 1.0
    assert imbalance([6, 2]) == 1.5
    assert imbalance([6, 2], heaviest_item=6) == 1.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: plan_shards([1], 0),
        lambda: plan_shards([-1], 1),
        lambda: contiguous(1, 0),
        lambda: round_robin(1, -1),
        lambda: file_seconds([1], 0),
        lambda: file_seconds([1], 1, -1),
        lambda: make_batches([0], [1.0], target_s=0),
        lambda: make_batches([0], [1.0], min_batches=3, max_batches=2),
    ],
)
def test_nonsense_is_refused(call: object) -> None:
    with pytest.raises(ClusterError) as caught:
        call()  # type: ignore[operator]
    assert caught.value.kind == "bad_input"
    assert caught.value.remedy
