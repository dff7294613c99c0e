# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who takes over from whom for being slow: real claims on a local file system, ranks and their clock by arithmetic."""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile
import typing as t

import hypothesis.strategies as st
import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.claims import Claims
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.slow_owners import SlowOwners
from hypothesis import given, settings

_BATCH = 1000  # bytes
_BATCH_S = 40.0
_START_S = 2.0
_BEAT_S = 2
_PATIENCE_S = 4000


@dataclasses.dataclass
class Attempt:
    """A batch that a rank copies. ``work`` is done at 1."""

    batch: str
    number: int
    work: float = 0.0
    began: float = 0.0


class Cluster:
    """Ranks that claim batches, their own first, and then look at those of others, as ``Worker`` does.

    ``speeds``: of each rank, 1 for a batch in 40 s. ``common``: a factor of all of them at a time. ``hidden``: the part of its time in
    which a batch shows nothing, because AzCopy asks for names.
    """

    def __init__(
        self,
        directory: str,
        speeds: t.Sequence[float],
        batches_each: t.Sequence[int],
        common: t.Callable[[float], float] = lambda _now: 1.0,
        hidden: float = 0.0,
    ) -> None:
        self.now = 0.0
        self.speeds, self.common, self.hidden = speeds, common, hidden
        names = {f"r{rank:04d}b{number:02d}" for rank, count in enumerate(batches_each) for number in range(count)}
        self.bytes_of = dict.fromkeys(sorted(names), _BATCH)
        self.own = [[f"r{rank:04d}b{number:02d}" for number in range(count)] for rank, count in enumerate(batches_each)]
        self.claims = [Claims(directory, f"rank{rank}", clock=lambda: self.now) for rank in range(len(speeds))]
        self.paces = [SlowOwners(claims, self.bytes_of, len(speeds)) for claims in self.claims]
        self.busy: list[Attempt | None] = [None] * len(speeds)
        self.own_s: list[list[float]] = [[] for _speed in speeds]
        self.taken_over: list[str] = []
        self.most_twice = 0

    def run(self) -> float:
        """Until all is copied; the seconds that it took."""
        while self.now < _PATIENCE_S:
            for rank in range(len(self.speeds)):
                if self.busy[rank] is None:
                    self._pick(rank)
            states = self.claims[0].survey(self.bytes_of)
            if all(state.done for state in states.values()):
                return self.now
            twice = sum(state.claimed and state.attempt > 0 for state in states.values())
            self.most_twice = max(self.most_twice, twice)
            self._second()
        raise AssertionError("the ranks do not end")

    def _second(self) -> None:
        self.now += 1
        for rank, attempt in enumerate(self.busy):
            if attempt is None:
                continue
            attempt.work += self.speeds[rank] * self.common(self.now) / _BATCH_S
            if self.claims[rank].is_done(attempt.batch):
                self.claims[rank].forget(attempt.batch)
                self.busy[rank] = None
            elif attempt.work >= 1:
                self.claims[rank].finish(attempt.batch, {"failed": []})
                self.own_s[rank].append(self.now - attempt.began)
                self.busy[rank] = None
            elif not self.now % _BEAT_S:
                shown = max(0.0, (attempt.work - self.hidden) / (1 - self.hidden))
                self.claims[rank].heartbeat({attempt.batch: shown})

    def _pick(self, rank: int) -> None:
        claims = self.claims[rank]
        states = claims.survey(self.bytes_of)
        wanted = [*self.own[rank], *(batch for batch in self.bytes_of if batch not in self.own[rank])]
        for batch in wanted:
            number = states[batch].next_attempt
            if number is not None and claims.claim(batch, number):
                self.busy[rank] = Attempt(batch, number, began=self.now)
                return
        if not self.own_s[rank]:
            return
        own_s = self.own_s[rank][-1] + _START_S
        for batch, state in states.items():
            if state.claimed and self.paces[rank].much_slower(batch, states, own_s):
                assert claims.take_over(batch, state.attempt, "slow")
                self.taken_over.append(batch)
                self.busy[rank] = Attempt(batch, state.attempt + 1, began=self.now)
                return


def cluster(*values: t.Any, **more: t.Any) -> tuple[Cluster, float]:
    # In memory: thousands of heartbeats, and each empties its file first, which costs a disk's file system most of the time.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        found = Cluster(directory, *values, **more)
        return found, found.run()


_SPEEDS = st.lists(st.floats(0.85, 1.15), min_size=2, max_size=6)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    speeds=_SPEEDS,
    batches=st.lists(st.integers(1, 4), min_size=6, max_size=6),
    slowed=st.floats(0.1, 1.0),
    hidden=st.floats(0, 0.7),
)
def test_where_all_are_slow_nobody_copies_what_another_copies(
    speeds: list[float], batches: list[int], slowed: float, hidden: float
) -> None:
    """An account that throttles: all need up to ten times as long as planned, and show nothing for most of that."""
    found, _seconds = cluster(speeds, batches[: len(speeds)], lambda _now: slowed, hidden)
    assert found.taken_over == []


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    ranks=st.integers(3, 6),
    speed=st.floats(0.05, 0.2),
    slowed=st.floats(0.3, 1.0),
    batches=st.integers(2, 4),
)
def test_a_rank_that_is_much_slower_than_the_others_does_not_keep_them_waiting(
    ranks: int, speed: float, slowed: float, batches: int
) -> None:
    """Nothing need be taken over where the slow one's last batch is nearly done."""
    _found, seconds = cluster([speed, *[1.0] * (ranks - 1)], [batches] * ranks, lambda _now: slowed)
    usual_s = _BATCH_S / slowed
    rounds = -(-batches * ranks // (ranks - 1))
    assert seconds <= (rounds + 3) * usual_s + 30


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    speeds=st.lists(st.floats(0.2, 2.0), min_size=2, max_size=12),
    late=st.floats(0.2, 1.0),
    since=st.integers(0, 200),
)
def test_few_batches_are_copied_twice_at_a_time_whatever_happens(speeds: list[float], late: float, since: int) -> None:
    found, _seconds = cluster(speeds, [2] * len(speeds), lambda now: late if now > since else 1.0)
    assert found.most_twice <= max(1, len(speeds) // 10)


def test_two_that_are_much_slower_do_not_excuse_each_other() -> None:
    found, _seconds = cluster([0.05, 0.05, *[1.0] * 8], [2] * 10)
    assert {batch[:5] for batch in found.taken_over} == {"r0000", "r0001"}


def test_what_is_slower_only_a_little_is_left_to_its_owner() -> None:
    found, _seconds = cluster([0.6, 1.0, 1.0, 1.0], [3, 3, 3, 3])
    assert found.taken_over == []


def test_the_last_attempt_is_not_taken_from_who_is_slow(tmp_path: pathlib.Path) -> None:
    """Nobody may try again after it: the batch would be given up while it is copied."""
    now = 0.0
    idle, *slow = (Claims(str(tmp_path), owner, max_attempts=2, clock=lambda: now) for owner in ("idle", "a", "b"))
    paces = SlowOwners(idle, {"b": 1000}, 20)
    for attempt, owner in enumerate(slow):
        assert owner.claim("b", attempt)
        now += 1000
        owner.heartbeat({"b": 0.01})
        assert paces.much_slower("b", idle.survey(["b"]), 10) == (attempt == 0)
        owner.release("b", "partial")
