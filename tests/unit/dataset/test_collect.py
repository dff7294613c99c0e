# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A copy in the background fails in the words of the role that started it."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import typing as t

import pytest
import yaml
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import Run, write_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

Play = t.Callable[[list[dict[str, t.Any]]], str]
Task = dict[str, t.Any]


@pytest.fixture
def play(tmp_path: pathlib.Path) -> Play:
    """Runs these tasks as those of a role ``hall``; returns what Ansible prints."""

    def run(tasks: list[Task]) -> str:
        role = tmp_path / "roles/hall"
        for folder, content in (("tasks", tasks), ("defaults", {"hall_rank": 0})):
            (role / folder).mkdir(parents=True)
            (role / folder / "main.yml").write_text(yaml.safe_dump(content), encoding="utf-8")
        plays = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "roles": ["hall"]}]
        (tmp_path / "play.yml").write_text(yaml.safe_dump(plays), encoding="utf-8")
        program = pathlib.Path(sys.executable).parent / "ansible-playbook"
        environment = {
            **os.environ,
            "ANSIBLE_ASYNC_DIR": str(tmp_path / "jobs"),
            "ANSIBLE_LOCALHOST_WARNING": "False",
            "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        }
        done = subprocess.run(
            [program, "--inventory", "localhost,", tmp_path / "play.yml"],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def in_background(stage: dict[str, t.Any]) -> Task:
    return {
        "name": "Copy in the background",
        "hpcai.gpu_cluster.dataset_stage": stage,
        "async": 600,
        "poll": 0,
        "register": "job",
    }


def collect(**options: t.Any) -> Task:
    return {
        "name": "Collect it",
        "hpcai.gpu_cluster.dataset_collect": {"jid": "{{ job.ansible_job_id }}", **options},
        "register": "done",
        "until": "done is finished",
        "retries": 600,
        "delay": 1,
        "ignore_errors": True,
    }


def expect(*facts: str) -> Task:
    return {"name": "Read what it says", "ansible.builtin.assert": {"that": list(facts)}}


def test_a_failed_copy_names_the_variable_of_the_role(tmp_path: pathlib.Path, play: Play) -> None:
    stage = {
        "destination": str(tmp_path / "data"),
        "sources": [{"url": "https://account.blob.core.windows.net/c"}],
        "run": "never-planned",
        "rank": "{{ hall_rank }}",
        "host": "gpu-1",
    }
    play(
        [
            in_background(stage),
            collect(),
            expect(
                "done is failed",
                "done.error_kind == 'not_shared'",
                "'`hall_rank` of dataset_plan' in done.msg",
                "'`hall_rank` of dataset_plan' in done.remedy",
            ),
        ]
    )


@pytest.fixture
def stage(tmp_path: pathlib.Path) -> t.Callable[[str], dict[str, t.Any]]:
    """The options of a copy that starts this script as AzCopy, whose parent is the worker, and that one's the supervisor."""
    run = Run("20260101T000000-abcdef", str(tmp_path / "data"), "", False, [], [], [], 1.0)
    write_run(run, {})
    azcopy = tmp_path / "azcopy"

    def options(script: str) -> dict[str, t.Any]:
        azcopy.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        azcopy.chmod(0o755)
        return {
            "destination": run.destination,
            "sources": [],
            "run": run.id,
            "rank": 0,
            "host": "gpu-1",
            "azcopy": str(azcopy),
            "log_path": str(tmp_path / "log"),
        }

    return options


#: Of the worker alone, and together with its supervisor, as when their cgroup is killed.
KILLS = {
    "": "kill -9 $PPID",
    ": all its processes were killed": "read -r _pid _name _state supervisor _rest </proc/$PPID/stat\nkill -9 $supervisor $PPID",
}


@pytest.mark.parametrize("why", KILLS)
def test_a_worker_that_was_killed_is_a_warning(stage: t.Callable[[str], Task], play: Play, why: str) -> None:
    began = time.monotonic()
    said = play(
        [
            in_background(stage(KILLS[why])),
            {**collect(), "retries": 60},
            expect("done is not failed", "done is changed", "done is finished"),
        ]
    )
    assert f"The worker on localhost was killed{why}." in said
    assert "Traceback" not in said
    assert time.monotonic() - began < 55, "it was asked until it had been asked often enough"


def test_a_worker_that_is_stopped_is_a_warning_with_its_process(
    stage: t.Callable[[str], Task], play: Play, tmp_path: pathlib.Path
) -> None:
    """It was asked for half a minute, and then it was said that a disk may hang."""
    said = play(
        [
            in_background(stage(f"echo $PPID >{tmp_path}/pid\nkill -STOP $PPID")),
            {**collect(), "retries": 60},
            expect("done is not failed", "done is changed", "done is finished"),
        ]
    )
    worker = int((tmp_path / "pid").read_text())
    try:
        assert f"The worker on localhost does not go on: its process {worker} is stopped (SIGSTOP;" in " ".join(
            said.split()
        )
    finally:
        os.kill(worker, signal.SIGKILL)


def ended(directory: pathlib.Path, **result: t.Any) -> Task:
    """Collects a job that ended with this."""
    job = "dataset_stage-0123456789abcdef"
    (directory / "jobs").mkdir()
    document = {"started": True, "finished": True, "ansible_job_id": job, "changed": False, **result}
    (directory / "jobs" / job).write_text(json.dumps(document), encoding="utf-8")
    return collect(jid=job)


@pytest.mark.parametrize(
    ("kind", "complete", "sees"),
    [("cancelled", True, True), ("cancelled", False, True), ("io", True, False), ("not_mounted", True, True)],
)
def test_what_stopped_one_worker_is_a_warning_where_others_did_its_work(
    tmp_path: pathlib.Path, play: Play, kind: str, complete: bool, sees: bool
) -> None:
    """But a node that does not see the destination any more has failed whatever the others did."""
    error = ClusterError(
        kind, "It was told to stop (SIGTERM).", "Run again to copy the rest.", files=3, sees_destination=sees
    )
    task = ended(tmp_path, failed=True, **error.as_result())
    task["hpcai.gpu_cluster.dataset_collect"]["complete"] = complete
    forgiven = complete and kind == "cancelled"
    facts = ["done is changed", "done.files == 3"] if forgiven else ["done is failed", f"done.error_kind == '{kind}'"]
    said = " ".join(play([task, expect(*facts)]).split())
    told = "The worker on localhost stopped before its end: It was told to stop (SIGTERM). The others have copied what it had not."
    assert (told in said) == forgiven


@pytest.mark.parametrize("file", [True, False])
def test_a_node_that_was_rebooted_is_named(tmp_path: pathlib.Path, play: Play, file: bool) -> None:
    (tmp_path / "jobs").mkdir()
    job = "dataset_stage-0123456789abcdef"
    if file:
        running = {"started": True, "finished": False, "ansible_job_id": job}
        # The numbers are those of a process that is there: it is another one.
        mine = {"boot_id": "12345678-1234-1234-1234-123456789abc", "processes": [[1, "1"]]}
        (tmp_path / "jobs" / job).write_text(json.dumps({**running, **mine}), encoding="utf-8")
    said = play([{**collect(jid=job), "retries": 1, "delay": 0}, expect("done is not failed", "done is changed")])
    why = ": the node was rebooted meanwhile" if file else ""
    assert f"The worker on localhost was killed{why}." in said


def test_a_copy_that_ends_while_its_processes_are_looked_for_was_not_killed(
    tmp_path: pathlib.Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tmp_path / "jobs/dataset_stage-0123456789abcdef"
    job.parent.mkdir()
    boot_id = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    running = {"started": True, "finished": False, "ansible_job_id": job.name}
    # No process has this number: it is above the kernel's limit.
    job.write_text(json.dumps({**running, "boot_id": boot_id, "processes": [[1 << 23, "1"]]}), encoding="utf-8")
    result = tmp_path / "result"
    result.write_text(json.dumps({"failed": True, "error_kind": "disk_full", "msg": "No room."}), encoding="utf-8")
    cat = tmp_path / "programs/cat"
    cat.parent.mkdir()
    cat.write_text(f'#!/bin/sh\ncp {result} {job}\nexec /bin/cat "$@"\n', encoding="utf-8")
    cat.chmod(0o755)
    monkeypatch.setenv("PATH", f"{cat.parent}:{os.environ['PATH']}")
    said = play(
        [{**collect(jid=job.name), "retries": 1, "delay": 0}, expect("done is failed", "done.msg == 'No room.'")]
    )
    assert "was killed" not in said


def test_a_copy_that_does_not_end_says_what_to_look_at(tmp_path: pathlib.Path, play: Play) -> None:
    (tmp_path / "jobs").mkdir()
    running = {"started": True, "finished": False, "ansible_job_id": "j1.1"}
    (tmp_path / "jobs/j1.1").write_text(json.dumps(running), encoding="utf-8")
    task = {**collect(jid="j1.1"), "retries": 1, "delay": 0}
    play(
        [task, expect("done is failed", "'The copy on localhost has not ended' in done.msg", "'dmesg' in done.remedy")]
    )


def test_it_reads_the_job_and_deletes_nothing(play: Play) -> None:
    """It takes the job and nothing else, and a job may be collected twice."""
    nothing_to_do = {"destination": "/nowhere", "sources": [], "run": "", "rank": 0, "host": "gpu-1"}
    play(
        [
            {
                "name": "Copy nothing in the background",
                "hpcai.gpu_cluster.dataset_stage": nothing_to_do,
                "async": 600,
                "poll": 0,
                "register": "job",
            },
            {**collect(mode="cleanup"), "until": "true"},
            expect("done is failed", "'mode' in done.msg"),
            collect(),
            expect("done is not failed", "done.msg == 'Nothing to copy.'", "not done.changed"),
            {**collect(), "check_mode": True},
            expect("done is not failed", "done.msg == 'Nothing to copy.'", "not done.changed"),
        ]
    )
