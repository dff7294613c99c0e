# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A SAS reaches a node through stdin: no file has it, also of a play that is killed, and no process but AzCopy shows it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import typing as t
import urllib.parse

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins import loader as plugins
from ansible.plugins.loader import become_loader, connection_loader
from ansible.template import Templar
from ansible_collections.hpcai.gpu_cluster.plugins.action.dataset_plan import ActionModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.rank import _holder
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._by_stdin import holds_sas

SECRET = "U0VDUkVUc2VjcmV0U0VDUkVUc2VjcmV0"
SAS = f"sv=2023-11-03&se=2030-01-01&sr=c&sp=rl&sig={SECRET}%3D"
URL = "https://account.blob.core.windows.net/cosmoflow"

Document = dict[str, t.Any]


class Node:
    """This machine as a node whose home and temporary files are in a directory of the test."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.home = root / "home"
        self.tmp = root / "tmp"
        for directory in (self.home, self.tmp):
            directory.mkdir()

    def start(self, tasks: list[Document], sas: str, **settings: str) -> subprocess.Popen[str]:
        """A play whose tasks know the SAS as ``test_sas``."""
        play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}
        play["vars"] = {"test_sas": "{{ lookup('ansible.builtin.env', 'TEST_SAS') }}"}
        path = self.root / "play.yml"
        path.write_text(yaml.safe_dump([play]), encoding="utf-8")
        environment = {
            **os.environ,
            "ANSIBLE_LOCALHOST_WARNING": "False",
            "ANSIBLE_LOG_PATH": str(self.root / "ansible.log"),
            "ANSIBLE_PIPELINING": "False",  # Ansible's own default
            "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
            "ANSIBLE_REMOTE_TMP": str(self.root / "remote"),
            "HOME": str(self.home),
            "TEST_SAS": sas,
            "TMPDIR": str(self.tmp),
            **settings,
        }
        program = pathlib.Path(sys.executable).parent / "ansible-playbook"
        return subprocess.Popen(
            [program, "-vvv", "--inventory", "localhost,", path],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )

    def play(self, tasks: list[Document], sas: str, **settings: str) -> str:
        process = self.start(tasks, sas, **settings)
        output, _none = process.communicate(timeout=200)
        assert process.returncode == 0, output
        return output

    def files_with(self, *words: str) -> list[str]:
        """The files below the test's directory that hold one of the words."""
        found = []
        for path in self.root.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and any(word.encode() in path.read_bytes() for word in words):
                    found.append(str(path.relative_to(self.root)))
        return found


@pytest.fixture
def node() -> t.Iterator[Node]:
    # ansible-core 2.20 and newer have a socket below TMPDIR, whose path must be short.
    with tempfile.TemporaryDirectory(prefix="sas.") as directory:
        yield Node(pathlib.Path(directory))


