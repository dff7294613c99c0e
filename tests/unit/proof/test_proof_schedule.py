# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which step starts next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proof import schedule
from proof.schedule import Start
from proof.step import Step


def step(name: str, **rest: object) -> Step:
    return Step(name, (), **rest)  # type: ignore[arg-type]


def started(waiting: list[Step], running: list[Start], at_once: int = 2) -> str:
    start = schedule.next_start(waiting, running, at_once)
    return f"{start.step.name} {start.member}".strip() if start else ""


def test_what_is_needed_comes_first_and_once() -> None:
    table = {one.name: one for one in (step("a", needs=("b", "c")), step("b", needs=("c",)), step("c"), step("d"))}
    assert schedule.with_needs(["a", "b"], table) == ["c", "b", "a"]


def test_what_a_step_comes_after_is_not_left_behind_it() -> None:
    table = {one.name: one for one in (step("a", after=("b", "c")), step("b", needs=("d",)), step("c"), step("d"))}
    assert schedule.with_needs(["a", "b"], table) == ["d", "b", "a"]


def test_a_circle_is_refused() -> None:
    table = {one.name: one for one in (step("a", needs=("b",)), step("b", needs=("a",)))}
    with pytest.raises(ValueError, match="a -> b -> a"):
        schedule.with_needs(["a"], table)


def test_the_longest_chain_comes_first() -> None:
    table = {
        one.name: one
        for one in (step("short"), step("up"), step("long", needs=("up",)), step("late", after=("short",)))
    }
    minutes = {"short": 4.0, "up": 1.0, "long": 9.0, "late": 2.0}
    assert schedule.longest_chain_first(list(table), table, minutes) == ["up", "long", "short", "late"]


def test_what_a_step_comes_after_counts_only_in_the_same_run() -> None:
    second = step("second", after=("first",))
    assert started([second], []) == "second"
    assert started([second], [Start(step("first"))]) == ""
    assert started([second, step("first")], []) == "first"


def test_nobody_holds_what_another_one_holds() -> None:
    holder = Start(step("a", holds=("lab",)))
    assert started([step("b", holds=("lab",)), step("c")], [holder]) == "c"


def test_members_of_a_pool_are_given_once() -> None:
    pool = ("vm-1", "vm-2")
    first = Start(step("a", pool=pool), "vm-1")
    assert started([step("b", pool=pool)], [first]) == "b vm-2"
    assert started([step("b", pool=pool)], [first, Start(step("c"), "vm-2")], at_once=9) == ""
    assert started([step("b", pool=pool)], [Start(step("all", holds=pool))], at_once=9) == ""


def test_what_a_second_run_waits_for_is_taken_by_no_other_step() -> None:
    pool = ("gpu-1", "gpu-2")
    second = step("a", holds=pool, first_log="a-first.log")
    busy = [Start(step("b", pool=pool), "gpu-2")]
    assert started([second, step("c", pool=pool)], busy) == ""
    assert started([second, step("d", holds=("lab",))], busy) == "d"
    assert started([second, step("c", pool=pool)], []) == "a"


def test_no_more_run_at_once_than_may() -> None:
    busy = [Start(step("a")), Start(step("b"))]
    assert started([step("c")], busy) == ""
    assert started([step("c")], busy, at_once=3) == "c"


def test_what_needs_a_failed_step_is_lost_but_what_only_comes_after_it_is_not() -> None:
    waiting = [step("a", needs=("up",)), step("b", needs=("a",)), step("c", after=("up",))]
    assert schedule.lost(waiting, {"up"}) == ["a", "b"]


NAMES = [f"s{number}" for number in range(8)]


@st.composite
def tables(draw: st.DrawFn) -> list[Step]:
    steps = []
    for number, name in enumerate(NAMES):
        before = st.lists(st.sampled_from(NAMES[:number]), max_size=2, unique=True) if number else st.just([])
        steps.append(
            step(
                name,
                needs=tuple(draw(before)),
                after=tuple(draw(before)),
                holds=tuple(draw(st.lists(st.sampled_from(["lab", "apt", "vm-1"]), max_size=2, unique=True))),
                pool=draw(st.sampled_from([(), ("vm-1", "vm-2")])),
            )
        )
    return draw(st.permutations(steps))


@pytest.mark.slow
@given(tables(), st.randoms())
def test_every_step_runs_once_and_none_beside_what_it_must_not_meet(waiting: list[Step], random: object) -> None:
    running: list[Start] = []
    done: list[str] = []
    while waiting or running:
        while start := schedule.next_start(waiting, running, 2):
            waiting = [one for one in waiting if one is not start.step]
            assert set(start.step.needs) | set(start.step.after) <= set(done)
            assert not any(start.holds & other.holds for other in running)
            running.append(start)
            assert len(running) <= 2
        assert running, "nothing can start, and nothing runs"
        ended = random.choice(running)  # type: ignore[attr-defined]
        running.remove(ended)
        done.append(ended.step.name)
    assert sorted(done) == NAMES
