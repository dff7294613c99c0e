#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Do the tests notice when a planner is wrong? Mutants killed and survived per package, against the goal of 85 %.

    python benchmarks/mutation/run.py [PACKAGE ...] [--mutants 30] [--seed 8]

cosmic-ray makes the mutants, one for each of --mutants places per file (0: of every place), in a copy of the clone. For each of them
the package's tests run, the quickest first, until one fails; _packages.py says which, _warm.py runs them. Survivors are printed as
differences, to be answered by a test, by deleted code, or by a reason why they are equal to the original in EQUIVALENT.md. The share
of a sample of 30 is sure to about 13 points, so a package below the goal wants a run with more. The first run makes .cache/mutation,
a virtual environment with requirements/mutation.txt.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import typing as t
from pathlib import Path

if t.TYPE_CHECKING:
    from cosmic_ray.work_item import MutationSpec

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / ".cache/mutation"
REQUIREMENTS = ROOT / "requirements/mutation.txt"
#: The tests run with what bin/test uses, not with the tool's own packages.
TESTS = ROOT / ".venv/bin/python"
GOAL = 85.0
PYTEST = ("-x", "-q", "--hypothesis-seed=8", "-m", "not slow and not blob")


class Score(t.NamedTuple):
    killed: int
    survived: int

    @property
    def percent(self) -> float:
        return 100 * self.killed / max(self.killed + self.survived, 1)


def enter_the_tools_environment() -> None:
    """Go on in a virtual environment that has cosmic-ray, made where it is missing or out of date."""
    stamp, python = TOOL / "installed.txt", TOOL / "bin/python"
    wanted = REQUIREMENTS.read_text(encoding="utf-8")
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", TOOL], check=True)
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--requirement", REQUIREMENTS], check=True)
        stamp.write_text(wanted, encoding="utf-8")
    if Path(sys.prefix) != TOOL:
        os.execv(python, [str(python), *sys.argv])


def main() -> int:
    # What needs no tool comes first, so that --help and a wrong name cost nothing.
    from _packages import PACKAGES

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", nargs="*", help=f"of {', '.join(PACKAGES)}; all where none is given")
    parser.add_argument("--mutants", type=int, default=30, help="places per file; 0: every place")
    parser.add_argument("--seed", type=int, default=8)
    options = parser.parse_args()
    if unknown := set(options.package) - set(PACKAGES):
        parser.error(f"no such package: {', '.join(sorted(unknown))}")
    if not TESTS.exists():
        parser.error("run bin/test once: it makes the environment of the tests")
    enter_the_tools_environment()

    sys.path.append(str(ROOT / "benchmarks/staging"))
    from _copy import copy_tree
    from _report import Goal, exit_status, report

    with tempfile.TemporaryDirectory() as folder:
        copy_tree(ROOT, Path(folder))
        os.chdir(folder)
        # Ansible's loader, too, must find the copy, whatever the shell says.
        os.environ["ANSIBLE_COLLECTIONS_PATH"] = f"{folder}/.venv/collections"
        scores = {name: try_package(name, options.mutants, options.seed) for name in options.package or PACKAGES}
    goals = [Goal(f"killed in {name}", score.percent, GOAL, " %", at_least=True) for name, score in scores.items()]
    rows = [
        {"package": name, "killed": score.killed, "survived": score.survived, "percent": round(score.percent)}
        for name, score in scores.items()
    ]
    report("Mutants that the tests notice", rows, goal=goals)
    return exit_status(goals)


def try_package(name: str, mutants: int, seed: int) -> Score:
    """Works in the copy, which is the current directory."""
    from _mutants import draw
    from _packages import PACKAGES

    files = sorted(path for pattern in PACKAGES[name].files for path in Path("plugins/module_utils").glob(pattern))
    tests = Tests([f"tests/unit/{path}" for path in PACKAGES[name].tests])
    killed = survived = 0
    for path in files:
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
        for mutation in draw(path, mutants, seed):
            outcome, difference = try_mutant(tests, mutation)
            place = f"{path}:{mutation.start_pos[0]} {mutation.operator_name}"
            if outcome == "invalid":
                continue
            if outcome == "passed":
                survived += 1
                print(f"\nsurvived: {place}\n{difference}\n", flush=True)
            else:
                killed += 1
                print(f"{outcome}: {place}", flush=True)
        print(f"{name}: {killed} killed, {survived} survived, up to {path.name}", flush=True)
    tests.end()
    return Score(killed, survived)


def try_mutant(tests: Tests, mutation: MutationSpec) -> tuple[str, str]:
    """The outcome of the tests, and the lines that the mutant differs in; ``invalid`` for what is no Python at all."""
    from cosmic_ray.mutating import use_mutation
    from cosmic_ray.plugins import get_operator

    operator = get_operator(mutation.operator_name)(**mutation.operator_args)
    with use_mutation(mutation.module_path, operator, mutation.occurrence) as (before, after):
        try:
            ast.parse(after)
        except SyntaxError:
            return "invalid", ""
        return tests.run(), changed_lines(before, after)


class Tests:
    """A process of _warm.py, in the current directory. That the tests pass without a mutant is what makes a failure mean something."""

    def __init__(self, paths: list[str]) -> None:
        command = [str(TESTS), "benchmarks/mutation/_warm.py", *PYTEST, *paths]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        unchanged = self._answer()
        if unchanged["outcome"] != "passed":
            raise SystemExit(f"these tests fail without a mutant: {' '.join(paths)}\n{unchanged['output']}")
        if (again := self.run()) != "passed":
            raise SystemExit(f"the quickest first, these tests are {again} without a mutant: {' '.join(paths)}")

    def _answer(self) -> dict[str, str]:
        return t.cast("dict[str, str]", json.loads(t.cast(t.IO[str], self._process.stdout).readline()))

    def run(self) -> str:
        """``passed``, ``failed`` or ``endless``."""
        print("run", file=self._process.stdin, flush=True)
        return self._answer()["outcome"]

    def end(self) -> None:
        self._process.communicate()


def changed_lines(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return "\n".join(line for line in lines if line[:1] in {"-", "+"} and line[:3] not in {"---", "+++"})


if __name__ == "__main__":
    sys.exit(main())
