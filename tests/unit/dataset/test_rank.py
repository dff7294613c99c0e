# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one node's part in a run gives back to Ansible."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset import rank
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import RankProgress, Run, read_progress

#: Keys of a result that Ansible itself reads.
RESERVED = {"changed", "failed", "skipped", "unreachable", "msg", "rc", "exception", "warnings", "invocation"}


def test_files_that_failed_do_not_make_ansible_fail_the_task() -> None:
    failure = {"name": "a.gz", "kind": "corrupt", "message": "It is damaged.", "remedy": "Upload it again."}
    totals = rank._totals(RankProgress(0, "gpu-1", files=3, failed=[failure]))
    assert not RESERVED & set(totals)
    assert totals["failed_files"] == [failure]


def test_twenty_failed_files_are_named_and_all_are_counted(tmp_path: pathlib.Path) -> None:
    """The progress of every rank is written every two seconds and read every second: it must not grow with failures."""
    failures = [{"name": f"{number:0200d}", "kind": "corrupt"} for number in range(20_000)]
    progress = RankProgress(0, "gpu-1")
    for start in range(0, len(failures), 7000):
        progress.add_failed(failures[start : start + 7000])
    totals = rank._totals(progress)
    assert totals["failed_files"] == failures[:20]
    assert totals["failed_count"] == 20_000
    run = Run("r", str(tmp_path), "", False, [], [], [], 1.0)
    pathlib.Path(run.progress).mkdir(parents=True)
    progress.write(run)
    assert pathlib.Path(run.progress, "0.json").stat().st_size < 10_000
    assert read_progress(run) == [progress]


#: Holds the lock of a rank, with the number of another process in its file.
HOLDER = """
import fcntl, os, sys, time
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
fcntl.lockf(lock, fcntl.LOCK_EX)
lock.write(sys.argv[2])
lock.flush()
print("held", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("is_stopped", [False, True])
def test_only_the_holder_of_the_lock_is_told_to_stop(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, is_stopped: bool
) -> None:
    """A number in the lock's file may be another process by now. And a process that is stopped does not hear that it shall end."""
    monkeypatch.setattr(rank, "_STOP_OLD_WORKER_S", 120.0)
    with rank._only_worker(str(tmp_path), "/data", 0):
        pass
    (path,) = tmp_path.iterdir()
    innocent = subprocess.Popen(["sleep", "600"])
    argv = [sys.executable, "-c", HOLDER, str(path), str(innocent.pid)]
    with innocent, subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            if is_stopped:
                holder.send_signal(signal.SIGSTOP)
            with rank._only_worker(str(tmp_path), "/data", 0):
                assert holder.wait(60) == -15
            assert innocent.poll() is None
        finally:
            holder.kill()
            innocent.kill()
