# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the controller reads the ranks' progress: as the user that the other tasks become, and it says when it may not."""

from __future__ import annotations

import json
import pathlib
import subprocess
import threading
import time
import typing as t

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins import loader as plugins
from ansible.plugins.become import BecomeBase
from ansible.plugins.connection import ConnectionBase
from ansible.template import Templar
from ansible_collections.hpcai.gpu_cluster.plugins.action import dataset_watch
from ansible_collections.hpcai.gpu_cluster.plugins.action.dataset_watch import ActionModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset import followed
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.followed import mark_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import RankProgress
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import StatePaths
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._answers import Answers

RUN = "20260101T000000-abcdef"
DENIED = b"cat: '/data/.staging/runs/x/progress/*.json': Permission denied\n"


class Node(ConnectionBase):
    """A node that answers every command with the same thing, once it is reachable."""

    transport = "fake"
    _load_name = "fake"

    def __init__(self, *answer: t.Any) -> None:
        super().__init__(PlayContext())
        self._options = {"remote_user": "azureuser"}
        self._answer = answer
        self.asked = 0
        self.with_terminal = True

    def _connect(self) -> Node:
        return self

    def exec_command(self, cmd: str, in_data: t.Any = None, sudoable: bool = True) -> t.Any:
        self.asked += 1
        self.with_terminal = sudoable
        if not self._answer:
            raise AnsibleConnectionFailure("no route")
        return self._answer

    def put_file(self, in_path: str, out_path: str) -> None:
        raise NotImplementedError

    def fetch_file(self, in_path: str, out_path: str) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass


def watch(**keywords: t.Any) -> ActionModule:
    """The task of a play with these keywords."""
    loader = DataLoader()
    # The command line gives the method where the play does not.
    keywords = {"action": "hpcai.gpu_cluster.dataset_watch", "become_method": "sudo", **keywords}
    task = Task.load(keywords, loader=loader)
    task.args = {"destination": "/data", "hosts": ["a", "b"], "runs": [RUN], "total_files": 1, "total_bytes": 1}
    return ActionModule(task, Node(), PlayContext(), loader, Templar(loader=loader), plugins)


def finished(rank: int) -> bytes:
    return json.dumps(vars(RankProgress(rank, f"host-{rank}", state="finished", files=1))).encode()


HOSTS = {"hostvars": {"a": {}, "b": {}}}


def test_a_progress_that_may_not_be_read_ends_the_task_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    action = watch()
    monkeypatch.setattr(ActionModule, "connect", lambda _self, _variables: Node(1, b"", DENIED))
    result = action.run(task_vars=HOSTS)
    assert result["failed"]
    assert DENIED.decode().strip() in result["msg"]
    assert "become" in result["remedy"]


def test_a_terminal_puts_the_refusal_behind_what_could_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    action = watch()
    monkeypatch.setattr(ActionModule, "connect", lambda _self, _variables: Node(1, finished(0) + DENIED, b""))
    assert "Permission denied" in action.run(task_vars=HOSTS)["msg"]


def test_a_host_that_is_gone_is_replaced_and_no_file_yet_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    action = watch()
    action._task.args["silent_after_s"] = 0.0
    nodes = {"a": Node(), "b": Node(1, b"", b"cat: '/data/*.json': No such file or directory\n")}
    monkeypatch.setattr(ActionModule, "connect", lambda _self, variables: nodes[variables["name"]])
    result = action.run(task_vars={"hostvars": {name: {"name": name} for name in nodes}})
    assert result["silent"] == ["a", "b"]
    assert nodes["b"].asked == 1
    assert not nodes["b"].with_terminal


class Hung(Node):
    """A node that answers only once it is let go."""

    def __init__(self, *answer: t.Any) -> None:
        super().__init__(*answer)
        self.let_go = threading.Event()

    def exec_command(self, cmd: str, in_data: t.Any = None, sudoable: bool = True) -> t.Any:
        answer = super().exec_command(cmd, in_data, sudoable)
        self.let_go.wait(120)
        return answer


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Hung]:
    """A node whose mount hangs: what it would say is known once nobody asks any more."""
    monkeypatch.setattr(dataset_watch, "_ANSWER_S", 0.5)
    node = Hung(0, finished(0), b"")
    yield node
    node.let_go.set()


def follow(monkeypatch: pytest.MonkeyPatch, nodes: dict[str, Node], **arguments: t.Any) -> dict[str, t.Any]:
    action = watch()
    action._task.args.update(hosts=list(nodes), **arguments)
    monkeypatch.setattr(ActionModule, "connect", lambda _self, variables: nodes[variables["name"]])
    return action.run(task_vars={"hostvars": {name: {"name": name} for name in nodes}})


