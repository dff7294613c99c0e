# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file system that goes away under a worker, or is full: the message names that one, and nothing is written in its place."""

from __future__ import annotations

import ctypes
import errno
import multiprocessing
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset import batch, landing_room
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.landing_room import LandingRoom, full_disk
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.place import Place
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.rank import run_rank
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import Run, write_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.modules import dataset_stage, dataset_verify
from module_run import run_main

_FORK = multiprocessing.get_context("fork")
_CLONE_NEWNS = 0x00020000
PATIENCE_S = 120
Found = dict[str, t.Any]


def with_own_mounts(work: t.Callable[[], Found]) -> Found:
    """What ``work`` finds in a process whose mounts nobody else has."""
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may mount nothing")
    answers = _FORK.Queue()

    def child() -> None:
        ctypes.CDLL(None).unshare(_CLONE_NEWNS)
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        answers.put(work())

    process = _FORK.Process(target=child)
    process.start()
    try:
        return t.cast("Found", answers.get(timeout=PATIENCE_S))
    finally:
        process.kill()
        process.join()


def mount(path: pathlib.Path, size: str) -> None:
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", path], check=True)


def rank_of(staging, run: str, **options: t.Any) -> Found:
    """The only rank of a run."""
    params = {**staging.params(**options), "run": run, "rank": 0, "host": "gpu-1"}
    try:
        return run_rank(dataset_stage.read_options(params))
    except ClusterError as error:
        return error.as_result()


@pytest.mark.blob
@pytest.mark.slow
def test_a_file_system_that_is_unmounted_under_a_worker_is_told_as_that(staging, tmp_path: pathlib.Path) -> None:
    """It said that the destination cannot be written, and wrote below the empty mount point, where the next run found foreign files."""
    staging.fill(60)
    shared = tmp_path / "mnt"
    options = {"destination": str(shared / "data"), "hosts": ["gpu-1"], "landing_path": str(tmp_path / "nvme")}
    options["cap_mbps"] = 8  # so that it takes some seconds

    def work() -> Found:
        mount(shared, "64m")
        run = staging.plan(**options)["run"]

        def unmount() -> None:
            while not [*shared.glob("data/train/*")]:
                time.sleep(0.01)
            subprocess.run(["umount", "--lazy", shared], check=True)

        threading.Thread(target=unmount, daemon=True).start()
        result = rank_of(staging, run, **options)
        return {**result, "left": [str(path) for path in shared.rglob("*")]}

    began = time.monotonic()
    result = with_own_mounts(work)
    assert result.get("error_kind") == "not_mounted", result
    assert options["destination"] in result["msg"]
    assert result["left"] == []
    assert time.monotonic() - began < 60


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.blob
def test_a_full_landing_disk_is_not_called_the_destination(
    staging, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else fills it while AzCopy lands: before, there was room."""
    content = os.urandom(3 << 20)
    staging.put("a.bin", content, compress=False)
    monkeypatch.setattr(
        batch, "LandingRoom", lambda directory, limit: LandingRoom(directory, limit, lambda _path: 1 << 40)
    )
    disk, options = tmp_path / "nvme", {"hosts": ["gpu-1"], "landing_path": str(tmp_path / "nvme")}

    def work() -> Found:
        mount(disk, "2m")
        return rank_of(staging, staging.plan(**options)["run"], **options)

    result = with_own_mounts(work)
    assert result.get("error_kind") == "disk_full", result
    assert str(disk) in result["msg"]
    assert "`landing_path`" in result["remedy"]
    assert "destination" not in result["msg"]


def test_a_full_disk_is_the_one_with_less_space(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    landing, log = str(tmp_path / "data/.staging/landing/gpu-1"), str(tmp_path / "log")
    room = {landing: 0, log: 0}

    def free(directory: str) -> int:
        if directory not in room:
            raise FileNotFoundError(errno.ENOENT, "", directory)
        return room[directory]

    monkeypatch.setattr(landing_room, "free_bytes", free)
    inside = full_disk(landing, log, str(tmp_path / "data"))
    assert landing in inside.message
    assert "(`landing_path`)" not in inside.message, "nobody has set it"
    assert "(`landing_path`)" in full_disk(landing, log, "/other").message
    room[landing] = 1
    logs = full_disk(landing, log, str(tmp_path / "data"))
    assert (log in logs.message, "`log_path`" in logs.remedy) == (True, True)
    del room[log]
    assert landing in full_disk(landing, log, str(tmp_path / "data")).message


@pytest.fixture
def elsewhere() -> t.Iterator[pathlib.Path]:
    """A directory on another file system than those of a test."""
    if not os.access("/dev/shm", os.W_OK) or os.stat("/dev/shm").st_dev == os.stat(tempfile.gettempdir()).st_dev:
        pytest.skip("there is one file system only")
    path = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def run(tmp_path: pathlib.Path, elsewhere: pathlib.Path) -> Run:
    """A run whose destination is reached through a link, as a mount point is, that can lead somewhere else later."""
    (tmp_path / "mnt").symlink_to(elsewhere)
    run = Run("20260101T000000-abcdef", str(tmp_path / "mnt/data"), "", False, [], [], [], 1.0)
    write_run(run, {})
    return run


def test_a_place_that_is_another_file_system_is_gone(tmp_path: pathlib.Path, run: Run) -> None:
    place = Place(run)
    assert place.gone() is None
    (tmp_path / "empty").mkdir()
    (tmp_path / "mnt").unlink()
    (tmp_path / "mnt").symlink_to("empty")
    error = place.gone()
    assert error is not None
    assert (error.kind, run.destination in error.message) == ("not_mounted", True)
    with pytest.raises(ClusterError, match="unmounted"):
        place.check()


def test_what_was_removed_from_the_same_file_system_is_not_unmounted(run: Run, elsewhere: pathlib.Path) -> None:
    place = Place(run)
    shutil.rmtree(elsewhere / "data")
    assert place.gone() is None


def test_who_compares_with_a_plan_knows_that_something_was_there(tmp_path: pathlib.Path) -> None:
    """It said that nothing was staged, where all was a moment ago."""
    found = {
        digest: run_main(dataset_verify.main, {"destination": str(tmp_path), "manifest_digest": digest})
        for digest in ("", "abc")
    }
    assert {digest: result["error_kind"] for digest, result in found.items()} == {
        "": "not_staged",
        "abc": "not_mounted",
    }
    lenient = run_main(dataset_verify.main, {"destination": str(tmp_path), "manifest_digest": "abc", "fail": False})
    assert lenient["failed"], "nobody has looked: that is no verdict"
