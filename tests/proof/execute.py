# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs steps: a few at once, each with its logs, until all have ended or nothing more fits into the budget."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import pathlib
import queue
import re
import shlex
import signal
import subprocess
import threading
import time
import traceback
import typing as t

from proof import budget, schedule
from proof.schedule import Start
from proof.step import COMMON_ENVIRONMENT, Outcome, Step

# Molecule runs its playbooks elsewhere.
CALLBACKS = pathlib.Path(__file__).resolve().with_name("callbacks")
#: Lines of a failed command's log that are printed.
TAIL = 60


class Clock:
    """Seconds since the run began, and lines that begin with them."""

    def __init__(self, elapsed_s: float = 0.0) -> None:
        self._started = time.monotonic() - elapsed_s
        self._lock = threading.Lock()

    def seconds(self) -> float:
        return time.monotonic() - self._started

    def say(self, text: str) -> None:
        with self._lock:
            print(f"[{self.seconds():4.0f} s] {text}", flush=True)


class Runner:
    """What a run shares: where its files go, the time, and the budget."""

    def __init__(
        self,
        root: pathlib.Path,
        clock: Clock,
        budget_s: float = 0.0,
        lock: int | None = None,
        must: t.Collection[str] = (),
        measured: t.Collection[str] = (),
        limit_s: t.Callable[[float, bool, float], float] = budget.limit_s,
    ) -> None:
        self.root = root
        self.clock = clock
        #: Seconds after which nothing runs that need not; 0 means that there is no limit.
        self.budget_s = budget_s
        #: Steps that are started whatever the clock says, and steps on labs whose seconds were measured.
        self.must, self.measured = frozenset(must), frozenset(measured)
        self._limit_s = limit_s
        # The run's lock. Commands hold it, too: should the run be killed, no other one begins beside them. What they start
        # through Python, such as machines that stay, does not inherit it.
        self._shared = () if lock is None else (lock,)
        self.records = root / ".cache" / "proof"
        self.logs = root / ".cache" / "log"
        for directory in (self.records, self.logs):
            directory.mkdir(parents=True, exist_ok=True)
        self._processes: set[subprocess.Popen[bytes]] = set()
        #: Held where a command starts, and where an interrupted run sees to it that no other one does.
        self._starting, self._interrupted = threading.Lock(), False
        #: Seconds that measured steps have taken in this run, and those that they were estimated to take.
        self._took_s = self._estimated_s = 0.0

    def forget(self) -> None:
        """Remove what earlier runs have recorded."""
        for old in (*self.records.glob("*.xml"), *self.records.glob("*.tasks")):
            old.unlink()

    def run(
        self,
        steps: t.Sequence[Step],
        seconds: t.Mapping[str, float],
        at_once: int,
        ended: t.Callable[[Step, Outcome], None],
    ) -> list[Outcome]:
        """Run the steps in this order, as many at the same time as can be. ``seconds``: how long each takes."""
        waiting, outcomes, seconds = list(steps), [], dict(seconds)
        running: dict[str, Start] = {}
        finished: queue.Queue[tuple[Start, Outcome]] = queue.Queue()
        # Steps that did not end well, and those that were cut: what needs them shares their fate.
        bad: dict[str, set[str]] = {"left": set(), "cut": set()}

        def take(step: Step, outcome: Outcome) -> None:
            outcomes.append(outcome)
            if not outcome.well:
                bad["cut" if outcome.result == "cut" else "left"].add(step.name)
            ended(step, outcome)

        def end(start: Start, outcome: Outcome) -> None:
            step = start.step
            if outcome.result == "failed" and outcome.log and step.renewal and not step.first_log:
                first_log = self._keep_first(outcome)
                waiting.insert(0, schedule.again(start, step.renewal, first_log))
                seconds[step.name] += sum(seconds.get(name, 0.0) for name in step.renewal.like)
                self.clock.say(f"{step.name} is run once more, on nodes that are made anew; its log is now {first_log}")
                return
            if step.first_log:
                result = "flaky" if outcome.result == "ok" else outcome.result
                outcome = dataclasses.replace(outcome, result=result, first_log=step.first_log)
            elif outcome.result == "ok" and step.name in self.measured:
                self._took_s += outcome.seconds
                self._estimated_s += seconds[step.name]
            take(step, outcome)

        try:
            while waiting or running:
                late = schedule.too_late(waiting, self.must, seconds, self._fits) if self.budget_s else []
                for step in [one for one in waiting if one.name in late]:
                    waiting.remove(step)
                    take(step, Outcome(step.name, "cut"))
                for fate, names in bad.items():
                    for name in schedule.lost(waiting, names):
                        step = next(one for one in waiting if one.name == name)
                        waiting.remove(step)
                        take(step, Outcome(name, fate))
                while start := schedule.next_start(waiting, list(running.values()), at_once):
                    waiting.remove(start.step)
                    running[start.step.name] = start
                    threading.Thread(
                        target=lambda one: finished.put((one, self._outcome(one, seconds[one.step.name]))),
                        args=(start,),
                    ).start()
                if running:
                    start, outcome = finished.get()
                    del running[start.step.name]
                    end(start, outcome)
        except BaseException:
            with self._starting:
                self._interrupted = True
            for process in list(self._processes):
                _end(process)
            raise
        return outcomes

    def _fits(self, estimate_s: float) -> bool:
        return budget.fits(self.clock.seconds(), estimate_s, self.budget_s, self._pace())

    def _pace(self) -> float:
        """How many times as long as estimated the measured steps of this run took, and never less than once."""
        return max(1.0, self._took_s / self._estimated_s) if self._estimated_s else 1.0

    def _keep_first(self, outcome: Outcome) -> str:
        """Give a first run's logs and records names of their own. Returns the new one of the outcome's log."""
        stem = outcome.name.replace("/", "-")
        for old in [*self.logs.glob(f"{stem}-*"), *self.records.glob(f"{stem}-*")]:
            if re.fullmatch(re.escape(stem) + r"-\d+", old.stem):
                old.rename(old.with_stem(f"{old.stem}-first"))
        return outcome.log.replace(".log", "-first.log")

    def _outcome(self, start: Start, estimate_s: float) -> Outcome:
        """How a step ended. The run waits for this answer, so there is one whatever goes wrong here."""
        try:
            return self._step(start, estimate_s)
        except Exception as exc:
            trace = "".join(traceback.format_exception(exc))
            self.clock.say(f"{start.step.name}: failed, because the runner could not go on: {exc}\n{trace}")
            return Outcome(start.step.name, "failed", member=start.member)

    def _step(self, start: Start, estimate_s: float) -> Outcome:
        step, began = start.step, self.clock.seconds()
        where = f" on {start.member}" if start.member else ""
        self.clock.say(f"{step.name}{where}")
        stem, took, told = step.name.replace("/", "-"), 0.0, ""
        for number, argv in enumerate(step.commands):
            log = self.logs / f"{stem}-{number}.log"
            environment = self._environment(start, f"{stem}-{number}")
            hangs_s = began + self._limit_s(estimate_s, self._is_strict(step), self._pace())
            own_s, left_s = min(step.limit_s, hangs_s - self.clock.seconds()), self._left_s(step)
            problem = self._command(argv, log, environment, max(1.0, min(own_s, left_s)))
            took, told = self.clock.seconds() - began, str(log.relative_to(self.root))
            if problem:
                # What hangs must not pass as something that the budget was too small for.
                result = "cut" if left_s < own_s and self._left_s(step) <= 0 else "failed"
                outcome = Outcome(step.name, result, took, start.member, shlex.join(argv), told)
                self._tell(outcome, problem, log)
                return outcome
        self.clock.say(f"{step.name}: ok in {took:.0f} s")
        return Outcome(step.name, "ok", took, start.member, log=told if step.first_log else "")

    def _is_strict(self, step: Step) -> bool:
        """Whether a step has to end as it was measured: one that would take the budget from others."""
        return bool(self.budget_s) and step.name in self.measured - self.must

    def _left_s(self, step: Step) -> float:
        """What is left of the budget. What must run, and what is run once more, does not ask for it."""
        unbound = not self.budget_s or step.name in self.must or step.first_log
        return math.inf if unbound else self.budget_s - self.clock.seconds()

    def _environment(self, start: Start, stem: str) -> dict[str, str]:
        mine = {
            **start.step.environment,
            **COMMON_ENVIRONMENT,
            "PYTEST_ADDOPTS": f"--junitxml={self.records / stem}.xml",
            "TASK_SECONDS": str(self.records / f"{stem}.tasks"),
            "ANSIBLE_CALLBACK_PLUGINS": str(CALLBACKS),
        }
        if start.member:
            mine[start.step.pool_variable] = start.member
        return {**os.environ, **mine}

    def _command(
        self, argv: t.Sequence[str], log: pathlib.Path, environment: t.Mapping[str, str], limit_s: float
    ) -> str:
        """Run a command with its output in the log. Returns what went wrong, or nothing."""
        with log.open("wb") as stream:
            try:
                with self._starting:
                    if self._interrupted:
                        return "not started, for the run was interrupted"
                    process = subprocess.Popen(
                        argv,
                        cwd=self.root,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=stream,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                        pass_fds=self._shared,
                    )
                    self._processes.add(process)
            except OSError as exc:
                return f"cannot be started: {exc}"
            try:
                status = process.wait(timeout=limit_s)
            except subprocess.TimeoutExpired:
                _end(process)
                return f"no end after {limit_s:.0f} s"
            finally:
                self._processes.discard(process)
        return f"exit status {status}" if status else ""

    def _tell(self, outcome: Outcome, problem: str, log: pathlib.Path) -> None:
        lines = log.read_text(errors="replace").splitlines()[-TAIL:]
        what = f"{outcome.name}: {outcome.result} after {outcome.seconds:.0f} s, {problem}: {outcome.command}"
        self.clock.say(
            "\n".join([what, *(f"    {line}" for line in lines), f"  The whole output is in {outcome.log}."])
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command kindly, and after 20 s, or when it has ended, all that it started by force."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=20)


__all__ = ["TAIL", "Clock", "Runner"]
