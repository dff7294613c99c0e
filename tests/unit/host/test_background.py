# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work that outlives its module: who started it waits for nothing, and its result lies where Ansible looks for it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import stat
import subprocess
import sys
import time
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import background
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.background import Job, asked_for, question

Result = dict[str, t.Any]


def lost(reason: str) -> Result:
    return {"failed": True, "msg": reason}


def wait_for(path: str) -> Result:
    """The result of a job, once it is there."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        document: Result = json.loads(pathlib.Path(path).read_text())
        if "started" not in document:
            return document
        time.sleep(0.05)
    raise AssertionError(f"no result at {path}")


@pytest.fixture
def job(tmp_path: pathlib.Path) -> Job:
    return Job("busy_bee", str(tmp_path / "jobs"), 600)


def test_the_result_is_written_by_a_process_of_its_own(job: Job) -> None:
    def work() -> Result:
        return {"changed": True, "pid": os.getpid(), "session": os.getsid(0), "name": name_of("self")}

    started = job.start(work, lost)
    assert (started["started"], started["finished"]) == (True, False)
    assert started["results_file"] == os.path.join(job.directory, started["ansible_job_id"])
    assert stat.S_IMODE(os.stat(job.directory).st_mode) == 0o700
    result = wait_for(started["results_file"])
    assert result["pid"] != os.getpid()
    assert result["session"] != os.getsid(0)
    assert result["name"] == "busy_bee"
    assert os.listdir(job.directory) == [started["ansible_job_id"]]


def name_of(process: int | str) -> str:
    return pathlib.Path(f"/proc/{process}/comm").read_text().strip()


@pytest.mark.slow
def test_who_started_it_waits_for_nothing(tmp_path: pathlib.Path) -> None:
    """Ansible reads until nobody has the pipes any more."""
    program = f"""
import time
from {background.__name__} import Job
Job("busy_bee", {str(tmp_path)!r}, 600).start(lambda: time.sleep(6) or {{"late": True}}, lambda reason: {{}})
"""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=search_path())
    assert time.monotonic() - began < 5
    # Beside the result lies the next one while it is written.
    (path,) = (one for one in tmp_path.iterdir() if one.suffix != ".part")
    assert wait_for(str(path)) == {"late": True}


def search_path() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_a_process_that_is_killed_leaves_a_result_all_the_same(job: Job, tmp_path: pathlib.Path) -> None:
    pid = tmp_path / "pid"

    def work() -> Result:
        pid.write_text(str(os.getpid()))
        time.sleep(600)
        return {}

    started = job.start(work, lost)
    deadline = time.monotonic() + 30
    while not (pid.exists() and pid.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(int(pid.read_text()), signal.SIGKILL)
    assert wait_for(started["results_file"]) == lost("it was killed by SIGKILL")


def test_an_error_that_nobody_foresaw_is_the_result(job: Job) -> None:
    def work() -> Result:
        raise ZeroDivisionError("by nothing")

    assert "ZeroDivisionError: by nothing" in wait_for(job.start(work, lost)["results_file"])["msg"]


def test_what_takes_too_long_is_killed(tmp_path: pathlib.Path) -> None:
    def work() -> Result:
        time.sleep(600)
        return {}

    started = Job("busy_bee", str(tmp_path), 0.1).start(work, lost)
    assert wait_for(started["results_file"]) == lost("it took longer than 0.1 s")


def test_old_results_of_ours_are_deleted(job: Job) -> None:
    os.makedirs(job.directory)
    old = time.time() - 8 * 86400
    for name, age in (("busy_bee-1", old), ("j123.456", old), ("busy_bee-2", time.time())):
        path = os.path.join(job.directory, name)
        pathlib.Path(path).write_text("{}")
        os.utime(path, (age, age))
    started = job.start(dict, lost)
    assert wait_for(started["results_file"]) == {}
    assert sorted(os.listdir(job.directory)) == sorted(["busy_bee-2", "j123.456", started["ansible_job_id"]])


def test_only_the_action_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/bee")
    monkeypatch.delenv("ANSIBLE_ASYNC_DIR", raising=False)
    assert asked_for("busy_bee") is None
    monkeypatch.setenv(background.LIMIT_VARIABLE, "60")
    assert asked_for("busy_bee") == Job("busy_bee", "/home/bee/.ansible_async", 60)
    monkeypatch.setenv("ANSIBLE_ASYNC_DIR", "~/jobs")
    assert asked_for("busy_bee") == Job("busy_bee", "/home/bee/jobs", 60)


def document_of(path: str) -> dict[str, t.Any]:
    with open(path, encoding="utf-8") as stream:
        return t.cast("dict[str, t.Any]", json.load(stream))


def answer_to(document: dict[str, t.Any]) -> str:
    """What a node's ``cat`` prints: nothing for what is not there."""
    said = ""
    for path in question(document):
        with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as stream:
            said += stream.read()
    return said