def test_a_host_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch, hung: Hung) -> None:
    began = time.monotonic()
    result = follow(monkeypatch, {"a": hung, "b": Node(0, finished(0) + finished(1), b"")})
    assert (result["files"], result["silent"]) == (2, [])
    assert time.monotonic() - began < 60
    assert hung.asked == 1


@pytest.mark.slow
@pytest.mark.newest
def test_of_runs_of_their_own_those_that_answer_are_followed_to_their_end(
    monkeypatch: pytest.MonkeyPatch, hung: Hung
) -> None:
    nodes = {"a": hung, "b": Node(0, finished(0), b"")}
    result = follow(monkeypatch, nodes, runs=["run-a", "run-b"], silent_after_s=2.0)
    assert (result["files"], result["silent"]) == (1, ["a"])
    assert hung.asked == 1, "it is not asked again before it has answered"


@pytest.mark.slow
@pytest.mark.newest
def test_a_host_that_answers_late_is_asked_again(monkeypatch: pytest.MonkeyPatch, hung: Hung) -> None:
    threading.Timer(1.5, hung.let_go.set).start()
    nodes = {"a": hung, "b": Node(0, finished(0), b"")}
    result = follow(monkeypatch, nodes, runs=["run-a", "run-b"], silent_after_s=60.0)
    assert (result["files"], result["silent"]) == (2, [])


class Unreachable(Node):
    """A node without power: SSH gives up after a while."""

    def exec_command(self, cmd: str, in_data: t.Any = None, sudoable: bool = True) -> t.Any:
        self.asked += 1
        time.sleep(0.6)
        raise AnsibleConnectionFailure("no route")


