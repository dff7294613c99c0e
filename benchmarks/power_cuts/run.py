#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvme_raid's disks are after power cuts at random moments: whole, made again, or untouched.

    python benchmarks/power_cuts/run.py --cuts 30                      # prints its seed
    python benchmarks/power_cuts/run.py --cuts 30 --seed 7             # the same cuts again
    python benchmarks/power_cuts/run.py --cuts 30 --seed 7 --only 12   # only the twelfth of them

Needs what the VM lab needs (`tests/lab/vm/README.md`), and a directory of its own, `.cache/power-cuts` or LAB_VM_DIR. Two machines of
ten disks work at the same time (LAB_VM_NODES). The disks have a volatile cache: what the guest wrote and did not flush is kept, lost, or
lost in part, as is drawn for each cut. Two of the disks are somebody else's and match the selector: an ext4 with files, and one that
holds random data in its middle and nothing else.

The cuts fall into the creation of the array, mkfs, the growth of data, and removal with consent, at a moment that is drawn uniformly
over the time that the phase took undisturbed; the table counts those that fell inside of it. A writer fsyncs records, and whoever it
tells remembers them outside of the machine. After each cut the machine boots, its unit runs, and where that fails the role's module
without any consent. A removal that was cut is repeated with the consent that it had; then everything must be taken again without one.

What it does not prove: a drive that answers a flush and forgets nevertheless, or writes half a block of 4 KiB; power that fades, so that
a drive dies before the machine does; disks that appear late, as NVMe does (they are virtio); time between a cut and the moment when a
drive would have written by itself. A cut that is made again with its number starts from a state of its own and meets another
instruction of the guest: its draw is the same, the machine's clock is not.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import random
import shutil
import sys
import time
import traceback
import typing as t
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPO / "tests"), str(REPO / "tests/scenarios/vm")]
os.environ.setdefault("LAB_VM_DIR", str(REPO / ".cache/power-cuts"))
# Its machines are all this program's, whatever the caller works on.
os.environ.pop("LAB_VM_NODE", None)

from _cuts import PHASES, Cut, draw, shared_out
from _judge import Outcome, Verdict, table
from _machine import LabOfCuts
from _stage import NothingToCutError, Stage
from _volatile_cache import TornLogError
from lab.vm import machine, state


def say(text: str) -> None:
    print(text, flush=True)


def play_all(lab: LabOfCuts, node: str, cuts: t.Sequence[Cut], seed: int, count: int, until: float) -> list[Outcome]:
    """The cuts of one machine, one after another, as long as there is time for another one."""
    evidence = lab.paths.directory.with_name(f"{lab.paths.directory.name}-failures")
    stage = Stage(lab, node, evidence)
    started = time.monotonic()
    stage.prepare()
    lengths = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in stage.length_s.items())
    say(f"{node}: ready after {time.monotonic() - started:.0f} s; undisturbed: {lengths}")
    outcomes = []
    for cut in cuts:
        started = time.monotonic()
        if started > until:
            say(f"{node}: no time for {cut}")
            continue
        try:
            outcome = stage.play(cut)
        except NothingToCutError as exc:
            outcome = Outcome(cut, "before its first step", Verdict({}, (str(exc),)))
        except TornLogError as exc:
            say(f"{node}, {cut}: not judged, and made again. {exc}")
            stage.anew()
            outcome = stage.play(cut)
        except (AssertionError, state.LabError, OSError, ValueError):
            outcome = Outcome(cut, "nobody knows", Verdict({}, (traceback.format_exc(),)))
        outcomes.append(outcome)
        tell(node, outcome, time.monotonic() - started, seed, count)
        if outcome.verdict.wrong:
            last = evidence / f"{node}-last"
            if last.exists():
                shutil.rmtree(evidence / f"cut-{cut.number}", ignore_errors=True)
                last.rename(evidence / f"cut-{cut.number}")
            stage.anew()
    shutil.rmtree(evidence / f"{node}-last", ignore_errors=True)
    return outcomes


def tell(node: str, outcome: Outcome, seconds: float, seed: int, count: int) -> None:
    states = sorted(set(outcome.verdict.disks.values()))
    became = ", ".join(f"{sum(v == state for v in outcome.verdict.disks.values())} {state}" for state in states)
    say(f"{node}, {outcome.cut}: in {outcome.where}; {became or 'nothing'} ({seconds:.0f} s; {outcome.note})")
    for wrong in outcome.verdict.wrong:
        say(f"WRONG: {wrong}")
    if outcome.verdict.wrong:
        again = f"python benchmarks/power_cuts/run.py --cuts {count} --seed {seed} --only {outcome.cut.number}"
        say(f"Make this cut again: {again}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=30)
    parser.add_argument("--seed", type=int, help="a run with the same one draws the same cuts (default: drawn)")
    parser.add_argument("--only", type=int, action="append", default=[], metavar="NUMBER", help="only this cut of them")
    parser.add_argument(
        "--minutes", type=float, default=120.0, help="begin no cut after so many (default: %(default)s)"
    )
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    cuts = draw(seed, max([options.cuts, *options.only]))
    if options.only:
        cuts = tuple(cut for cut in cuts if cut.number in options.only)
    say(f"seed {seed}, {len(cuts)} cuts")
    started = time.monotonic()
    until = started + 60 * options.minutes
    machines = min(int(os.environ.get("LAB_VM_NODES") or 2), -(-len(cuts) // len(PHASES)))
    paths = state.Paths.here()
    with machine.only_one(paths):
        lab = LabOfCuts.bring_up(machines)
    try:
        with concurrent.futures.ThreadPoolExecutor(machines) as pool:
            work = [
                pool.submit(play_all, lab, node, share, seed, options.cuts, until)
                for node, share in zip(lab.nodes, shared_out(cuts, machines))
                if share
            ]
            outcomes = [outcome for done in work for outcome in done.result()]
    finally:
        with machine.only_one(paths):
            machine.down(paths)
    say(f"\n{table(outcomes)}\n")
    wrong = [outcome for outcome in outcomes if outcome.verdict.wrong]
    for outcome in wrong:
        say(f"WRONG: {outcome.cut}: {outcome.verdict.wrong[0].splitlines()[-1]}")
    say(
        f"seed {seed}, {time.monotonic() - started:.0f} s: every disk is whole, made again or untouched: {'MISSED' if wrong else 'met'}"
    )
    return 3 if wrong else 0  # 1 is an exception's, here as in benchmarks/staging


if __name__ == "__main__":
    sys.exit(main())
