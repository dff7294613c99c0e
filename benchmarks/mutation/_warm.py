# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the same tests for one mutant after the other, each time in a fork of a process that has imported what they need.

    python _warm.py PYTEST-ARGUMENT...

The first run, without a mutant, notes what each test takes and what is imported from outside the current directory. A line on
standard input asks for another run, the quickest test first. Each run is answered by one line of JSON on standard output: ``outcome``
(``passed``, ``failed``, or ``endless``: a test took many times what it took at first) and, after the first, ``output``.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import tempfile
import time
import typing as t
from pathlib import Path

import pytest


class Cost(t.NamedTuple):
    """What a test takes, in seconds."""

    cpu_s: float = 0.0
    clock_s: float = 0.0

    def limit(self) -> None:
        """End this process when the next test takes more by far: CPU time finds what turns in circles, the clock what waits for ever.

        On a busy machine a test takes much of the clock's time and no more CPU time than ever.
        """
        signal.setitimer(signal.ITIMER_PROF, 2 + 10 * self.cpu_s)
        signal.setitimer(signal.ITIMER_REAL, 30 + 10 * self.clock_s)


class Order:
    """A plugin of pytest: notes the cost of each test. Where it is known, the quickest comes first, and none may take much more."""

    def __init__(self, known: dict[str, Cost]) -> None:
        self._known = known
        self.costs: dict[str, Cost] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self._known.get(item.nodeid, Cost()).cpu_s)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> t.Generator[None, object, object]:
        if self._known:
            self._known.get(item.nodeid, Cost()).limit()
        cpu_s, clock_s = time.process_time(), time.monotonic()
        result = yield
        self.costs[item.nodeid] = Cost(time.process_time() - cpu_s, time.monotonic() - clock_s)
        return result


def run(arguments: list[str], known: dict[str, Cost], notes: Path) -> str:
    """Run the tests in a fork, which leaves what it learned in ``notes``; returns the outcome."""
    child = os.fork()
    if not child:
        _be_the_child(arguments, known, notes)
    _child, status = os.waitpid(child, 0)
    with contextlib.suppress(ProcessLookupError):  # what it started goes with it
        os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(status)
    if code in (-signal.SIGPROF, -signal.SIGALRM):
        return "endless"
    return "failed" if code else "passed"


def _be_the_child(arguments: list[str], known: dict[str, Cost], notes: Path) -> t.NoReturn:
    code = 70
    try:
        os.setsid()
        with open(notes.with_suffix(".txt"), "wb") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        order = Order(known)
        if known:
            Cost(10, 60).limit()  # to import the tests
        code = int(pytest.main(arguments, plugins=[order]))
        if not known:
            notes.write_text(json.dumps({"costs": order.costs, "modules": _foreign_modules()}), encoding="utf-8")
    finally:
        os._exit(code)


def _foreign_modules() -> list[str]:
    here = str(Path.cwd())
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    return [name for name, file in files.items() if file and here not in file and "ansible_collections" not in name]


def main() -> int:
    arguments = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder) / "notes.json"
        # Bytecode of what is not mutated is kept; run.py removes that of what is.
        outcome = run(arguments, {}, notes)
        answer(outcome=outcome, output=notes.with_suffix(".txt").read_text(encoding="utf-8", errors="replace")[-2000:])
        if outcome != "passed":
            return 1
        noted = json.loads(notes.read_text(encoding="utf-8"))
        # Two mutants within a second would else share one compiled file.
        sys.dont_write_bytecode = True
        for name in noted["modules"]:
            with contextlib.suppress(Exception):  # parts of others, aliases: what is not there is imported by the child
                importlib.import_module(name)
        known = {test: Cost(*cost) for test, cost in noted["costs"].items()}
        for _line in sys.stdin:
            answer(outcome=run(arguments, known, notes))
    return 0


def answer(**words: str) -> None:
    print(json.dumps(words), flush=True)


if __name__ == "__main__":
    sys.exit(main())
