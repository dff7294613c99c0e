# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work in a child process: its answer is the parent's, and the parent answers although the child hangs."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import deadline
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.deadline import (
    OverdueError,
    allow,
    run_within,
    without_deadline,
)
from hypothesis import given, settings
from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def within(work: t.Callable[[], t.Any], timeout_s: float = 0.0, start_s: float = 30.0) -> t.Any:
    return run_within(lambda: {"value": work()}, timeout_s=timeout_s, start_s=start_s)["value"]


def stop() -> None:
    signal.raise_signal(signal.SIGSTOP)


@pytest.mark.slow
@given(value=JSON)
@settings(max_examples=10, deadline=None)
def test_the_answer_is_what_the_work_returns(value: t.Any) -> None:
    assert within(lambda: value) == value


def test_a_long_answer_comes_whole() -> None:
    assert within(lambda: "x" * 5_000_000) == "x" * 5_000_000


def test_the_error_is_what_the_work_raises() -> None:
    def work() -> None:
        raise ClusterError("io", "It fails.", "Look.", place="/mnt")

    with pytest.raises(ClusterError) as raised:
        within(work)
    assert raised.value.as_result() == ClusterError("io", "It fails.", "Look.", place="/mnt").as_result()


def test_a_defect_is_told_with_its_place() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)test_deadline\.py.*ZeroDivisionError"):
        within(lambda: 1 // 0)


def test_work_whose_process_is_killed_is_lost() -> None:
    with pytest.raises(ClusterError, match="SIGKILL") as raised:
        within(lambda: signal.raise_signal(signal.SIGKILL))
    assert raised.value.kind == "worker_lost"


def test_work_that_ignores_signals_ends_in_time() -> None:
    def work() -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
        time.sleep(60)

    with pytest.raises(OverdueError) as raised:
        within(work, timeout_s=0.1)
    assert raised.value.killed
    with pytest.raises(ProcessLookupError):
        os.kill(raised.value.pid, 0)


def test_work_that_cannot_be_killed_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a child sleeps uninterruptibly no signal does anything."""
    kill = os.kill
    monkeypatch.setattr(deadline, "_KILL_S", 0.1)
    monkeypatch.setattr(os, "kill", lambda *_: None)
    with pytest.raises(OverdueError) as raised:
        within(stop, timeout_s=0.1)
    assert not raised.value.killed
    kill(raised.value.pid, signal.SIGKILL)
    os.waitpid(raised.value.pid, 0)


@pytest.mark.slow
@given(found=st.lists(st.floats(0, 0.02), max_size=5))
@settings(max_examples=5, deadline=None)
def test_the_deadline_follows_from_the_work_that_is_found(found: list[float]) -> None:
    def work() -> None:
        for seconds in found:
            allow(seconds)
        stop()

    with pytest.raises(OverdueError) as raised:
        within(work, start_s=0.1)
    assert raised.value.limit_s == pytest.approx(0.1 + sum(found))


def test_a_given_time_is_not_put_off() -> None:
    def work() -> None:
        allow(60)
        stop()

    with pytest.raises(OverdueError) as raised:
        within(work, timeout_s=0.1)
    assert raised.value.limit_s == 0.1


@pytest.mark.slow
def test_what_ends_by_itself_takes_nothing_of_the_time() -> None:
    def work() -> None:
        with without_deadline():
            time.sleep(0.3)
        stop()

    with pytest.raises(OverdueError) as raised:
        within(work, start_s=0.2)
    assert raised.value.limit_s > 0.5


def test_nobody_outside_of_such_work_is_allowed_anything() -> None:
    allow(60)
    with pytest.raises(OverdueError) as raised:
        within(stop, start_s=0.1)
    assert raised.value.limit_s == 0.1


_LEAVES_A_CHILD = """
import os, signal
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import deadline
deadline._KILL_S = 0.1
kill, os.kill = os.kill, lambda *_: None
try:
    deadline.run_within(lambda: signal.raise_signal(signal.SIGSTOP) or {}, timeout_s=0.2, start_s=1)
except deadline.OverdueError as late:
    print(late.pid)
"""


@pytest.mark.slow
def test_a_child_that_is_left_behind_holds_none_of_the_pipes_that_are_waited_for() -> None:
    """As Ansible and sshd wait for the end of a module's output."""
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", _LEAVES_A_CHILD],
        capture_output=True, text=True, timeout=30, check=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    os.kill(int(done.stdout), signal.SIGKILL)


_GOES_ON = """
import os, sys, time
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import deadline
def work():
    time.sleep(2)
    with open(sys.argv[1], "w") as stream:
        stream.write("done")
    return {}
print("begun", flush=True)
deadline.run_within(work, timeout_s=60, start_s=1)
"""


@pytest.mark.slow
def test_who_is_not_heard_any_more_waits_no_longer_and_lets_the_work_go_on(tmp_path: pathlib.Path) -> None:
    """The connection to the node broke: so it was without a child, too."""
    path = os.pathsep.join(filter(None, sys.path))
    with subprocess.Popen(
        [sys.executable, "-c", _GOES_ON, str(tmp_path / "left")],
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 1
    until = time.monotonic() + 30
    while not (tmp_path / "left").exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert (tmp_path / "left").exists()
