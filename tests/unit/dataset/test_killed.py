# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What killed workers left is removed although no file is missing, and nothing of those that live."""

from __future__ import annotations

import errno
import pathlib
import threading
import time
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset import killed
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.killed import killed_hosts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.landing import landing_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import RankProgress, Run, write_run
from ansible_collections.hpcai.gpu_cluster.plugins.modules import dataset_stage
from meanwhile import meanwhile
from module_run import run_main


@pytest.fixture
def run(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of two nodes; the worker of gpu-1 has not said that it ended."""
    monkeypatch.setattr(killed, "_DEAD_AFTER_S", 1.5)
    run = Run("20260101T000000-abcdef", str(tmp_path / "data"), "", False, [], [], [], 1.0)
    write_run(run, {})
    RankProgress(0, "gpu-1", beat=7).write(run)
    RankProgress(1, "gpu-2", "finished").write(run)
    return run


def leave(run: Run, landing_path: str, host: str) -> pathlib.Path:
    """Raw bytes of a batch."""
    path = pathlib.Path(landing_of(landing_path, run.destination, host)) / f"{run.id}-r0000b00" / "0" / "a"
    path.parent.mkdir(parents=True)
    path.write_text("half of it")
    return path


def stage_nothing(run: Run, landing_path: str, host: str) -> dict[str, t.Any]:
    options = {"destination": run.destination, "sources": [], "run": "", "rank": 0, "host": host}
    return run_main(dataset_stage.main, {**options, "landing_path": landing_path or None})


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.parametrize("where", ["nvme", ""])
def test_what_a_killed_worker_left_is_removed_once(tmp_path: pathlib.Path, run: Run, where: str) -> None:
    landing_path = str(tmp_path / where) if where else ""
    left = leave(run, landing_path, "gpu-1")
    others = leave(run, landing_path, "gpu-3")
    assert killed_hosts(run.destination) == ["gpu-1"]
    assert stage_nothing(run, landing_path, "gpu-1")["changed"]
    assert not left.parents[2].exists()
    assert others.exists()
    assert killed_hosts(run.destination) == []
    assert not stage_nothing(run, landing_path, "gpu-1")["changed"]


def test_nothing_of_a_worker_that_lives_is_removed(tmp_path: pathlib.Path, run: Run) -> None:
    left = leave(run, str(tmp_path), "gpu-1")

    def live(over: threading.Event) -> None:
        beat = 7
        while not over.wait(0.05):
            beat += 1
            RankProgress(0, "gpu-1", beat=beat).write(run)

    with meanwhile(live):
        assert not stage_nothing(run, str(tmp_path), "gpu-1")["changed"]
    assert left.exists()
    assert killed_hosts(run.destination) == ["gpu-1"]


def test_nothing_of_a_worker_that_begins_meanwhile_is_removed(tmp_path: pathlib.Path, run: Run) -> None:
    left = leave(run, str(tmp_path), "gpu-1")
    new = Run("20260102T000000-abcdef", run.destination, "", False, [], [], [], 1.0)
    began = time.monotonic()

    def begin(_over: threading.Event) -> None:
        while time.monotonic() - began < 0.2:
            time.sleep(0.02)
        write_run(new, {})
        RankProgress(0, "gpu-1").write(new)

    with meanwhile(begin):
        assert not stage_nothing(run, str(tmp_path), "gpu-1")["changed"]
    assert left.exists()


@pytest.mark.slow
@pytest.mark.newest
def test_a_full_file_system_keeps_nobody_from_sweeping(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    left = leave(run, "", "gpu-1")

    def full(*_arguments: object) -> t.NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RankProgress, "write", full)
    assert stage_nothing(run, "", "gpu-1")["changed"]
    assert not left.exists()


def test_a_mount_that_is_gone_is_told_as_that(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_arguments: object) -> t.NoReturn:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    monkeypatch.setattr(dataset_stage, "sweep_killed", gone)
    assert stage_nothing(run, "", "gpu-1")["error_kind"] == "io"


def test_a_file_among_the_runs_is_no_run(run: Run) -> None:
    (pathlib.Path(run.directory).parent / "followed").touch()
    assert killed_hosts(run.destination) == ["gpu-1"]


@pytest.mark.blob
def test_a_plan_of_a_whole_dataset_names_where_workers_were_killed(staging) -> None:
    staging.fill(2)
    first = staging.plan()
    staging.copy(first["run"])
    assert staging.plan()["killed"] == []
    directory = staging.params()["destination"]
    RankProgress(2, "gpu-3").write(Run(first["run"], directory, "", True, [], [], [], 1.0))
    again = staging.plan()
    assert (again["missing_files"], again["killed"]) == (0, ["gpu-3"])
