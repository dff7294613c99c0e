# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run with a budget takes, in which order, and what it leaves as debt."""

from __future__ import annotations

import dataclasses
import typing as t

#: Machines differ by 30 %: what took 100 s where it was measured may take 130 s here.
MARGIN = 1.3
#: What takes twice as long as when it was measured hangs, unless it is so short that the machine may just have been busy. Less is too
#: little beside machines of the other lab: tests/scenarios/cluster/test_staging_faults.py takes 320 s alone, and 470 s while they boot.
PATIENCE, LEAST_MORE_S = 2.0, 120.0
#: Without a measurement, an estimate is a guess.
GUESS_PATIENCE, GUESS_LEAST_S = 3.0, 600.0


@dataclasses.dataclass(frozen=True)
class Step:
    """Something to run. ``seconds``: an estimate. ``must``: it runs whatever the ledger says.

    ``proven``: the day of the last proof as 2026-11-22, empty where there is none.
    """

    name: str
    seconds: float
    digest: str = ""
    proven: str = ""
    must: bool = False


def order(steps: t.Iterable[Step]) -> list[Step]:
    """First what must run, in the given order; then what was never proven, then what was not proven for longest.

    The longer one comes first of two that are equal in this.
    """
    given = list(steps)
    must = [step for step in given if step.must]
    affected = [step for step in given if not step.must]
    return must + sorted(affected, key=lambda step: (step.proven, -step.seconds, step.name))


def fits(elapsed_s: float, estimate_s: float, budget_s: float, pace: float = 1.0) -> bool:
    """Whether something can be started that ends before the budget does, even on a machine that is slower by the margin.

    ``pace``: how many times as long as estimated this run's steps have taken so far.
    """
    return elapsed_s + estimate_s * max(MARGIN, pace) <= budget_s


def limit_s(estimate_s: float, measured: bool, pace: float = 1.0) -> float:
    """After how many seconds a step of this estimate is taken to hang."""
    if measured:
        return pace * max(PATIENCE * estimate_s, estimate_s + LEAST_MORE_S)
    return max(GUESS_PATIENCE * estimate_s, GUESS_LEAST_S)


def debt(steps: t.Iterable[Step]) -> list[str]:
    """The lines that tell what did not fit: name, digest, and last proof, in the order in which the next run takes them."""
    return [f"{step.name}  {step.digest}  {step.proven or 'never proven'}" for step in order(steps)]


__all__ = ["MARGIN", "Step", "debt", "fits", "limit_s", "order"]
