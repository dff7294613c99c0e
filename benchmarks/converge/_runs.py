# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs of ansible-playbook that are measured: wall, CPU of the controller, and every task result."""

from __future__ import annotations

import collections
import ctypes
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import typing as t
from pathlib import Path

import yaml
from lab.task_results import TaskResult

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SITE = ROOT / "playbooks/site.yml"
_PR_SET_CHILD_SUBREAPER = 36


class Task(t.NamedTuple):
    """What one task took over all hosts."""

    role: str
    name: str
    wall_s: float
    cpu_s: float


@dataclasses.dataclass(frozen=True)
class Run:
    """What one ansible-playbook took.

    ``cpu_s`` is the CPU of ansible-playbook and of all that it waited for. ssh's ControlMasters go on in the background
    until they are idle, so no such figure includes them; here they are ended and waited for, too: ``masters_cpu_s``.
    """

    wall_s: float
    cpu_s: float
    masters_cpu_s: float
    main_rss_mib: float
    results: list[TaskResult]
    tasks: list[Task]
    log: Path

    def per_host(self) -> collections.Counter[str]:
        """How many task results each host has."""
        return collections.Counter(result.host for result in self.results)

    @property
    def changed(self) -> list[TaskResult]:
        return [result for result in self.results if result.changed]


def stop(message: str) -> t.NoReturn:
    """End the benchmark because it cannot measure what it promises."""
    print(message, file=sys.stderr)
    sys.exit(2)


def _names(results: t.Iterable[TaskResult]) -> str:
    return ", ".join(sorted({f"{one.role}: {one.task}" if one.role else one.task for one in results}))


def unchanged(run: Run, playbook: Path) -> Run:
    """The run, if it changed nothing."""
    if run.changed:
        stop(f"{playbook.name} changed something, so that this is not the work of a second run: {_names(run.changed)}")
    return run


class Bench:
    """Runs playbooks with connections of their own, which are gone when the benchmark ends.

    ``hosts`` and ``peer_hosts`` say how many nodes the measures have. What the nodes are is for a subclass to say.
    """

    #: Given to every playbook.
    environment: t.Mapping[str, str] = {}

    def __init__(self, hosts: int, peer_hosts: int) -> None:
        self.hosts, self.peer_hosts = hosts, peer_hosts
        self.site_runs: dict[int, Run] = {}
        # ssh's ControlMasters detach themselves. As their subreaper this process can end and count them.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        # Short, because a socket's path must not have more than 108 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="converge-"))
        self._number = 0

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_exc: object) -> None:
        _end_children()
        shutil.rmtree(self.folder, ignore_errors=True)

    def inventories(self, count: int) -> list[Path]:
        """What names ``count`` nodes and their variables."""
        raise NotImplementedError

    def variables(self) -> dict[str, t.Any]:
        """What is given to every playbook beside the inventory."""
        return {}

    def converged(self) -> Run:
        """A run of site.yml that had nothing to change, on the nodes themselves; stops where that cannot be had."""
        raise NotImplementedError

    def ready_for_peers(self, playbook: Path) -> None:
        """Bring the nodes to where the playbook has nothing to change either."""

    def defaults_inventory(self) -> Path:
        """The defaults of all roles, for a playbook without roles: first in the list, so that the nodes' values win."""
        defaults: dict[str, t.Any] = {}
        for path in sorted(ROOT.glob("roles/*/defaults/main.yml")):
            defaults.update(yaml.safe_load(path.read_text(encoding="utf-8")))
        path = self.folder / "defaults.yml"
        path.write_text(json.dumps({"all": {"vars": defaults}}), encoding="utf-8")
        return path

    def play(
        self,
        playbook: Path,
        *inventories: Path,
        extra: t.Mapping[str, t.Any] | None = None,
        forks: int = 25,
    ) -> Run:
        """Run a playbook and wait for everything that it started."""
        self._number += 1
        log = self.folder / f"{self._number:02d}-{playbook.stem}.log"
        results = log.with_suffix(".json")
        command = [str(ROOT / ".venv/bin/ansible-playbook"), str(playbook), "--forks", str(forks)]
        for inventory in inventories:
            command += ["--inventory", str(inventory)]
        variables = {"ansible_control_path_dir": str(self.folder), **(extra or {})}
        command += ["--extra-vars", json.dumps(variables)]
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".venv/collections"),
            "ANSIBLE_CALLBACK_PLUGINS": str(HERE / "callbacks"),
            "CONVERGE_RESULTS": str(results),
            **self.environment,
        }
        with log.open("wb") as output:
            started = time.perf_counter()
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
            _pid, status, used = os.wait4(process.pid, 0)
            wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        masters = _end_children()
        if process.returncode:
            print("".join(log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)[-40:]))
            stop(f"{playbook.name} failed; nothing can be said about a run that does not end well.")
        noted = json.loads(results.read_text(encoding="utf-8"))
        return Run(
            wall_s=wall,
            cpu_s=used.ru_utime + used.ru_stime,
            masters_cpu_s=masters,
            main_rss_mib=used.ru_maxrss / 1024,
            results=[TaskResult(*entry) for entry in noted["results"]],
            tasks=_tasks(noted["began"]),
            log=log,
        )


def _tasks(began: list[tuple[str, str, float, float]]) -> list[Task]:
    return [Task(one[0], one[1], after[2] - one[2], after[3] - one[3]) for one, after in zip(began, began[1:])]


def _children() -> list[int]:
    tasks = Path("/proc/self/task").iterdir()
    return [int(pid) for task in tasks for pid in (task / "children").read_text(encoding="ascii").split()]


def _end_children() -> float:
    """End what a run left behind, and return the CPU that it had used."""
    total = 0.0
    for pid in _children():
        os.kill(pid, signal.SIGTERM)
    while _children():
        _pid, _status, used = os.wait3(0)
        total += used.ru_utime + used.ru_stime
    return total


__all__ = ["HERE", "ROOT", "SITE", "Bench", "Run", "Task", "stop", "unchanged"]
