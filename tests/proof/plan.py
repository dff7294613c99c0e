# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a run, in the order in which they are to be started. Pure."""

from __future__ import annotations

import typing as t

from proof import budget, ledger, schedule, steps
from proof.scenario import Scenario
from proof.scenarios import ANSIBLE_LINT
from proof.step import Step
from proof.steps import UNITS

#: Every change has to pass them, whatever the ledger says: the whole on the container lab.
MUST = ("cluster",)


class Plan(t.NamedTuple):
    """What a run consists of."""

    steps: list[Step]
    #: Estimated seconds per step.
    seconds: dict[str, float]
    #: Steps that run whatever was proven before, and whatever the clock says.
    must: frozenset[str]
    #: Steps on labs whose seconds are those of their last proof.
    measured: frozenset[str]


def make_plan(
    mode: str, must: bool, known: t.Sequence[Scenario], now: t.Mapping[str, str], past: ledger.Ledger
) -> Plan:
    """The steps of a run, in the order in which they are to be started."""
    table = steps.table(known)
    changed = set(now) if mode == "all" else set(ledger.affected(now, past))
    if mode == "quick":
        changed &= {ANSIBLE_LINT}
    units = [one.name for one in known if one.name.startswith("unit/") and one.name in changed]
    if mode == "quick" or must:
        table[UNITS] = steps.quick_unit_step(units)
    elif units:
        folders = [steps.UNIT_TESTS] if mode == "all" else [f"tests/{name}" for name in units]
        table[UNITS] = steps.unit_step(folders, units)
    left = {ANSIBLE_LINT} - changed if not must else set()
    # The longest one begins.
    always = [UNITS] * (UNITS in table) + [name for name in table if name.startswith("static/") and name not in left]
    if must or mode == "all":
        always += MUST
    wanted = always + [name for name in table if name in changed and name not in always]
    names = schedule.with_needs(wanted, table)
    measured = frozenset(name for name in names if _is_measured(table[name], past))
    seconds = {name: _seconds(table[name], past) for name in names}
    if mode == "affected" and must:
        # The slow ones of the affected folders come to the quick ones of all.
        seconds[UNITS] = steps.QUICK_UNIT_MINUTES * 60 + (seconds[UNITS] if units else 0.0)
        needed = frozenset(schedule.with_needs(always, table))
        # What sets a lab up comes right before the first scenario that needs it.
        order = _unproven_first([name for name in names if name in {*needed, *wanted}], needed, seconds, now, past)
        names = schedule.with_needs(order, table)
    else:
        needed = frozenset()
        names = schedule.longest_chain_first(names, table, seconds)
    planned = [table[name] for name in names]
    down = steps.tear_down_steps(planned)
    # First in the order: a lab that is not needed any more costs memory, and its idle machines processors.
    return Plan([*down, *planned], {**{step.name: step.minutes * 60 for step in down}, **seconds}, needed, measured)


def _is_measured(step: Step, past: ledger.Ledger) -> bool:
    """Whether the last proof tells how long a step takes, as it does on a lab. Elsewhere tests may have been added since."""
    return step.renewal is not None and bool(step.proves) and all(name in past for name in step.proves)


def _seconds(step: Step, past: ledger.Ledger) -> float:
    """How long a step takes: as measured last, else as estimated."""
    if step.proves and all(name in past for name in step.proves):
        return sum(past[name].seconds for name in step.proves)
    return step.minutes * 60


def _unproven_first(
    names: t.Sequence[str],
    must: t.Collection[str],
    seconds: t.Mapping[str, float],
    now: t.Mapping[str, str],
    past: ledger.Ledger,
) -> list[str]:
    given = [
        budget.Step(name, seconds[name], now.get(name, ""), past[name].proven if name in past else "", name in must)
        for name in names
    ]
    return [step.name for step in budget.order(given)]


__all__ = ["MUST", "UNITS", "Plan", "make_plan"]