class Working(Node):
    """A node that says that it works until it has been asked some times, and notes when that was."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._times = times
        self.when: list[float] = []

    def exec_command(self, cmd: str, in_data: t.Any = None, sudoable: bool = True) -> t.Any:
        self.asked += 1
        self.when.append(time.monotonic())
        state = "finished" if self.asked >= self._times else "working"
        return 0, json.dumps(vars(RankProgress(0, "b", state, beat=self.asked))).encode(), b""


@pytest.mark.slow
@pytest.mark.newest
def test_a_host_that_cannot_be_reached_does_not_keep_the_others_from_showing_that_they_are_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each touches a mark when it is asked; where that stays away for six seconds, a second play begins."""
    monkeypatch.setattr(dataset_watch, "_LOOK_EVERY_S", 0.1)
    gone, works = Unreachable(), Working(12)
    watch = follow(monkeypatch, {"a": gone, "b": works}, runs=["run-a", "run-b"], silent_after_s=2.0)
    assert watch["silent"] == ["a"]
    assert gone.asked <= 3, "every other second at most"
    gaps = [later - sooner for sooner, later in zip(works.when, works.when[1:])]
    assert sorted(gaps)[len(gaps) // 2] < 0.5


def test_however_long_a_host_hangs_the_others_are_asked_in_between() -> None:
    assert dataset_watch._ANSWER_S + dataset_watch._LOOK_EVERY_S < followed._PATIENCE_S


def test_what_a_slow_host_says_is_taken_when_it_comes() -> None:
    let_go = threading.Event()
    asked: list[str] = []

    def ask(host: str) -> str:
        asked.append(host)
        assert let_go.wait(60)
        return f"{host} lives"

    answers = Answers(ask, patience_s=0.1, rest_s=60.0, at_once=4)
    assert [answers.of(["a"]), answers.of(["a"])] == [{}, {}]
    assert asked == ["a"], "who is still at it is not asked again"
    let_go.set()
    deadline = time.monotonic() + 60
    while not (late := answers.of([])):
        assert time.monotonic() < deadline
    assert late == {"a": "a lives"}


class Local(Node):
    """A node of this machine, which notes how many progress files each look prints."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[int] = []

    def exec_command(self, cmd: str, in_data: t.Any = None, sudoable: bool = True) -> t.Any:
        done = subprocess.run(["/bin/sh", "-c", cmd], capture_output=True, check=False)
        self.read.append(done.stdout.count(b'"beat"'))
        return done.returncode, done.stdout, done.stderr


def test_of_many_ranks_a_part_is_read_at_each_look(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setattr(dataset_watch, "_LOOK_EVERY_S", 0.01)
    ranks = 250
    progress = pathlib.Path(StatePaths(str(tmp_path)).run(RUN)) / "progress"
    progress.mkdir(parents=True)
    for rank in range(ranks):
        (progress / f"{rank}.json").write_bytes(finished(rank))
    node = Local()
    action = watch()
    hosts = [f"host-{rank}" for rank in range(ranks)]
    action._task.args.update(destination=str(tmp_path), hosts=hosts, total_files=ranks)
    monkeypatch.setattr(ActionModule, "connect", lambda _self, _variables: node)
    result = action.run(task_vars={"hostvars": {host: {} for host in hosts}})
    assert (result["files"], result["silent"]) == (ranks, [])
    assert max(node.read) <= 100
    assert pathlib.Path(mark_of(str(tmp_path), RUN)).exists()


class Become:
    """A local node whose progress is readable through its own `sudo` only, which notes what it was asked."""

    def __init__(self, root: pathlib.Path) -> None:
        self.destination = root / "data"
        self.log = root / "log"
        self.program = root / "become"
        progress = pathlib.Path(StatePaths(str(self.destination)).run(RUN)) / "progress"
        progress.mkdir(parents=True)
        for rank in (0, 1):
            (progress / f"{rank}.json").write_bytes(finished(rank))
        # As sudo does: the options, then the command.
        self.program.write_text(
            f'#!/bin/sh\necho "$*" >>{self.log}\nwhile [ "$1" != /bin/sh ]; do shift; done\nexec "$@"\n'
        )
        self.program.chmod(0o755)

    def watch(self, variables: dict[str, t.Any], **keywords: t.Any) -> dict[str, t.Any]:
        action = watch(**keywords)
        action._task.args["destination"] = str(self.destination)
        host = {"ansible_connection": "local", "ansible_become_exe": str(self.program), **variables}
        return action.run(task_vars={"hostvars": {"a": host, "b": host}})


def test_a_host_without_a_run_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its share is whole. The mark of no run would be a file among the runs, at which later plays would fail."""
    nodes = {"a": Node(0, b"", b""), "b": Node(0, finished(0), b"")}
    result = follow(monkeypatch, nodes, runs=["", RUN])
    assert (nodes["a"].asked, result["files"], result["silent"]) == (0, 1, [])


def test_a_host_that_sees_nothing_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Node(1, b"", b"cat: '/data/.staging/runs/x/progress/*.json': Transport endpoint is not connected")
    result = follow(monkeypatch, {"a": gone, "b": Node(0, finished(0) + finished(1), b"")}, silent_after_s=30.0)
    assert (result["files"], result["silent"]) == (2, [])


@pytest.fixture
def become(tmp_path: pathlib.Path) -> Become:
    return Become(tmp_path)


@pytest.mark.parametrize(
    ("variables", "keywords", "user"),
    [
        ({}, {"become": True, "become_user": "stager"}, "stager"),
        ({"ansible_become": True, "ansible_become_user": "stager"}, {}, "stager"),
        ({"ansible_become": "yes", "ansible_become_method": "sudo", "ansible_become_user": "other"}, {}, "other"),
        ({"ansible_become_user": "stager"}, {"become": True, "become_user": "other"}, "stager"),
    ],
)
def test_progress_is_read_as_the_user_that_the_play_becomes(
    become: Become, variables: dict[str, t.Any], keywords: dict[str, t.Any], user: str
) -> None:
    result = become.watch(variables, **keywords)
    assert (result["files"], result["silent"]) == (2, [])
    assert f"-u {user} " in become.log.read_text()


@pytest.mark.parametrize(("variables", "keywords"), [({}, {}), ({"ansible_become": False}, {"become": True})])
def test_progress_is_read_as_the_login_user_where_nobody_becomes_another(
    become: Become, variables: dict[str, t.Any], keywords: dict[str, t.Any]
) -> None:
    assert become.watch(variables, **keywords)["files"] == 2
    assert not become.log.exists()


def test_a_run_that_is_followed_shows_it(become: Become) -> None:
    mark = pathlib.Path(mark_of(str(become.destination), RUN))
    assert become.watch({})["files"] == 2
    assert mark.exists()


@pytest.mark.slow
@pytest.mark.newest
def test_a_play_that_was_killed_follows_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = iter((100, 100, 1))
    monkeypatch.setattr(dataset_watch.os, "getppid", lambda: next(parents))
    node = Node(0, json.dumps(vars(RankProgress(0, "host-0"))).encode(), b"")
    result = follow(monkeypatch, {"a": node, "b": node}, silent_after_s=3600.0)
    assert (node.asked, result["silent"]) == (2, [])


def test_a_password_that_the_controller_was_told_reaches_the_way_to_become(become: Become) -> None:
    action = watch(become=True)
    action._play_context.become_pass = "told"
    connection = action.connect({"ansible_connection": "local"})
    assert isinstance(connection.become, BecomeBase)
    assert connection.become.get_option("become_pass") == "told"
