# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a run takes by the clock."""

from __future__ import annotations

import pathlib

import pytest
from proof.plan import make_plan
from proof.scenarios import scenarios
from proof.step import Step
from proof.timetable import Slot, length_s, timetable
from proof.tree import WorkTree

ROOT = pathlib.Path(__file__).resolve().parents[3]


def test_two_run_at_once_and_what_needs_another_one_waits() -> None:
    steps = [Step("a", ()), Step("b", (), needs=("a",)), Step("c", ())]
    slots = timetable(steps, {"a": 10.0, "b": 5.0, "c": 12.0}, 2)
    assert slots == [Slot("a", 0, 10), Slot("c", 0, 12), Slot("b", 10, 15)]
    assert length_s(steps, {"a": 10.0, "b": 5.0, "c": 12.0}, 1) == 27


def test_steps_that_hold_the_same_run_one_after_the_other() -> None:
    steps = [Step("a", (), holds=("lab",)), Step("b", (), holds=("lab",))]
    assert length_s(steps, {"a": 2.0, "b": 3.0}, 2) == 5


def test_nothing_takes_no_time() -> None:
    assert length_s([], {}, 2) == 0


def test_what_waits_for_itself_is_an_error() -> None:
    steps = [Step("a", (), needs=("b",)), Step("b", (), needs=("a",))]
    with pytest.raises(ValueError, match="can ever start: a, b"):
        timetable(steps, {"a": 1.0, "b": 1.0}, 2)


def test_a_full_run_keeps_both_lanes_busy() -> None:
    """Otherwise a long step is left over at the end, or one of the front waits for one of the end."""
    known = scenarios(WorkTree(ROOT))
    plan = make_plan("all", False, known, dict.fromkeys((one.name for one in known), ""), {})
    busy_s = sum(plan.seconds.values())
    assert busy_s / 2 <= length_s(plan.steps, plan.seconds, 2) < 1.03 * busy_s / 2
