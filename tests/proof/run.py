# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run finds out: what it has proven, where its time went, what was left over."""

from __future__ import annotations

import dataclasses
import datetime
import json
import typing as t

from proof import budget, ledger, records, skips
from proof.execute import Runner
from proof.plan import Plan
from proof.step import Outcome, Step


def shares(names: t.Sequence[str], seconds: float, tests: t.Iterable[records.Test]) -> dict[str, float]:
    """What each of the scenarios that one step proves took of its seconds: as much as their tests did of all tests' time.

    The tests of ``unit/gzip`` are those below ``tests.unit.gzip``.
    """
    took = dict.fromkeys(names, 0.0)
    for test in tests:
        name = "/".join(test.name.split(".")[1:3])
        if name in took:
            took[name] += test.seconds
    whole = sum(took.values())
    return {name: seconds * (own / whole if whole else 1 / len(took)) for name, own in took.items()}


class Run:
    """One run: its plan, and what it has found so far."""

    def __init__(
        self,
        mode: str,
        plan: Plan,
        before: t.Mapping[str, str],
        digests: t.Callable[[], dict[str, str]],
        runner: Runner,
    ) -> None:
        self.mode, self.plan, self.runner = mode, plan, runner
        #: Scenario to digest when the run began, and a function that tells them as they are now.
        self.before, self.digests = before, digests
        self.known_skips = skips.load()
        self.tests: list[records.Test] = []
        self.details: list[dict[str, t.Any]] = []
        #: Steps that ended well by their exit status, but left a record that cannot be read.
        self.spoilt: dict[str, Outcome] = {}

    def ended(self, step: Step, outcome: Outcome) -> None:
        """Note where the time of a step went, and what it has proven."""
        tests: list[records.Test] = []
        files: dict[str, float] = {}
        try:
            tests, files = self._read(step)
        except records.RecordError as exc:
            self.runner.clock.say(f"{step.name}: {exc}")
            if outcome.result == "ok":
                log = str(exc.path.relative_to(self.runner.root))
                outcome = self.spoilt[step.name] = dataclasses.replace(outcome, result="failed", log=log)
        self.tests += tests
        self.details.append(
            {
                **vars(outcome),
                "seconds": round(outcome.seconds, 1),
                "tests": [
                    {"name": one.name, "seconds": round(one.seconds, 2), "outcome": one.outcome} for one in tests
                ],
                "task_files": {name: round(value, 1) for name, value in files.items()},
            }
        )
        if outcome.result == "ok" and step.proves and not skips.unknown(tests, self.known_skips):
            self._prove(step, shares(step.proves, outcome.seconds, tests))

    def done(self) -> set[str]:
        """The steps that have ended well so far."""
        return {str(one["name"]) for one in self.details if one["result"] in ("ok", "flaky")}

    def _read(self, step: Step) -> tuple[list[records.Test], dict[str, float]]:
        """The tests of a step, and its seconds per task file. Raises ``records.RecordError``."""
        stem = step.name.replace("/", "-")
        tests: list[records.Test] = []
        files: dict[str, float] = {}
        for number in range(len(step.commands)):
            tests += records.read_tests(self.runner.records / f"{stem}-{number}.xml")
            for name, value in records.read_task_files(self.runner.records / f"{stem}-{number}.tasks").items():
                files[name] = files.get(name, 0.0) + value
        return tests, files

    def _prove(self, step: Step, seconds: t.Mapping[str, float]) -> None:
        path = self.runner.root / ledger.PATH
        after = self.digests()
        past = ledger.read(path)
        today = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
        for name in step.proves:
            try:
                past = ledger.prove(past, name, self.before[name], after[name], seconds[name], today)
            except ledger.LedgerError as exc:
                self.runner.clock.say(str(exc))
        ledger.write(path, ledger.known(past, self.before))

    def report(self, outcomes: t.Sequence[Outcome]) -> int:
        """Print where the time went and what was left. Returns the exit status."""
        say = self.runner.clock.say
        outcomes = [self.spoilt.get(one.name, one) for one in outcomes]
        self._write(outcomes)
        by_step = {one["name"]: one["seconds"] for one in self.details if one["seconds"]}
        by_file: dict[str, float] = {}
        for one in self.details:
            for name, value in one["task_files"].items():
                by_file[name] = by_file.get(name, 0.0) + value
        lines = records.table("Seconds per step:", by_step, count=len(by_step))
        lines += records.table("The ten longest task files:", by_file)
        lines += records.table("The ten longest tests:", {one.name: one.seconds for one in self.tests})
        say("\n".join(["Where the time went (.cache/proof/run.json has all of it)", *lines]))
        strange = skips.unknown(self.tests, self.known_skips)
        if strange:
            rows = [f"  {one.name}: {one.reason}" for one in strange]
            say("\n".join(["Tests were skipped that tests/proof/known_skips.yml does not name:", *rows]))
        flaky = [one for one in outcomes if one.result == "flaky"]
        if flaky:
            rows = [f"  {one.name}: {one.first_log}, then {one.log}" for one in flaky]
            say("\n".join([f"Flaky, {len(flaky)}: failed, then passed on new nodes. Nothing is proven by it:", *rows]))
        debt = self._debt(outcomes)
        if debt:
            say(
                "\n".join(
                    [
                        "Debt: what did not fit into the budget, and is first in the next run:",
                        *(f"  {row}" for row in debt),
                    ]
                )
            )
        bad = [one for one in outcomes if one.result in ("failed", "left")]
        for one in bad:
            logs = f"{one.log}, and {one.first_log} of the first time" if one.first_log else one.log
            failed = f"failed, see {logs or 'above'}"
            left = "not run, because a step that it needs did not end well"
            say(f"{one.name}: {left if one.result == 'left' else failed}")
        count = {kind: sum(one.outcome == kind for one in self.tests) for kind in ("passed", "failed", "skipped")}
        # A step that failed without a failed test, such as a playbook, counts as one failure.
        failures = max(count["failed"], len(bad)) + len(strange)
        print(f"{count['passed']} passed, {failures} failed, {count['skipped']} skipped", flush=True)
        return int(failures > 0)

    def _debt(self, outcomes: t.Sequence[Outcome]) -> list[str]:
        past = ledger.read(self.runner.root / ledger.PATH)
        left = [one.name for one in outcomes if one.result == "cut" and one.name in self.before]
        return budget.debt(
            budget.Step(name, self.plan.seconds[name], self.before[name], past[name].proven if name in past else "")
            for name in left
        )

    def _write(self, outcomes: t.Sequence[Outcome]) -> None:
        path = self.runner.records / "run.json"
        result = {
            "version": 1,
            "mode": self.mode,
            "seconds": round(self.runner.clock.seconds(), 1),
            **{result: [one.name for one in outcomes if one.result == result] for result in ("cut", "flaky")},
            "steps": self.details,
        }
        path.write_text(json.dumps(result, indent=1) + "\n")


__all__ = ["Run", "shares"]
