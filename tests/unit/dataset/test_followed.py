# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two plays for one destination: the second is refused, and the first notices nothing."""

from __future__ import annotations

import contextlib
import os
import pathlib
import threading
import time
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset import followed
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.followed import (
    forget_readers,
    mark_of,
    reading,
    refuse_if_followed,
    show_start,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import (
    RankProgress,
    Run,
    current_run_id,
    write_run,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from meanwhile import meanwhile


@pytest.fixture
def run(tmp_path: pathlib.Path) -> Run:
    """A planned run."""
    run = Run("20260101T000000-abcdef", str(tmp_path), "", False, [], [], [], 1.0)
    write_run(run, {})
    return run


@contextlib.contextmanager
def another_play(run: str, destination: str, *, starts: bool = False) -> t.Iterator[None]:
    """It follows the run, as dataset_watch does, or still starts workers."""

    def follow(over: threading.Event) -> None:
        while not over.wait(0.1):
            show_start(destination, run) if starts else pathlib.Path(mark_of(destination, run)).touch()

    with meanwhile(follow):
        yield


def test_a_run_that_a_play_follows_is_not_taken_away(run: Run) -> None:
    RankProgress(0, "gpu-1").write(run)
    with another_play(run.id, run.destination), pytest.raises(ClusterError) as caught:
        refuse_if_followed(run.destination)
    assert caught.value.kind == "busy"
    assert run.destination in caught.value.message


def test_a_run_whose_workers_are_being_started_is_not_taken_away(run: Run) -> None:
    RankProgress(0, "gpu-1").write(run)
    with another_play(run.id, run.destination, starts=True), pytest.raises(ClusterError) as caught:
        refuse_if_followed(run.destination)
    assert caught.value.kind == "busy"


@pytest.mark.parametrize("began", [False, True])
def test_a_run_whose_play_is_gone_may_be_taken_over(run: Run, monkeypatch: pytest.MonkeyPatch, began: bool) -> None:
    monkeypatch.setattr(followed, "_PATIENCE_S", 0.5)
    pathlib.Path(mark_of(run.destination, run.id)).touch()
    if began:
        RankProgress(0, "gpu-1").write(run)
    refuse_if_followed(run.destination)


def test_nobody_waits_where_no_run_is_or_the_last_one_ended(run: Run, tmp_path: pathlib.Path) -> None:
    RankProgress(0, "gpu-1", "finished").write(run)
    RankProgress(1, "gpu-2", "failed").write(run)
    start = time.monotonic()
    refuse_if_followed(run.destination)
    refuse_if_followed(str(tmp_path / "never-staged"))
    assert time.monotonic() - start < followed._PATIENCE_S


@pytest.mark.slow
@pytest.mark.newest
def test_a_dataset_that_a_play_reads_is_not_taken_away(run: Run) -> None:
    """Its workers have ended hours ago, and it looked as if nobody was there."""
    RankProgress(0, "gpu-1", "finished").write(run)
    with reading(run.destination), pytest.raises(ClusterError, match="Another play reads what") as caught:
        refuse_if_followed(run.destination)
    assert caught.value.kind == "busy"


@pytest.mark.slow
@pytest.mark.newest
def test_between_the_reading_and_the_report_a_dataset_is_not_taken_away(run: Run) -> None:
    """Every node has read its part; the play is about to compare."""
    RankProgress(0, "gpu-1", "finished").write(run)
    with reading(run.destination):
        pass

    def compare(over: threading.Event) -> None:
        over.wait(1.0)
        with reading(run.destination):
            over.wait()

    with meanwhile(compare), pytest.raises(ClusterError, match="Another play reads what"):
        refuse_if_followed(run.destination)


def test_a_reader_that_was_killed_or_has_reported_keeps_nobody_from_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "_PATIENCE_S", 0.5)
    RankProgress(0, "gpu-1", "finished").write(run)
    with reading(run.destination):
        pass
    refuse_if_followed(run.destination)  # no play goes on
    monkeypatch.setattr(followed, "_PATIENCE_S", 60.0)
    forget_readers(run.destination)
    start = time.monotonic()
    refuse_if_followed(run.destination)
    assert time.monotonic() - start < 5, "there was nothing to wait for"


@pytest.mark.slow
@pytest.mark.newest
def test_who_reads_on_for_a_play_that_is_over_keeps_nobody_from_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that dropped out reads on, maybe for hours: the play's report has forgotten it, and nobody hears what it will say."""
    monkeypatch.setattr(followed, "_PATIENCE_S", 2.0)
    RankProgress(0, "gpu-1", "finished").write(run)
    with reading(run.destination):
        forget_readers(run.destination)
        refuse_if_followed(run.destination)
    ours, other = os.pipe()
    kept = os.dup(1)
    os.dup2(other, 1)
    try:
        os.close(other)
        os.close(ours)
        with reading(run.destination):
            refuse_if_followed(run.destination)
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def test_nobody_notes_what_he_reads_where_nothing_may_be_written(run: Run) -> None:
    there = sorted(pathlib.Path(run.destination).rglob("*"))
    with reading(f"{run.destination}/never-staged"):
        pass
    assert sorted(pathlib.Path(run.destination).rglob("*")) == there


@pytest.mark.blob
def test_a_second_plan_is_refused_and_the_first_run_stays_the_current_one(staging) -> None:
    staging.fill(2)
    first = staging.plan()
    destination = staging.params()["destination"]
    with another_play(first["run"], destination), pytest.raises(ClusterError, match="Another play copies to"):
        staging.plan()
    assert current_run_id(destination) == first["run"]
    assert staging.plan()["run"] != first["run"], "it was left behind"


@pytest.mark.blob
def test_a_plan_with_nothing_to_copy_leaves_the_manifest_of_a_followed_run_alone(staging) -> None:
    """Else the first play compares its destination with the second one's choice, and calls it whole."""
    staging.put("a.bin", b"1", compress=False)
    staging.put("b.bin", b"2", compress=False)
    narrow = [{**staging.params()["sources"][0], "include": ["a.bin"]}]
    staging.stage(sources=narrow)
    wide = staging.plan()
    with another_play(wide["run"], str(staging.destination / "data")), pytest.raises(ClusterError) as caught:
        staging.plan(sources=narrow)
    assert caught.value.kind == "busy"
    assert staging.verify(report=False)["total_files"] == 2
