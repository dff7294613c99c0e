# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a budget takes and leaves."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given
from proof.budget import MARGIN, Step, debt, fits, limit_s, order

DAYS = st.sampled_from(["", "2026-11-20", "2026-11-21", "2026-11-22"])
SECONDS = st.floats(0.0, 2000.0)
STEPS = st.lists(
    st.builds(Step, name=st.text("abcdef", min_size=1, max_size=3), seconds=SECONDS, proven=DAYS, must=st.booleans()),
    max_size=12,
    unique_by=lambda step: step.name,
)


def test_the_order_is_must_then_never_proven_then_longest_unproven_then_longest() -> None:
    steps = [
        Step("today", 900, proven="2026-11-22"),
        Step("old, a short one", 10, proven="2026-11-20"),
        Step("old, long", 20, proven="2026-11-20"),
        Step("never, a short one", 1),
        Step("never, long", 2),
        Step("second", 5, must=True, proven="2026-11-22"),
        Step("first", 1, must=True),
    ]
    names = ["second", "first", "never, long", "never, a short one", "old, long", "old, a short one", "today"]
    assert [step.name for step in order(steps)] == names


@pytest.mark.parametrize(
    ("elapsed_s", "estimate_s", "expected"),
    [(0, 100, True), (0, 101, False), (30, 76, True), (30, 77, False), (131, 0, False)],
)
def test_what_fits_leaves_a_slow_machine_its_margin(elapsed_s: float, estimate_s: float, expected: bool) -> None:
    assert fits(elapsed_s, estimate_s, 130) is expected


@pytest.mark.parametrize(
    ("estimate_s", "pace", "expected"), [(0, 1.0, 120), (100, 1.0, 220), (300, 1.0, 600), (300, 2.0, 1200)]
)
def test_what_was_measured_hangs_after_twice_as_long(estimate_s: float, pace: float, expected: float) -> None:
    assert limit_s(estimate_s, True, pace) == expected


@pytest.mark.parametrize(("estimate_s", "expected"), [(0, 600), (200, 600), (201, 603), (1178, 3534)])
def test_a_guess_is_given_three_times_its_time_and_never_less_than_ten_minutes(
    estimate_s: float, expected: float
) -> None:
    assert limit_s(estimate_s, False) == expected


def test_what_fits_follows_the_pace_of_the_run() -> None:
    assert fits(0, 100, 200, pace=2.0)
    assert not fits(0, 101, 200, pace=2.0)


def test_debt_is_told_in_the_order_of_the_next_run() -> None:
    steps = [Step("b", 1, "d1", "2026-11-20"), Step("a", 1, "d2")]
    assert debt(steps) == ["a  d2  never proven", "b  d1  2026-11-20"]


@given(STEPS, st.randoms(use_true_random=False))
def test_the_order_loses_nothing_and_does_not_depend_on_how_the_affected_are_given(
    steps: list[Step], numbers: random.Random
) -> None:
    must = [step for step in steps if step.must]
    affected = [step for step in steps if not step.must]
    shuffled = affected.copy()
    numbers.shuffle(shuffled)
    assert order(shuffled + must) == order(must + affected)
    assert sorted(step.name for step in order(steps)) == sorted(step.name for step in steps)
    assert len(debt(steps)) == len(steps)


@given(SECONDS, SECONDS, st.floats(0.0, 500.0), st.floats(0.5, MARGIN))
def test_what_fits_ends_in_time_on_any_machine(
    estimate_s: float, budget_s: float, elapsed_s: float, slowness: float
) -> None:
    if fits(elapsed_s, estimate_s, budget_s):
        assert elapsed_s + estimate_s * slowness <= budget_s + 1e-6
