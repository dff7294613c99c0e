# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What benchmarks/staging/kills.py draws and says, without a run."""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import sys
import typing as t

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "benchmarks/staging"))

from _kills import SIGNALS, WHATS, Ending, Kill, crashes, draw, rows, until_hit


def test_a_seed_draws_the_same_kills_and_a_longer_run_begins_with_them() -> None:
    kills = draw(7, 50, 3)
    assert kills == draw(7, 50, 3) == draw(7, 80, 3)[:50]
    assert kills != draw(8, 50, 3)
    assert [kill.number for kill in kills] == list(range(1, 51))
    counted = collections.Counter(kill.what for kill in kills)
    assert set(counted) == set(WHATS)
    assert min(counted.values()) >= 8
    assert {kill.host for kill in kills} == {0, 1, 2}
    assert {kill.signal for kill in kills} == set(SIGNALS)
    assert all(0 <= kill.fraction < 1 for kill in kills)


GOOD = Ending(Kill(1, "worker", 0, 0.5, "SIGINT"), hit=True, first=0, again=0)


@pytest.mark.parametrize(
    "change",
    [
        {"again": 2},
        {"first": None},
        {"again": None},
        {"wrong": ["a"]},
        {"missing": ["a"]},
        {"leftovers": ["a"]},
        {"crashes": ["a"]},
        {"secrets": ["a"]},
    ],
)
def test_an_ending_is_right_only_where_nothing_is_wrong(change: dict[str, t.Any]) -> None:
    # The killed run itself may fail.
    assert GOOD.right
    assert dataclasses.replace(GOOD, first=2).right
    assert not dataclasses.replace(GOOD, **change).right


def test_a_program_that_broke_off_is_told_from_one_that_says_what_happened() -> None:
    said = "fatal: [a]: FAILED! => msg: The copy was stopped. Run again to copy the rest.\nok: [b]"
    assert crashes(said) == []
    assert crashes(f"{said}\n  Traceback (most recent call last):\n    File x\n") == [
        "Traceback (most recent call last):"
    ]
    assert len(crashes("MODULE FAILURE\nModule failed: Unknown error.")) == 2


def test_the_table_counts_by_what_was_killed() -> None:
    hung = Ending(Kill(2, "host", 1, 0.1, "SIGINT"), hit=True, first=None, first_s=300, again=0)
    host, every = rows([GOOD, hung])[1:]
    assert (host["killed"], host["hangs"], host["run ended with 0"], host["longest run s"]) == ("host", 1, 0, 300)
    assert (every["kills"], every["whole after a rerun"], every["hangs"]) == (2, 2, 1)


def test_a_kill_is_made_again_until_it_hits_or_something_is_wrong() -> None:
    kill = draw(1, 1, 3)[0]
    good = Ending(kill, hit=True, first=0, again=0)
    late = dataclasses.replace(good, hit=False)
    bad = dataclasses.replace(late, secrets=["x"])
    for endings, last in (
        ([bad, good], bad),
        ([late, bad, good], bad),
        ([late, good, bad], good),
        ([late, late, late, good], late),
    ):
        assert until_hit(endings.__getitem__, 3) is last
