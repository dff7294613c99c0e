# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which kills are made, drawn from a seed before anything runs, and what is said of how they ended. Pure functions."""

from __future__ import annotations

import dataclasses
import random
import re
import typing as t

#: One kill per turn of each, in an order that is drawn, so that each gets its share whatever the seed.
#: ``inflating``: the worker that writes a file at that moment. ``host``: all that runs on one, and its connection.
WHATS = ("worker", "azcopy", "controller", "connection", "inflating", "host")
#: How the play is ended: Ctrl-C, a service manager, the controller's own death.
SIGNALS = ("SIGINT", "SIGTERM", "SIGKILL")
#: What Python and Ansible print of a case that the code does not handle.
_CRASH = re.compile(
    r"Traceback \(most recent call last\)|MODULE FAILURE|Unexpected failure|Unexpected Exception|Unknown error\."
)


@dataclasses.dataclass(frozen=True)
class Kill:
    """One kill. ``fraction``: when, as a part of the time in which it can happen (``window``), 0 to 1."""

    number: int
    what: str
    host: int
    fraction: float
    signal: str  # of what ends the controller; everything else is killed

    @property
    def window(self) -> t.Literal["play", "copy"]:
        """A controller, a connection and a host can go at any time, the others only while there is something to copy."""
        return "play" if self.what in ("controller", "connection", "host") else "copy"

    def __str__(self) -> str:
        whom = f" by {self.signal}" if self.what == "controller" else f" on node-{self.host + 1}"
        return f"kill {self.number}: {self.what}{whom} at {self.fraction:.0%} of the {self.window}"


def draw(seed: int, count: int, hosts: int) -> tuple[Kill, ...]:
    """The kills of a run. A longer run begins with the kills of a shorter one with the same seed."""
    rng = random.Random(seed)
    kills: list[Kill] = []
    while len(kills) < count:
        for what in rng.sample(WHATS, len(WHATS)):
            kills.append(Kill(len(kills) + 1, what, rng.randrange(hosts), rng.random(), rng.choice(SIGNALS)))
    return tuple(kills[:count])


@dataclasses.dataclass
class Ending:
    """What a kill left. ``first`` and ``again`` are exit statuses of the killed run and of its rerun, None where it hung."""

    kill: Kill
    hit: bool  # there was something to kill
    when_s: float = 0.0  # since the play began
    first: int | None = None
    first_s: float = 0.0
    again: int | None = None
    again_s: float = 0.0
    wrong: list[str] = dataclasses.field(default_factory=list)  # final names with wrong bytes, after either run
    missing: list[str] = dataclasses.field(default_factory=list)  # after the rerun
    leftovers: list[str] = dataclasses.field(default_factory=list)  # after the rerun
    crashes: list[str] = dataclasses.field(default_factory=list)  # lines of the output
    secrets: list[str] = dataclasses.field(default_factory=list)  # places where the SAS was found

    @property
    def hangs(self) -> int:
        return (self.first is None) + (self.again is None)

    @property
    def whole(self) -> bool:
        return self.again == 0 and not self.missing and not self.wrong

    @property
    def right(self) -> bool:
        return self.whole and not (self.hangs or self.crashes or self.secrets or self.leftovers)

    def __str__(self) -> str:
        found = [
            f"run {_status(self.first)} in {self.first_s:.0f} s, rerun {_status(self.again)} in {self.again_s:.0f} s",
            "whole" if self.whole else f"NOT WHOLE, {len(self.missing)} missing",
        ]
        for name in ("wrong", "leftovers", "crashes", "secrets"):
            places: list[str] = getattr(self, name)
            if places:
                shown = "; ".join(places[:3])
                found.append(f"{len(places)} {name.upper()}: {shown}")
        where = f"{self.when_s:.1f} s after the start" if self.hit else "too late, nobody was there"
        return f"{self.kill} ({where}): {', '.join(found)}"


def _status(status: int | None) -> str:
    return "HUNG" if status is None else f"rc {status}"


def crashes(output: str) -> list[str]:
    """Lines that say that a program broke off instead of saying what happened."""
    return [line.strip()[:200] for line in output.splitlines() if _CRASH.search(line)]


def until_hit(play: t.Callable[[int], Ending], tries: int) -> Ending:
    """Make a kill again that came too late. What an undisturbed play did wrong is not forgotten: it ends the tries."""
    for attempt in range(tries):
        ending = play(attempt)
        if ending.hit or not ending.right:
            break
    return ending


def rows(endings: t.Sequence[Ending]) -> list[dict[str, t.Any]]:
    """By what was killed: how often, and what came of it."""
    table = []
    for what in [*WHATS, "all"]:
        of = [ending for ending in endings if what in ("all", ending.kill.what)]
        if of:
            table.append(
                {
                    "killed": what,
                    "kills": len(of),
                    "hit": sum(ending.hit for ending in of),
                    "run ended with 0": sum(ending.first == 0 for ending in of),
                    "whole after a rerun": sum(ending.whole for ending in of),
                    "wrong files": sum(len(ending.wrong) for ending in of),
                    "hangs": sum(ending.hangs for ending in of),
                    "with tracebacks": sum(bool(ending.crashes) for ending in of),
                    "with leftovers": sum(bool(ending.leftovers) for ending in of),
                    "with a SAS left": sum(bool(ending.secrets) for ending in of),
                    "longest run s": max(ending.first_s for ending in of),
                }
            )
    return table


__all__ = ["SIGNALS", "WHATS", "Ending", "Kill", "crashes", "draw", "rows", "until_hit"]
