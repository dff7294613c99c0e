# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one node's part in a run gives back to Ansible."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset import rank
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import RankProgress

#: Keys of a result that Ansible itself reads.
RESERVED = {"changed", "failed", "skipped", "unreachable", "msg", "rc", "exception", "warnings", "invocation"}


def test_files_that_failed_do_not_make_ansible_fail_the_task() -> None:
    failure = {"name": "a.gz", "kind": "corrupt", "message": "It is damaged.", "remedy": "Upload it again."}
    totals = rank._totals(RankProgress(0, "gpu-1", files=3, failed=[failure]))
    assert not RESERVED & set(totals)
    assert totals["failed_files"] == [failure]


def test_at_most_a_hundred_failed_files_are_named() -> None:
    failures = [{"name": str(number), "kind": "corrupt"} for number in range(101)]
    assert rank._totals(RankProgress(0, "gpu-1", failed=failures))["failed_files"] == failures[:100]


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


def test_only_the_holder_of_the_lock_is_told_to_stop(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number in the lock's file may be another process by now."""
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
            with rank._only_worker(str(tmp_path), "/data", 0):
                assert holder.wait(60) == -15
            assert innocent.poll() is None
        finally:
            holder.kill()
            innocent.kill()
