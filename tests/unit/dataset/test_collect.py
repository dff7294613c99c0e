# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A copy in the background fails in the words of the role that started it, and says what became of its worker."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import typing as t

import pytest
import yaml
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import Run, write_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

# One process for all, so that the newest ansible-core takes all or none.
pytestmark = [pytest.mark.slow, pytest.mark.newest]

Task = dict[str, t.Any]

#: No process has this number: it is above the kernel's limit.
_NO_PROCESS = 1 << 23
#: Of the worker alone, and together with its supervisor, as when their cgroup is killed. A script that starts as AzCopy has the
#: worker as its parent, and that one's is the supervisor.
KILLS = {
    "killed": "kill -9 $PPID",
    "all_killed": "read -r _pid _name _state supervisor _rest </proc/$PPID/stat\nkill -9 $supervisor $PPID",
    "stopped": "echo $PPID >{root}/pid\nkill -STOP $PPID",
}
#: What stopped a worker, whether the dataset is whole all the same, and whether the node still sees it.
ENDS = [
    ("cancelled", True, True),
    ("cancelled", False, True),
    ("azcopy_crashed", True, True),
    ("io", True, False),
    ("not_mounted", True, True),
]


def in_background(name: str, **stage: t.Any) -> Task:
    return {
        "name": "Copy in the background",
        "hpcai.gpu_cluster.dataset_stage": {"sources": [], "rank": 0, "host": "gpu-1", **stage},
        "async": 600,
        "poll": 0,
        "register": f"job_{name}",
    }


def collect(name: str, *, retries: int = 60, delay: int = 1, check_mode: bool = False, **options: t.Any) -> Task:
    """Its result is that of this name."""
    return {
        "name": "Collect it",
        "hpcai.gpu_cluster.dataset_collect": {"jid": f"{{{{ job_{name}.ansible_job_id }}}}", **options},
        "register": f"done_{name}",
        "until": f"done_{name} is finished",
        "retries": retries,
        "delay": delay,
        "ignore_errors": True,
        "check_mode": check_mode,
    }


@dataclasses.dataclass
class Hall:
    """A role ``hall`` on this machine: what its tasks returned, by their names, and all that Ansible printed."""

    root: pathlib.Path

    def __post_init__(self) -> None:
        self.jobs = self.root / "jobs"
        self.jobs.mkdir()
        self.results: dict[str, dict[str, t.Any]] = {}
        self.said = ""

    def stage(self, name: str, script: str) -> Task:
        """A copy that starts this script as AzCopy."""
        place = self.root / name
        place.mkdir()
        run = Run("20260101T000000-abcdef", str(place / "data"), "", False, [], [], [], 1.0)
        write_run(run, {})
        azcopy = place / "azcopy"
        azcopy.write_text(f"#!/bin/sh\n{script.format(root=self.root)}\n", encoding="utf-8")
        azcopy.chmod(0o755)
        options = {"destination": run.destination, "run": run.id, "azcopy": str(azcopy), "log_path": str(place / "log")}
        return in_background(name, **options)

    def job(self, name: str, **result: t.Any) -> str:
        """The id of a job that has come to this."""
        job = f"dataset_stage-{name}"
        document = {"started": True, "finished": False, "ansible_job_id": job, **result}
        (self.jobs / job).write_text(json.dumps(document), encoding="utf-8")
        return job

    def run(self, tasks: list[Task]) -> None:
        names = [task["register"] for task in tasks if task["register"].startswith("done_")]
        found = ", ".join(f"'{name[len('done_') :]}': {name}" for name in names)
        kept = {"content": f"{{{{ {{{found}}} | to_json }}}}", "dest": str(self.root / "results")}
        role = self.root / "roles/hall"
        for folder, content in (("tasks", [*tasks, {"ansible.builtin.copy": kept}]), ("defaults", {"hall_rank": 0})):
            (role / folder).mkdir(parents=True)
            (role / folder / "main.yml").write_text(yaml.safe_dump(content), encoding="utf-8")
        plays = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "roles": ["hall"]}]
        (self.root / "play.yml").write_text(yaml.safe_dump(plays), encoding="utf-8")
        environment = {
            **os.environ,
            "ANSIBLE_ASYNC_DIR": str(self.jobs),
            "ANSIBLE_LOCALHOST_WARNING": "False",
            "ANSIBLE_PIPELINING": "True",
            "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
            "PATH": f"{self.root}/programs:{os.environ['PATH']}",
        }
        program = pathlib.Path(sys.executable).parent / "ansible-playbook"
        done = subprocess.run(
            [program, "--inventory", "localhost,", self.root / "play.yml"],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=500,
        )
        self.said = " ".join((done.stdout + done.stderr).split())
        assert done.returncode == 0, done.stdout + done.stderr
        self.results = json.loads((self.root / "results").read_text())


def jobs_that_ended(hall: Hall) -> t.Iterator[Task]:
    for kind, complete, sees in ENDS:
        name = f"{kind}_{complete}"
        error = ClusterError(kind, f"It ended as {name}.", "Run again.", files=3, sees_destination=sees)
        job = hall.job(name, finished=True, changed=False, failed=True, **error.as_result())
        yield collect(name, jid=job, complete=complete)


