# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs steps: a few at once, each with its logs, until all have ended or the budget is over."""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
import queue
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


class _Limit(t.NamedTuple):
    """How long a command may run, and the result of a step that it ends: the budget cuts, a limit of the step's own fails."""

    seconds: float
    result: str


class Runner:
    """What a run shares: where its files go, the time, and the budget."""

    def __init__(
        self,
        root: pathlib.Path,
        clock: Clock,
        budget_s: float = 0.0,
        lock: int | None = None,
        least_limit_s: float = budget.LEAST_LIMIT_S,
    ) -> None:
        self.root = root
        self.clock = clock
        #: Seconds after which nothing runs any more; 0 means that there is no limit.
        self.budget_s = budget_s
        # The run's lock. Commands hold it, too: should the run be killed, no other one begins beside them. What they start
        # through Python, such as machines that stay, does not inherit it.
        self._shared = () if lock is None else (lock,)
        #: What any step may take, however short its estimate.
        self.least_limit_s = least_limit_s
        self.records = root / ".cache" / "proof"
        self.logs = root / ".cache" / "log"
        for directory in (self.records, self.logs):
            directory.mkdir(parents=True, exist_ok=True)
        self._processes: set[subprocess.Popen[bytes]] = set()

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
        waiting, outcomes = list(steps), []
        running: dict[str, Start] = {}
        finished: queue.Queue[tuple[Step, Outcome]] = queue.Queue()
        # Steps that did not end well, and those that were cut: what needs them shares their fate.
        bad: dict[str, set[str]] = {"left": set(), "cut": set()}

        def take(step: Step, outcome: Outcome) -> None:
            outcomes.append(outcome)
            if outcome.result != "ok":
                bad["cut" if outcome.result == "cut" else "left"].add(step.name)
            ended(step, outcome)

        try:
            while waiting or running:
                if self.budget_s:
                    for step in [one for one in waiting if not self._fits(one, seconds)]:
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
                        target=lambda one: finished.put((one.step, self._outcome(one, seconds[one.step.name]))),
                        args=(start,),
                    ).start()
                if running:
                    step, outcome = finished.get()
                    del running[step.name]
                    take(step, outcome)
        except BaseException:
            for process in list(self._processes):
                _end(process)
            raise
        return outcomes

    def _fits(self, step: Step, seconds: t.Mapping[str, float]) -> bool:
        return budget.fits(self.clock.seconds(), seconds[step.name], self.budget_s)

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
        stem = step.name.replace("/", "-")
        for number, argv in enumerate(step.commands):
            log = self.logs / f"{stem}-{number}.log"
            environment = self._environment(start, f"{stem}-{number}")
            limit = self._limit(step, budget.limit_s(estimate_s, self.least_limit_s), began)
            result, problem = self._command(argv, log, environment, limit)
            if problem:
                took = self.clock.seconds() - began
                outcome = Outcome(
                    step.name,
                    result,
                    took,
                    start.member,
                    shlex.join(argv),
                    str(log.relative_to(self.root)),
                )
                self._tell(outcome, problem, log)
                return outcome
        took = self.clock.seconds() - began
        self.clock.say(f"{step.name}: ok in {took:.0f} s")
        return Outcome(step.name, "ok", took, start.member)

    def _limit(self, step: Step, step_limit_s: float, began: float) -> _Limit:
        """What the next command may take. A step that hangs must not pass as one that the budget was too small for."""
        now = self.clock.seconds()
        own = min(step.limit_s, began + step_limit_s - now)
        left = self.budget_s - now if self.budget_s else math.inf
        return _Limit(max(1.0, min(own, left)), "cut" if left < own else "failed")

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
        self, argv: t.Sequence[str], log: pathlib.Path, environment: t.Mapping[str, str], limit: _Limit
    ) -> tuple[str, str]:
        """Run a command with its output in the log. Returns the result, and what went wrong, or nothing."""
        with log.open("wb") as stream:
            try:
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
            except OSError as exc:
                return "failed", f"cannot be started: {exc}"
            self._processes.add(process)
            try:
                status = process.wait(timeout=limit.seconds)
            except subprocess.TimeoutExpired:
                _end(process)
                return limit.result, f"no end after {limit.seconds:.0f} s"
            finally:
                self._processes.discard(process)
        return ("failed", f"exit status {status}") if status else ("ok", "")

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