def until(fact: t.Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_job_whose_processes_were_all_killed_is_lost(tmp_path: pathlib.Path) -> None:
    path = Job("busy_bee", str(tmp_path), 240).start(lambda: time.sleep(240) or {}, lost)["results_file"]
    until(lambda: len(document_of(path).get("processes", ())) == 2)
    document = document_of(path)
    assert background.lost(document, answer_to(document)) == ""
    supervisor, worker = (pid for pid, _started in document["processes"])
    os.kill(supervisor, signal.SIGKILL)
    time.sleep(0.2)
    assert background.lost(document, answer_to(document)) == "", "the worker goes on, and writes its result itself"
    os.kill(worker, signal.SIGKILL)
    until(lambda: background.lost(document, answer_to(document)) == "all its processes were killed")
    assert document_of(path)["finished"] is False


def test_a_job_whose_process_is_stopped_is_not_lost_but_named(tmp_path: pathlib.Path) -> None:
    path = Job("busy_bee", str(tmp_path), 240).start(lambda: time.sleep(240) or {}, lost)["results_file"]
    until(lambda: len(document_of(path).get("processes", ())) == 2)
    document = document_of(path)
    worker = document["processes"][1][0]
    assert background.stopped(document, answer_to(document)) == 0
    os.kill(worker, signal.SIGSTOP)
    try:
        until(lambda: background.stopped(document, answer_to(document)) == worker)
        assert background.lost(document, answer_to(document)) == ""
    finally:
        os.kill(worker, signal.SIGKILL)


MARKED = {"started": True, "finished": False, "boot_id": "b", "processes": [[7, "100"], [8, "101"]]}
REST = " ".join("0" for _field in range(17))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (f"b\n7 (a) b) S 1 {REST} 100 0\n", ""),
        (f"b\n8 (dataset_stage) D 1 {REST} 101 0\n", ""),
        (f"b\n7 (dataset_stage) Z 1 {REST} 100 0\n8 (other) S 1 {REST} 999 0\n", "all its processes were killed"),
        ("b\n", "all its processes were killed"),
        (f"c\n7 (a) S 1 {REST} 100 0\n", "the node was rebooted meanwhile"),
        ("", ""),
    ],
)
def test_what_a_node_says_about_the_processes_of_a_job(answer: str, reason: str) -> None:
    assert background.lost(MARKED, answer) == reason


@pytest.mark.parametrize(
    ("answer", "process"),
    [
        (f"b\n7 (a) S 1 {REST} 100 0\n8 (dataset_stage) T 1 {REST} 101 0\n", 8),
        (f"b\n7 (a) S 1 {REST} 100 0\n8 (other) T 1 {REST} 999 0\n", 0),
        (f"b\n7 (a) S 1 {REST} 100 0\n8 (dataset_stage) t 1 {REST} 101 0\n", 0),
        (f"c\n8 (dataset_stage) T 1 {REST} 101 0\n", 0),
    ],
)
def test_which_process_of_a_job_is_stopped(answer: str, process: int) -> None:
    """Not one that strace looks at, and no other that has its number."""
    assert background.stopped(MARKED, answer) == process


def test_a_job_of_others_is_not_asked_for() -> None:
    document = {"started": True, "finished": False}
    assert background.stopped(document, "c\n") == 0
    assert (question(document), background.lost(document, "c\n")) == ([], "")
