# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What bin/test runs once its tools are there: ``python -m proof quick|affected|all [--must] [--budget-minutes N]``.

quick     static checks, and the unit tests that take seconds
affected  static checks, and every scenario whose files, or the way it is run, differ from what it was last proven with
all       everything, whatever was proven before

``--must`` adds to ``affected`` what every change has to pass: all quick unit tests, and the whole site on the container lab.
With a budget, steps that would not end in time are not started, and listed as debt: the next run begins with them. What
every change has to pass runs whatever the clock says. A scenario of a lab that fails is run once more on new nodes: if it
passes then, it is told as flaky, and neither fails the run nor counts as proven.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import pathlib
import signal
import sys
import threading
import time
import typing as t

from proof import closure, ledger, scenarios, steps
from proof.execute import Clock, Runner
from proof.how import REQUIREMENTS, how, newest_python, tools
from proof.plan import Plan, make_plan
from proof.run import Run
from proof.scenario import Scenario
from proof.timetable import length_s
from proof.tree import WorkTree

#: What the labs take to go down comes out of the budget, too.
TEAR_DOWN_S = 60.0
ROOT = pathlib.Path(__file__).resolve().parents[2]
#: bin/test says the same.
BUSY = (
    "Another run of bin/test, or a step that goes on after its run was killed, is at work in this checkout. "
    "Wait for its end, or use another clone. To see whose: fuser .cache/proof/lock"
)


class Digests:
    """Scenario to the digest of its files as they are now, and of how it is run.

    Every step that ends well asks for them; they take seconds, and to see that no file has changed takes a tenth of that.
    """

    def __init__(self, known: t.Sequence[Scenario]) -> None:
        self._known = known
        self._fingerprint = ""
        self._digests: dict[str, str] = {}

    def __call__(self) -> dict[str, str]:
        tree = WorkTree(ROOT)
        fingerprint = tree.fingerprint()
        if fingerprint != self._fingerprint:
            self._fingerprint, self._digests = fingerprint, self._of(tree)
        return self._digests

    def _of(self, tree: WorkTree) -> dict[str, str]:
        pinned = [tree.read(path).decode() for path in REQUIREMENTS if path in tree.paths()]
        run_as = how(self._known, os.environ, tools(pinned), newest_python())
        return {
            name: closure.digest(tree, paths, how=run_as[name])
            for name, paths in closure.closures(tree, self._known).items()
        }


@contextlib.contextmanager
def only_run(root: pathlib.Path) -> t.Iterator[int | None]:
    """The lock's descriptor where this is the only run in a checkout, for as long as it lasts, and None where it is not.

    Two would take each other's labs and records. A step that holds the descriptor, too, keeps others out after its run was
    killed. bin/test takes the same lock while it installs what is missing.
    """
    path = root / ".cache" / "proof" / "lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield lock.fileno()


def look() -> tuple[list[Scenario], Digests]:
    """The scenarios that can be run on this machine, and the digests of all: what another machine has proven stays so."""
    known = scenarios.scenarios(WorkTree(ROOT))
    digests = Digests(known)
    if newest_python():
        return known, digests
    print("The newest ansible-core is not tested: it needs Python 3.12 or 3.13, and there is none on this machine.")
    return [one for one in known if one.name != steps.NEWEST_CORE], digests


def main(argv: t.Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bin/test", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("mode", choices=("quick", "affected", "all"))
    parser.add_argument("--must", action="store_true")
    parser.add_argument("--budget-minutes", type=float, default=0.0)
    parser.add_argument("--since", type=float, default=0.0, help="when the run began, in seconds since 1970")
    parser.add_argument("--dry-run", action="store_true", help="only print the steps")
    options = parser.parse_args(argv)
    clock = Clock(max(0.0, time.time() - options.since) if options.since else 0.0)
    known, digests = look()
    now = digests()
    here = {one.name: now[one.name] for one in known}
    plan = make_plan(options.mode, options.must, known, here, ledger.read(ROOT / ledger.PATH))
    at_once = os.cpu_count() or 1
    total, by_the_clock = sum(plan.seconds.values()) / 60, length_s(plan.steps, plan.seconds, at_once) / 60
    clock.say(
        f"{len(plan.steps)} steps, {total:.0f} minutes one after the other, about {by_the_clock:.0f} by the clock: "
        + ", ".join(one.name for one in plan.steps)
    )
    if options.dry_run:
        return 0
    if any(one.name.startswith(("lab", "vm/up")) for one in plan.steps) and os.geteuid() != 0:
        clock.say("The container lab needs root. Run: sudo bin/test, or sudo bin/test --all")
        return 2
    with only_run(ROOT) as lock:
        if lock is None:
            clock.say(BUSY)
            return 2
        budget_s = max(1.0, options.budget_minutes * 60 - TEAR_DOWN_S) if options.budget_minutes else 0.0
        runner = Runner(ROOT, clock, budget_s, lock, plan.must, plan.measured)
        runner.forget()
        # An interrupted run takes its labs down, too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        run = Run(options.mode, plan, now, digests, runner)
        try:
            outcomes = runner.run(plan.steps, plan.seconds, at_once, run.ended)
        finally:
            _tear_down(plan, run.done(), clock, lock)
        return run.report(outcomes)


def _tear_down(plan: Plan, done: t.Collection[str], clock: Clock, lock: int) -> None:
    """Take down the labs that an interrupted run, or one whose budget was over, left; at the same time and without a budget."""
    down = [step for step in steps.tear_down_steps(plan.steps) if step.name not in done]
    tidy = Runner(ROOT, clock, lock=lock)
    threads = [
        threading.Thread(target=tidy.run, args=([step], {step.name: 0.0}, 1, lambda _step, _outcome: None))
        for step in down
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    sys.exit(main())
