# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a run is over for who follows it: no node that hangs is waited for although all data is there."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import RankProgress
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._dataset_progress import Watch

HOSTS = {0: "gpu-1", 1: "gpu-2"}
State = t.Literal["working", "waiting", "finished", "failed"]


def see(watch: Watch, now: float, *states: State) -> Watch:
    """Ranks that live: every look sees another heartbeat."""
    watch.update([RankProgress(rank, HOSTS[rank], state, beat=int(now)) for rank, state in enumerate(states)], now)
    return watch


def test_a_node_that_hangs_does_not_hold_the_play_when_the_others_have_copied_everything() -> None:
    watch = see(Watch(HOSTS, 9, 9, shared=True), 0, "working", "working")
    see(watch, 100, "finished", "working")
    assert not watch.over(100), "most ranks end within the same second"
    see(watch, 111, "finished", "working")
    assert watch.over(111)
    assert (watch.silent(111), watch.late(111)) == ([], [1])
    assert "late: gpu-2" in watch.line(111)


def test_a_node_that_never_began_is_not_waited_for_when_the_others_have_copied_everything() -> None:
    watch = see(Watch(HOSTS, 9, 9, silent_after_s=90, shared=True), 0, "finished")
    assert see(watch, 11, "finished").over(11)
    assert (watch.silent(11), watch.late(11)) == ([1], [])
    assert "silent: gpu-2" in watch.line(11)


def test_a_rank_that_failed_says_nothing_about_the_batches() -> None:
    watch = see(Watch(HOSTS, 9, 9, shared=True), 0, "failed", "working")
    see(watch, 1000, "failed", "working")
    assert not watch.over(1000)
    assert not watch.complete
    assert see(watch, 1001, "failed", "finished").over(1001)
    assert not watch.late(1001)
    assert watch.complete


def test_where_every_node_has_a_run_of_its_own_each_is_waited_for() -> None:
    watch = see(Watch(HOSTS, 9, 9), 0, "finished", "working")
    assert not see(watch, 1000, "finished", "working").over(1000)
    assert not watch.complete, "what one has copied is no other's"


def test_an_answer_that_comes_late_takes_nothing_back() -> None:
    watch = Watch(HOSTS, 9, 9)
    watch.update([RankProgress(0, "gpu-1", beat=9, files=5)], 0)
    watch.update([RankProgress(0, "gpu-1", beat=4, files=2)], 50)
    assert watch.files == 5
    assert 0 in watch.silent(60), "it is no sign of life"


def test_what_two_ranks_copied_is_not_more_than_there_is() -> None:
    """One took over from the other, and both count their files."""
    watch = Watch(HOSTS, 10, 10_000_000_000)
    ranks = [RankProgress(rank, HOSTS[rank], files=6, raw_bytes=6_000_000_000) for rank in (0, 1)]
    watch.update(ranks, 0)
    assert watch.line(0).startswith("staging: 10/10 files (2 of them twice), 10.00/10.00 GB, ")
    watch.update([RankProgress(1, HOSTS[1], files=4, raw_bytes=1)], 1)
    assert watch.line(1).startswith("staging: 10/10 files, 6.00/10.00 GB, ")


def test_a_small_dataset_is_told_in_a_unit_that_shows_it() -> None:
    """It said `0.00/0.00 GB, 0.000 GB/s, ETA -`."""
    watch = Watch(HOSTS, 10, 45_000)
    watch.update([RankProgress(0, HOSTS[0], files=1, raw_bytes=0)], 0)
    assert watch.line(0) == "staging: 1/10 files, 0.00/45.00 kB, 0.000 kB/s"
    watch.update([RankProgress(0, HOSTS[0], files=4, raw_bytes=15_000)], 10)
    assert watch.line(10) == "staging: 4/10 files, 15.00/45.00 kB, 1.500 kB/s, ETA 20 s"
