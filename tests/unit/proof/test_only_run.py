# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two runs in one checkout."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
import typing as t

import pytest
from proof.__main__ import only_run
from proof.execute import Clock, Runner
from proof.step import Step

TESTS = pathlib.Path(__file__).resolve().parents[2]
HOLD = """
import pathlib, sys, time
from proof.__main__ import only_run
with only_run(pathlib.Path(sys.argv[1])) as lock:
    print(lock is not None, flush=True)
    time.sleep(600)
"""
#: A run with one step that goes on until there is a file "end".
STEP = """
import pathlib, sys
from proof.__main__ import only_run
from proof.execute import Clock, Runner
from proof.step import Step
root = pathlib.Path(sys.argv[1])
command = (sys.executable, "-c", sys.argv[2])
with only_run(root) as lock:
    Runner(root, Clock(), lock=lock).run([Step("a", (command,))], {"a": 0.1}, 1, lambda step, outcome: None)
"""
GOES_ON = """
import os, pathlib, time
pathlib.Path("began.part").write_text(str(os.getpid()))
os.rename("began.part", "began")
while not os.path.exists("end"): time.sleep(0.1)
"""
#: As molecule and Ansible start what stays: podman, QEMU's keeper, Azurite.
LEAVES_A_DAEMON = """
import pathlib, subprocess
process = subprocess.Popen(["sleep", "600"], start_new_session=True)
pathlib.Path("daemon").write_text(str(process.pid))
"""


def wait(until: t.Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not until():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def is_free(root: pathlib.Path) -> bool:
    with only_run(root) as lock:
        return lock is not None


def start(code: str, root: pathlib.Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-c", code, str(root), *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_the_second_run_is_told_so_until_the_first_has_ended_or_died(tmp_path: pathlib.Path) -> None:
    with start(HOLD, tmp_path) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "True\n"
        assert not is_free(tmp_path)
        first.send_signal(signal.SIGKILL)
    assert is_free(tmp_path)
    assert is_free(tmp_path)


def test_a_killed_run_keeps_others_out_as_long_as_its_step_goes_on(tmp_path: pathlib.Path) -> None:
    began = tmp_path / "began"
    with start(STEP, tmp_path, GOES_ON) as run:
        wait(began.exists, "the step did not begin")
        run.send_signal(signal.SIGKILL)
    assert not is_free(tmp_path)
    (tmp_path / "end").touch()
    wait(lambda: is_free(tmp_path), "the step has ended, and its run is still taken to be at work")


def test_what_a_step_leaves_on_purpose_keeps_nobody_out(tmp_path: pathlib.Path) -> None:
    with start(STEP, tmp_path, LEAVES_A_DAEMON) as run:
        assert run.wait(timeout=120) == 0
    daemon = int((tmp_path / "daemon").read_text())
    try:
        os.kill(daemon, 0)
        assert is_free(tmp_path)
    finally:
        os.kill(daemon, signal.SIGKILL)


@pytest.mark.slow
def test_what_a_playbook_leaves_on_purpose_keeps_nobody_out(tmp_path: pathlib.Path) -> None:
    (tmp_path / "play.yml").write_text(
        "- hosts: localhost\n  connection: local\n  gather_facts: false\n  tasks:\n"
        "    - ansible.builtin.shell: setsid sleep 600 >/dev/null 2>&1 & echo $! > daemon\n"
        "      args: {chdir: '{{ playbook_dir }}'}\n"
    )
    playbook = str(pathlib.Path(sys.executable).with_name("ansible-playbook"))
    with only_run(tmp_path) as lock:
        step = Step("a", ((playbook, "-i", "localhost,", "play.yml"),))
        (outcome,) = Runner(tmp_path, Clock(), lock=lock).run([step], {"a": 0.1}, 1, lambda _step, _outcome: None)
    assert outcome.result == "ok"
    daemon = int((tmp_path / "daemon").read_text())
    try:
        os.kill(daemon, 0)
        assert is_free(tmp_path)
    finally:
        os.kill(daemon, signal.SIGKILL)
