# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the same tests for one mutant after the other, each time in a fork of a process that has imported what they need.

    python _warm.py PYTEST-ARGUMENT...

The first run, without a mutant, notes how long each test takes and what is imported from outside the current directory. A line on
standard input asks for another run, the quickest test first. Each run is answered by one line of JSON on standard output: ``outcome``
(``passed``, ``failed``, or ``endless``: it took four times what the first run took, and more) and, after the first, ``output``.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import typing as t
from pathlib import Path

import pytest


class Limits(t.NamedTuple):
    """CPU time says more than the clock where other work goes on; the clock finds what waits for ever."""

    cpu_s: float = 1200.0
    clock_s: float = 3600.0


class Order:
    """A plugin of pytest: notes the seconds of each test, and puts the quickest first where they are known."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._known = seconds
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self._known.get(item.nodeid, 0.0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration


def run(arguments: list[str], seconds: dict[str, float], notes: Path, limits: Limits) -> str:
    """Run the tests in a fork, which leaves what it learned in ``notes``; returns the outcome."""
    child = os.fork()
    if not child:
        _be_the_child(arguments, seconds, notes, limits)
    descriptor = os.pidfd_open(child)
    ended = select.select([descriptor], [], [], limits.clock_s)[0]
    os.close(descriptor)
    with contextlib.suppress(ProcessLookupError):  # what it started goes with it
        os.killpg(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not ended or status == -signal.SIGXCPU:
        return "endless"
    return "failed" if status else "passed"


def _be_the_child(arguments: list[str], seconds: dict[str, float], notes: Path, limits: Limits) -> t.NoReturn:
    code = 70
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (int(limits.cpu_s), int(limits.cpu_s) + 60))
        with open(notes.with_suffix(".txt"), "wb") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        order = Order(seconds)
        code = int(pytest.main(arguments, plugins=[order]))
        if not seconds:
            notes.write_text(json.dumps({"seconds": order.seconds, "modules": _foreign_modules()}), encoding="utf-8")
    finally:
        sys.stdout.flush()
        os._exit(code)


def _foreign_modules() -> list[str]:
    here = str(Path.cwd())
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    return [name for name, file in files.items() if file and here not in file and "ansible_collections" not in name]


def main() -> int:
    arguments = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder) / "notes.json"
        began = time.monotonic()
        # Bytecode of what is not mutated is kept; run.py removes that of what is.
        outcome = run(arguments, {}, notes, Limits())
        took_s, used = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        answer(outcome=outcome, output=notes.with_suffix(".txt").read_text(encoding="utf-8", errors="replace")[-2000:])
        if outcome != "passed":
            return 1
        limits = Limits(20 + 4 * (used.ru_utime + used.ru_stime), 120 + 4 * took_s)
        noted = json.loads(notes.read_text(encoding="utf-8"))
        # Two mutants within a second would else share one compiled file.
        sys.dont_write_bytecode = True
        for name in noted["modules"]:
            with contextlib.suppress(Exception):  # parts of others, aliases: what is not there is imported by the child
                importlib.import_module(name)
        for _line in sys.stdin:
            answer(outcome=run(arguments, noted["seconds"], notes, limits))
    return 0


def answer(**words: str) -> None:
    print(json.dumps(words), flush=True)


if __name__ == "__main__":
    sys.exit(main())
