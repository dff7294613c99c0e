# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which step starts next, while others run. Pure."""

from __future__ import annotations

import dataclasses
import typing as t

from proof.step import Renewal, Step


@dataclasses.dataclass(frozen=True)
class Start:
    """A step to start, and the member of its pool that it holds."""

    step: Step
    member: str = ""

    @property
    def holds(self) -> frozenset[str]:
        return frozenset((*self.step.holds, self.member)) - {""}


def with_needs(wanted: t.Iterable[str], table: t.Mapping[str, Step]) -> list[str]:
    """The wanted steps, each behind those that it needs, in an order that is stable. A circle is an error.

    What a step only comes after is put before it where it is wanted, too: at its own place it would keep the step waiting.
    """
    wanted = list(wanted)
    found: dict[str, None] = {}

    def add(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise ValueError(f"These steps need each other: {' -> '.join((*path, name))}")
        if name not in found:
            for before in (*table[name].needs, *(one for one in table[name].after if one in wanted)):
                add(before, (*path, name))
            found[name] = None

    for name in wanted:
        add(name, ())
    return list(found)


def longest_chain_first(
    names: t.Sequence[str], table: t.Mapping[str, Step], minutes: t.Mapping[str, float]
) -> list[str]:
    """Steps by the minutes of the longest chain that begins with them, so that no chain is left over at the end."""
    chosen = set(names)
    followers: dict[str, list[str]] = {name: [] for name in names}
    for name in names:
        for before in {*table[name].needs, *table[name].after} & chosen:
            followers[before].append(name)
    length: dict[str, float] = {}

    def chain(name: str) -> float:
        if name not in length:
            length[name] = minutes[name] + max(map(chain, followers[name]), default=0.0)
        return length[name]

    return sorted(names, key=lambda name: -chain(name))


def ready(step: Step, waiting: t.Collection[str], running: t.Collection[str]) -> bool:
    """Whether nothing that comes before the step is still to end."""
    return not {*step.needs, *step.after} & {*waiting, *running}


def next_start(waiting: t.Sequence[Step], running: t.Sequence[Start], at_once: int) -> Start | None:
    """The first of the waiting steps that can start now, or nothing. What a second run waits for is taken by no other step."""
    if len(running) >= at_once:
        return None
    held = frozenset().union(*(start.holds for start in running))
    names, busy = [step.name for step in waiting], [start.step.name for start in running]
    for step in waiting:
        others = [name for name in names if name != step.name]
        if not ready(step, others, busy) or held & set(step.holds):
            held |= set(step.holds) if step.first_log else set()
            continue
        member = next((one for one in step.pool if one not in held and one not in step.holds), "")
        if member or not step.pool:
            return Start(step, member)
    return None


def too_late(
    waiting: t.Sequence[Step], must: t.Collection[str], seconds: t.Mapping[str, float], fits: t.Callable[[float], bool]
) -> list[str]:
    """Waiting steps that do not fit, each with the set-up that is still to be done for it; and set-up for nothing else.

    ``fits``: whether so many seconds do. What must run, and what is run once more, is never too late.
    """
    table = {step.name: step for step in waiting}
    must = {*must, *(step.name for step in waiting if step.first_log)}

    def chain(name: str) -> set[str]:
        return {name}.union(*(chain(need) for need in table[name].needs if need in table))

    late = [name for name in table if name not in must and not fits(sum(seconds[one] for one in chain(name)))]
    proving = [name for name in table if name not in late and (table[name].proves or name in must)]
    useful = set().union(*map(chain, proving))
    set_up = {need for step in waiting for need in step.needs}
    return late + [name for name in table if name in set_up - useful and name not in late]


def again(start: Start, renewal: Renewal, first_log: str) -> Step:
    """The step that runs a failed one once more, on nodes that are made anew."""
    step = start.step
    member = {step.pool_variable: start.member} if start.member else {}
    return dataclasses.replace(
        step,
        commands=(*renewal.commands, *step.commands),
        environment={**step.environment, **member},
        holds=renewal.holds,
        pool=(),
        first_log=first_log,
    )


def lost(waiting: t.Iterable[Step], failed: t.Collection[str]) -> list[str]:
    """Steps that cannot run any more, because one that they need, however far back, did not end well."""
    steps, gone = list(waiting), set(failed)
    found: list[str] = []
    while new := [step.name for step in steps if step.name not in gone and gone & set(step.needs)]:
        gone.update(new)
        found.extend(new)
    return found


__all__ = ["Start", "again", "longest_chain_first", "lost", "next_start", "ready", "too_late", "with_needs"]
