# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When each step of a run begins and ends, if all take as long as estimated and end well. Pure."""

from __future__ import annotations

import typing as t

from proof import schedule
from proof.schedule import Start
from proof.step import Step


class Slot(t.NamedTuple):
    """A step's place in a run, in seconds since the first step began."""

    name: str
    begin_s: float
    end_s: float


def timetable(steps: t.Sequence[Step], seconds: t.Mapping[str, float], at_once: int) -> list[Slot]:
    """The slots of the steps, by their beginning: as ``execute.Runner`` starts them, given the same order."""
    waiting, running = list(steps), list[tuple[float, Start]]()
    slots: list[Slot] = []
    now_s = 0.0
    while waiting or running:
        while start := schedule.next_start(waiting, [one for _end, one in running], at_once):
            waiting.remove(start.step)
            slots.append(Slot(start.step.name, now_s, now_s + seconds[start.step.name]))
            running.append((slots[-1].end_s, start))
        if not running:
            raise ValueError(f"None of these steps can ever start: {', '.join(one.name for one in waiting)}")
        first = min(running, key=lambda one: one[0])
        running.remove(first)
        now_s = first[0]
    return slots


def length_s(steps: t.Sequence[Step], seconds: t.Mapping[str, float], at_once: int) -> float:
    """Seconds by the clock until all steps have ended."""
    return max((slot.end_s for slot in timetable(steps, seconds, at_once)), default=0.0)


__all__ = ["Slot", "length_s", "timetable"]