def jobs_that_run(hall: Hall) -> t.Iterator[Task]:
    """By their files: of a node that was rebooted, with the file and without, of one that ends now, and of one that does not."""
    once: dict[str, t.Any] = {"retries": 1, "delay": 0}
    # The numbers are those of a process that is there: it is another one.
    other_boot = {"boot_id": "12345678-1234-1234-1234-123456789abc", "processes": [[1, "1"]]}
    yield collect("rebooted", jid=hall.job("rebooted", **other_boot), **once)
    yield collect("no_file", jid="dataset_stage-never", **once)

    boot_id = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    job = hall.job("ends_now", boot_id=boot_id, processes=[[_NO_PROCESS, "1"]])
    result = hall.root / "result"
    result.write_text(json.dumps({"failed": True, "error_kind": "disk_full", "msg": "No room."}), encoding="utf-8")
    cat = hall.root / "programs/cat"
    cat.parent.mkdir()
    # It ends while its process is looked for.
    ends = f'case "$*" in */{_NO_PROCESS}/*) cp {result} {hall.jobs}/{job};; esac'
    cat.write_text(f'#!/bin/sh\n{ends}\nexec /bin/cat "$@"\n', encoding="utf-8")
    cat.chmod(0o755)
    yield collect("ends_now", jid=job, **once)
    yield collect("hangs", jid=hall.job("hangs"), **once)


@pytest.fixture(scope="module")
def hall(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Hall]:
    hall = Hall(tmp_path_factory.mktemp("hall"))
    sources = [{"url": "https://account.blob.core.windows.net/c"}]
    failed = {"destination": str(hall.root / "data"), "sources": sources, "run": "never-planned"}
    start = [
        *(hall.stage(name, script) for name, script in KILLS.items()),
        in_background("failed", **{**failed, "rank": "{{ hall_rank }}"}),
        in_background("nothing", destination="/nowhere", run=""),
    ]
    nothing = "{{ job_nothing.ansible_job_id }}"
    read = [
        *jobs_that_ended(hall),
        *jobs_that_run(hall),
        *(collect(name) for name in (*KILLS, "failed")),
        {**collect("mode", jid=nothing, mode="cleanup"), "until": "true"},
        collect("nothing"),
        collect("again", jid=nothing, check_mode=True),
    ]
    try:
        hall.run([*start, *read])
        yield hall
    finally:
        if (hall.root / "pid").exists():
            os.kill(int((hall.root / "pid").read_text()), signal.SIGKILL)


def test_a_failed_copy_names_the_variable_of_the_role(hall: Hall) -> None:
    done = hall.results["failed"]
    assert (done["failed"], done["error_kind"]) == (True, "not_shared")
    assert "`hall_rank` of dataset_plan" in done["msg"]
    assert "`hall_rank` of dataset_plan" in done["remedy"]


def is_warned_of(done: dict[str, t.Any]) -> None:
    """It has not failed, and was not asked until it had been asked often enough."""
    assert (done["failed"], done["changed"], done["finished"]) == (False, True, True)
    assert done["attempts"] < 55


@pytest.mark.parametrize(("name", "why"), [("killed", ""), ("all_killed", ": all its processes were killed")])
def test_a_worker_that_was_killed_is_a_warning(hall: Hall, name: str, why: str) -> None:
    done = hall.results[name]
    is_warned_of(done)
    said = f"The worker on localhost was killed{why}."
    assert [said in text for text in done["warnings"]] == [True]
    assert said in hall.said
    assert "Traceback" not in hall.said


def test_a_worker_that_is_stopped_is_a_warning_with_its_process(hall: Hall) -> None:
    """It was asked for half a minute, and then it was said that a disk may hang."""
    is_warned_of(hall.results["stopped"])
    worker = (hall.root / "pid").read_text().strip()
    assert f"The worker on localhost does not go on: its process {worker} is stopped (SIGSTOP;" in hall.said


@pytest.mark.parametrize(("kind", "complete", "_sees"), ENDS)
def test_what_stopped_one_worker_is_a_warning_where_others_did_its_work(
    hall: Hall, kind: str, complete: bool, _sees: bool
) -> None:
    """But a node that does not see the destination any more has failed whatever the others did."""
    name = f"{kind}_{complete}"
    done = hall.results[name]
    forgiven = complete and kind in ("azcopy_crashed", "cancelled")
    assert done["failed"] == (not forgiven)
    assert (done["changed"], done["files"]) == (True, 3) if forgiven else done["error_kind"] == kind
    told = (
        f"The worker on localhost stopped before its end: It ended as {name}. The others have copied what it had not."
    )
    assert (told in hall.said) == forgiven


@pytest.mark.parametrize(("name", "why"), [("rebooted", ": the node was rebooted meanwhile"), ("no_file", "")])
def test_a_node_that_was_rebooted_is_named(hall: Hall, name: str, why: str) -> None:
    done = hall.results[name]
    assert (done["failed"], done["changed"]) == (False, True)
    assert [f"The worker on localhost was killed{why}." in text for text in done["warnings"]] == [True]


def test_a_copy_that_ends_while_its_processes_are_looked_for_was_not_killed(hall: Hall) -> None:
    done = hall.results["ends_now"]
    assert (done["failed"], done["msg"]) == (True, "No room.")
    assert "was killed" not in str(done)


def test_a_copy_that_does_not_end_says_what_to_look_at(hall: Hall) -> None:
    done = hall.results["hangs"]
    assert done["failed"]
    assert "The copy on localhost has not ended" in done["msg"]
    assert "dmesg" in done["remedy"]


def test_it_reads_the_job_and_deletes_nothing(hall: Hall) -> None:
    """It takes the job and nothing else, and a job may be collected twice."""
    assert hall.results["mode"]["failed"]
    assert "mode" in hall.results["mode"]["msg"]
    for name in ("nothing", "again"):
        done = hall.results[name]
        assert (done["failed"], done["msg"], done["changed"]) == (False, "Nothing to copy.", False)
