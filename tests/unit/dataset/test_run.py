# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is kept of staging runs on disk."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob, Manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import (
    current_run_id,
    planned_names,
    read_run,
    write_run,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.shares import plan_run


def write(destination: pathlib.Path, run_id: str, name: str = "x") -> None:
    """A run that was planned when its name says."""
    manifest = Manifest([{"url": "https://a.blob.core.windows.net/c", "prefix": ""}], [Blob(name, 8, etag="e")])
    run, blobs_of = plan_run(
        manifest,
        range(1),
        destination=str(destination),
        hosts=["gpu-1"],
        decompress=False,
        bytes_per_second=1.0,
        batch_s=60,
    )
    write_run(dataclasses.replace(run, id=run_id), blobs_of)


def kept(destination: pathlib.Path) -> list[str]:
    return sorted(path.name for path in (destination / ".staging/runs").iterdir())


def test_the_last_three_runs_are_kept(tmp_path: pathlib.Path) -> None:
    for hour in range(5):
        write(tmp_path, f"20261122T0{hour}0000-aaaaaa")
    assert kept(tmp_path) == [f"20261122T0{hour}0000-aaaaaa" for hour in (2, 3, 4)]


def test_a_clock_that_was_set_back_does_not_take_the_new_run_away(tmp_path: pathlib.Path) -> None:
    for hour in range(5):
        write(tmp_path, f"20261122T0{hour}0000-aaaaaa")
    early = "20250101T000000-bbbbbb"
    write(tmp_path, early)
    assert kept(tmp_path) == [early, "20261122T030000-aaaaaa", "20261122T040000-aaaaaa"]
    assert current_run_id(str(tmp_path)) == early
    run = read_run(str(tmp_path), early)
    assert run is not None
    assert [blob.name for blob in run.batch_blobs(run.batches[0].id)] == ["x"]


@pytest.mark.parametrize("half", [0, 1])
def test_a_run_that_is_half_removed_hides_no_names_of_others(tmp_path: pathlib.Path, half: int) -> None:
    names = {"x", "y", "theirs"}
    assert planned_names(str(tmp_path), names) == set()
    runs = ["20261122T000000-aaaaaa", "20261122T010000-aaaaaa"]
    for run_id, name in zip(runs, "xy"):
        write(tmp_path, run_id, name)
    assert planned_names(str(tmp_path), names) == {"x", "y"}
    assert planned_names(str(tmp_path), {"y"}) == {"y"}
    shutil.rmtree(tmp_path / ".staging/runs" / runs[half] / "batches")
    assert planned_names(str(tmp_path), names) == {"yx"[half]}


def test_a_run_is_on_disk_before_it_is_the_current_one(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else files that it brought would count as foreign after a power cut, and only consent would replace them."""
    run_id = "20261122T000000-aaaaaa"
    runs = tmp_path / ".staging/runs"
    on_disk: set[int] = set()
    missing: list[pathlib.Path] | None = None
    fsync = os.fsync

    def note(descriptor: int) -> None:
        nonlocal missing
        fsync(descriptor)
        on_disk.add(os.fstat(descriptor).st_ino)
        if "/current." in os.readlink(f"/proc/self/fd/{descriptor}"):
            needed = [runs, runs / run_id, runs / run_id / "run.json", *(runs / run_id / "batches").iterdir()]
            needed.append(runs / run_id / "batches")
            missing = [path for path in needed if path.stat().st_ino not in on_disk]

    monkeypatch.setattr(os, "fsync", note)
    write(tmp_path, run_id)
    assert missing == []
    assert (tmp_path / ".staging").stat().st_ino in on_disk
