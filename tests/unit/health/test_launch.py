# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Launches with real processes: what is started, what is read, and that nothing is left. mpirun and ssh are scripts that work here."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import time
import uuid

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._health.agent import sweep, tagged
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._health.launch import (
    Round,
    Settings,
    interruptible,
    launch_argv,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._health.model import Launch, Outcome
from health_fleet import text

#: Runs the program once, as the real one runs ranks.
MPIRUN = """#!/bin/bash
while [[ $1 == -* ]]; do shift 2; done
exec "$@"
"""
SSH = """#!/bin/bash
while [[ $1 == -* ]]; do shift; [[ $1 != *=* ]] || shift; done
[[ $1 != unknown ]] || { echo 'ssh: Could not resolve hostname unknown' >&2; exit 255; }
[[ $1 != gone ]] || { echo 'ssh: connect to host gone port 22: No route to host' >&2; exit 255; }
shift
exec "$@"
"""


@pytest.fixture
def settings(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name, script in (("mpirun", MPIRUN), ("ssh", SSH.replace('exec "$@"', 'exec bash -c "$*"'))):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return Settings(tag=uuid.uuid4().hex, directory=str(tmp_path))


def program(settings: Settings, script: str) -> None:
    path = pathlib.Path(settings.path("all_reduce_perf"))
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)


def launch(name: str = "a", nodes: tuple[str, ...] = ("n0", "n1"), timeout_s: float = 20.0) -> Launch:
    return Launch(name, nodes, "all_reduce_perf", ("-b", "1G", "-e", "1G"), 2, timeout_s)


def run(settings: Settings, *launches: Launch) -> list[Outcome]:
    return Round(settings).run(launches or (launch(),))


def test_what_is_started() -> None:
    settings = Settings(
        "t1", ranks_per_node=8, module="mpi/current", mca={"pml": "ucx"}, environment={"NCCL_DEBUG": "INFO"}
    )
    words = launch_argv(settings, launch())
    assert words[:2] + words[3:] == [
        "bash", "-lc", "health_check", "mpi/current",
        "mpirun", "-np", "16", "--host", "n0:8,n1:8", "--map-by", "ppr:8:node", "--mca", "pml", "ucx",
        "-x", "HPCAI_HEALTH_RUN=t1", "-x", "NCCL_DEBUG=INFO",
        "/opt/nccl-tests/build/all_reduce_perf", "-b", "1G", "-e", "1G",
    ]  # fmt: skip
    slurm = Settings("t1", launcher="srun", ranks_per_node=8, srun_arguments=("--mpi=pmix",))
    assert launch_argv(slurm, launch()) == [
        "srun", "--nodes=2", "--nodelist=n0,n1", "--ntasks-per-node=8", "--kill-on-bad-exit=1", "--mpi=pmix",
        "/opt/nccl-tests/build/all_reduce_perf", "-b", "1G", "-e", "1G",
    ]  # fmt: skip


def test_what_the_module_sets_for_nccl_reaches_the_ranks_but_for_what_is_given(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = pathlib.Path(settings.directory)
    (home / ".bash_profile").write_text(f"PATH={home}:$PATH\nmodule() {{ export NCCL_MODULE=$2 NCCL_GIVEN=module; }}\n")
    (home / "mpirun").write_text('#!/bin/bash\nprintf "<%s>" "$@"; exit 1\n')
    monkeypatch.setenv("HOME", str(home))
    program(settings, "exit 1")
    given = dataclasses.replace(settings, module="mpi/current", environment={"NCCL_GIVEN": "mine"})
    [outcome] = run(given, launch(nodes=("n0",)))
    assert "<-x><NCCL_MODULE>" in outcome.log_tail
    assert "<-x><NCCL_GIVEN=mine>" in outcome.log_tail
    assert "<NCCL_GIVEN>" not in outcome.log_tail


def test_numbers_of_launches_side_by_side(settings: Settings) -> None:
    program(settings, f"sleep 1; cat <<'EOF'\n{text('all_reduce_perf', 'n0', [200.0, 202.0])}\nEOF")
    began = time.monotonic()
    first, second = run(settings, launch("a"), launch("b", ("n2", "n3")))
    assert time.monotonic() - began < 1.9
    assert (first.id, second.id) == ("a", "b")
    assert first.busbw_gbytes_s == pytest.approx((200.0, 202.0), abs=0.1)
    assert (first.rc, first.transport, first.trouble, first.lost) == (0, ("IB",), "", {})


@pytest.mark.slow
def test_what_hangs_is_ended_with_what_it_left_elsewhere(settings: Settings) -> None:
    program(settings, "trap '' TERM; setsid sleep 600 & sleep 600; sleep 600")
    [outcome] = run(settings, launch(timeout_s=1.0))
    assert outcome.timed_out
    assert outcome.lost == {}
    assert tagged(settings.tag) == []


def test_a_failure_is_told_in_the_program_s_words(settings: Settings) -> None:
    program(settings, "echo \"n1: Test NCCL failure common.cu:217 'unhandled system error'\"; exit 3")
    [outcome] = run(settings)
    assert (outcome.rc, outcome.trouble, outcome.lost) == (3, "", {})
    assert "unhandled system error" in outcome.unreadable


def test_a_node_that_does_not_answer_is_lost(settings: Settings) -> None:
    program(settings, "exit 1")
    [outcome] = run(settings, launch(nodes=("n0", "gone")))
    assert outcome.lost == {"gone": "does not answer: there is no route to it"}


def test_a_node_whose_name_is_not_known_is_a_matter_of_settings(settings: Settings) -> None:
    program(settings, "exit 1")
    [outcome] = run(settings, launch(nodes=("n0", "unknown")))
    assert outcome.lost == {}
    assert outcome.trouble == "unknown does not answer: the first node cannot resolve its name"


def test_a_missing_program_is_nobody_s_fault(settings: Settings) -> None:
    [outcome] = run(settings)
    assert outcome.trouble.startswith(f"there is no {settings.path('all_reduce_perf')} on n0, n1")


def test_a_launcher_that_is_missing_or_refuses_is_nobody_s_fault(settings: Settings) -> None:
    program(settings, "echo 'There are not enough slots available in the system'; exit 1")
    [outcome] = run(settings)
    assert "fewer slots" in outcome.trouble
    pathlib.Path(settings.path("mpirun")).unlink()
    os.environ["PATH"] = settings.directory
    [outcome] = run(settings)
    assert outcome.trouble == "mpirun cannot be started: No such file or directory"


@pytest.mark.parametrize(
    ("listed", "lost"),
    [
        (
            "4711, /opt/nccl-tests/build/all_reduce_perf",
            "process 4711 (/opt/nccl-tests/build/all_reduce_perf) still holds a GPU",
        ),
        ("4711, /usr/bin/python3", ""),
    ],
)
def test_a_node_whose_driver_still_lists_a_rank_is_lost(settings: Settings, listed: str, lost: str) -> None:
    program(settings, "exit 3")
    driver = pathlib.Path(settings.path("nvidia-smi"))
    driver.write_text(f"#!/bin/bash\necho '{listed}'\n")
    driver.chmod(0o755)
    [outcome] = run(settings, launch(nodes=("n0",)))
    assert outcome.lost == ({"n0": lost} if lost else {})


@pytest.mark.slow
def test_what_was_interrupted_is_ended(settings: Settings) -> None:
    program(settings, "trap '' TERM; sleep 600; sleep 600")
    killer = subprocess.Popen(
        [sys.executable, "-c", f"import os, time; time.sleep(1); os.kill({os.getpid()}, {signal.SIGTERM})"]
    )
    with pytest.raises(ClusterError) as raised, interruptible():
        run(settings, launch(timeout_s=60))
    killer.wait()
    assert raised.value.kind == "interrupted"
    assert tagged(settings.tag) == []


def test_only_processes_of_the_run_are_ended() -> None:
    tag, other = uuid.uuid4().hex, uuid.uuid4().hex
    mine, theirs = (
        subprocess.Popen(["sleep", "600"], env={**os.environ, "HPCAI_HEALTH_RUN": one}) for one in (tag, other)
    )
    assert tagged(tag) == [mine.pid]
    assert sweep(tag) == []
    assert mine.wait(5) == -signal.SIGTERM
    assert theirs.poll() is None
    theirs.kill()
    theirs.wait()