def processes_with(*words: str) -> dict[int, str]:
    """Processes whose command line holds one of the words, and the program of each."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (path / "cmdline").read_bytes()
            if any(word.encode() in line for word in words):
                found[int(path.name)] = os.path.basename(line.split(b"\0")[0].decode())
    return found


def wait_until(condition: t.Callable[[], t.Any], what: str) -> t.Any:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen")


@pytest.mark.blob
@pytest.mark.slow
@pytest.mark.newest
def test_a_copy_that_is_killed_leaves_no_sas(staging: t.Any, node: Node) -> None:
    """In the background, as the role starts it. Nobody looks at the files of a play that goes well."""
    staging.fill(60)
    run = staging.plan(batch_s=60)["run"]
    options = staging.params(cap_mbps=2)
    sas = options["sources"][0].pop("sas")
    words = [signature := sas.split("sig=")[1].split("&")[0], urllib.parse.unquote(signature)]
    options["sources"][0]["sas"] = "{{ test_sas }}"
    copied = ("azcopy", "cap_mbps", "destination", "log_path", "processes", "sources")
    stage = {**{name: options[name] for name in copied}, "run": run, "rank": 0, "host": "gpu-1"}
    task = {"hpcai.gpu_cluster.dataset_stage": stage, "async": 600, "poll": 0, "name": "Copy in the background"}
    output = node.play([task], sas)
    assert not [word for word in words if word in output]

    pid = wait_until(lambda: worker(staging.destination / "log"), "the start of the worker")
    shown = wait_until(lambda: processes_with(*words), "the start of AzCopy")
    assert set(shown.values()) == {os.path.basename(options["azcopy"])}
    assert node.files_with(*words) == []
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not processes_with(*words), "the end of AzCopy")
    result = wait_until(lambda: finished(node.home / ".ansible_async"), "the result of the job")
    assert (result["failed"], result["error_kind"]) == (True, "worker_lost"), result
    assert "SIGKILL" in result["msg"]
    assert node.files_with(*words) == []


def worker(log_path: pathlib.Path) -> int:
    """The process that copies, 0 before there is one."""
    for path in log_path.glob("rank-*.lock"):
        with path.open("r+") as lock:
            return _holder(lock)
    return 0


def finished(directory: pathlib.Path) -> Document:
    """The result of the only job, {} before it has one."""
    # Ansible writes the next state beside the last one, as *.tmp.
    (path,) = (path for path in directory.iterdir() if path.suffix != ".tmp")
    document: Document = json.loads(path.read_text())
    return {} if "started" in document else document


TASKS: list[Document] = [
    {
        "hpcai.gpu_cluster.azcopy_copy": {
            "source": URL,
            "destination": "/nowhere/data",
            "log_dir": "/dev/null/log",
            "sas": "{{ test_sas }}",
        }
    },
    {
        "hpcai.gpu_cluster.dataset_plan": {
            "sources": [{"url": URL, "sas": "{{ test_sas }}"}],
            "destination": "/nowhere/data",
            "hosts": ["gpu-1"],
            "mount_point": "/nowhere",
        }
    },
    {
        "hpcai.gpu_cluster.dataset_stage": {
            "sources": [{"url": URL, "sas": "{{ test_sas }}"}],
            "destination": "/nowhere/data",
            "run": "never-planned",
            "rank": 0,
            "host": "gpu-1",
        }
    },
    {"hpcai.gpu_cluster.dataset_upload": {"source": "/nowhere/source", "url": URL, "sas": "{{ test_sas }}"}},
]


@pytest.mark.slow
@pytest.mark.newest
def test_no_module_is_sent_as_a_file_with_a_sas(node: Node) -> None:
    """Also where Ansible is to keep its files, and through a way to become another user."""
    become = node.root / "become"
    # As sudo does: the options, then the command.
    become.write_text('#!/bin/sh\nwhile [ "$1" != /bin/sh ]; do shift; done\nexec "$@"\n')
    become.chmod(0o755)
    tasks: list[Document] = []
    for task in TASKS:
        (name,) = task
        # It has come to the module on the node, which says why it does nothing.
        facts = ["done is failed", "done.error_kind is defined"]
        tasks += [
            {**task, "name": f"Run {name}", "ignore_errors": True, "register": "done"},
            {"name": "Read what it says", "ansible.builtin.assert": {"that": facts}},
        ]
    tasks[0] |= {"become": True, "vars": {"ansible_become_exe": str(become)}}
    output = node.play(tasks, SAS, ANSIBLE_KEEP_REMOTE_FILES="True")
    assert SECRET not in output
    assert node.files_with(SECRET) == []


class Way:
    """How a task of the play reaches a node."""

    def __init__(self, connection: str, become: str = "") -> None:
        self.connection = connection_loader.get(connection, PlayContext())
        if become:
            self.connection.set_become_plugin(become_loader.get(become))

    def plan(self, sas: str) -> ActionModule:
        loader = DataLoader()
        task = Task.load({"action": "hpcai.gpu_cluster.dataset_plan"}, loader=loader)
        task.args = {"sources": [{"url": URL, "sas": sas}], "destination": "/data", "hosts": ["gpu-1"]}
        return ActionModule(task, self.connection, PlayContext(), loader, Templar(loader=loader), plugins)


def test_a_way_without_stdin_is_refused_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    way = Way("local", become="su")
    monkeypatch.setattr(way.connection, "exec_command", lambda *_args, **_options: pytest.fail("it was sent"))
    result = way.plan(SAS).run(task_vars={})
    assert (result["failed"], result["error_kind"]) == (True, "bad_input")
    assert "become_method su" in result["msg"]
    assert "`sas`" in result["remedy"]
    assert SECRET not in json.dumps(result)


def test_what_cannot_go_on_by_itself_is_not_sent_into_the_background() -> None:
    plan = Way("local").plan(SAS)
    plan._task.async_val = 60
    assert plan.run(task_vars={})["error_kind"] == "bad_input"


def test_without_a_sas_the_settings_decide() -> None:
    piped = Way("local").plan(SAS)
    assert piped._is_pipelining_enabled("new")
    assert not piped._is_pipelining_enabled("old")
    assert not Way("local", become="su").plan("")._is_pipelining_enabled("new")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"sas": SAS}, True),
        ({"sas": ""}, False),
        ({"sas": None, "identity": "msi"}, False),
        ({"sources": [{"url": URL, "sas": ""}, {"url": URL, "sas": "sv=1"}]}, True),
        ({"source": f"{URL}?{SAS}"}, True),
        ({"sources": [{"url": f"{URL}%3Fsp%3Drl%26Sig%3D{SECRET}"}]}, True),
        ({"sources": [{"url": URL}], "hosts": ["gpu-1"], "rank": 1}, False),
    ],
)
def test_where_a_sas_may_be(options: Document, expected: bool) -> None:
    assert holds_sas(options) == expected
