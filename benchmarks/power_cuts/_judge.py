# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What became of every disk of a machine after a power cut. Pure functions."""

from __future__ import annotations

import collections
import dataclasses
import re
import typing as t

from _cuts import PHASES, Cut

WHOLE, AGAIN, UNTOUCHED = "whole", "made again", "untouched"
# What the program of the unit says that it did, when it did more than to bring back what was there.
_MADE = re.compile(r"^nvme_raid: (?:create|make|erase) ")


@dataclasses.dataclass(frozen=True)
class Seen:
    """A machine after the boot that followed the cut, when the unit of the role had run.

    ``acknowledged``: records that were acknowledged to the outside as safe. ``readable``: so many of them are there, from the
    first one on without a gap; None where nothing is mounted. Disks are told by serial numbers.
    """

    members: tuple[str, ...]  # chosen for the file system
    others: tuple[str, ...]  # none of its business: foreign data, or not selected
    acknowledged: int
    readable: int | None
    mounted: tuple[str, ...] = ()  # the disks below the file system that is mounted
    journal: tuple[str, ...] = ()  # of the unit, since the boot
    damage: str = ""  # what a check of the file system says, which can be mounted
    written: tuple[str, ...] = ()  # disks that were written to since the phase began or whose content differs
    marked: bool = False  # a creation that has begun is still marked as not ended
    play: str = ""  # what the role said where the unit failed; empty where it mended that, or was not needed
    unit: str = ""  # what is to be told of the unit; a failure that the role mends without consent is none of the disks
    given_back: str = ""  # what was wrong with a second removal, and a creation without consent after it

    @property
    def made(self) -> bool:
        return any(_MADE.match(line) for line in self.journal)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """By disk what became of it, and what must not be."""

    disks: dict[str, str]
    wrong: tuple[str, ...] = ()


def judge(phase: str, seen: Seen) -> Verdict:
    """Each disk is whole, made again, or untouched; everything else is wrong."""
    wrong = [
        f"{disk} is none of the file system's disks and was written to" for disk in seen.others if disk in seen.written
    ]
    disks = {disk: UNTOUCHED for disk in seen.others if disk not in seen.written}
    found = _removed(seen) if phase == "removal" else _kept(seen)
    if found in (WHOLE, AGAIN, UNTOUCHED):
        disks.update(dict.fromkeys(seen.members, found))
    else:
        wrong.append(found)
    if seen.mounted and seen.marked:
        wrong.append("the file system is mounted, and still marked as one that was never finished")
    return Verdict(disks, tuple(wrong))


def _kept(seen: Seen) -> str:
    """Nobody gave anything up: the file system is there, with all that was acknowledged."""
    if not seen.mounted:
        return f"nothing is mounted: {seen.play or 'the unit failed'}"
    return _mounted(seen)


def _removed(seen: Seen) -> str:
    """All was given up: it is there, or made again, or waits for the removal to be repeated; then all is given back empty."""
    if seen.given_back:
        return seen.given_back
    # Nothing was left of it, and what was given back empty is taken again without consent.
    return _mounted(seen, given_up=True) if seen.mounted else AGAIN


def _mounted(seen: Seen, given_up: bool = False) -> str:
    if set(seen.mounted) != set(seen.members):
        return (
            f"the file system lies on {', '.join(sorted(seen.mounted))}, and not on {', '.join(sorted(seen.members))}"
        )
    if seen.damage:
        return f"the file system is mounted and damaged: {seen.damage}"
    if seen.made:
        if seen.acknowledged and not given_up:
            return f"made again, although {seen.acknowledged} records were acknowledged"
        return AGAIN
    if (seen.readable or 0) < seen.acknowledged:
        return f"{seen.acknowledged} records were acknowledged, and only {seen.readable} are there"
    return WHOLE


class Outcome(t.NamedTuple):
    """A cut and what came of it. ``where``: the step in which it fell; ``note``: what its judge has to know."""

    cut: Cut
    where: str
    verdict: Verdict
    note: str = ""


_HEAD = ("phase", "cuts", "inside", WHOLE, AGAIN, UNTOUCHED, "WRONG", "where they fell")


def table(outcomes: t.Sequence[Outcome]) -> str:
    """By phase: cuts, those that fell inside of it, and what became of the disks."""
    rows: list[tuple[str, ...]] = [_HEAD]
    for phase in PHASES:
        of = [outcome for outcome in outcomes if outcome.cut.phase == phase]
        if of:
            rows.append(_row(phase, of))
    rows.append(_row("all", outcomes))
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD) - 1)]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:])), row[-1]]
        )
        for row in rows
    )


def _row(name: str, outcomes: t.Sequence[Outcome]) -> tuple[str, ...]:
    became = collections.Counter(state for outcome in outcomes for state in outcome.verdict.disks.values())
    places = collections.Counter(outcome.where for outcome in outcomes)
    where = ", ".join(f"{place} {count}" for place, count in places.most_common()) if name != "all" else ""
    inside = sum(outcome.where in _INSIDE[outcome.cut.phase] for outcome in outcomes)
    wrong = sum(bool(outcome.verdict.wrong) for outcome in outcomes)
    counts = (len(outcomes), inside, became[WHOLE], became[AGAIN], became[UNTOUCHED], wrong)
    return (name, *map(str, counts), where)


#: Not inside of the phase.
AFTER = "after its end"
# The last step that a machine told of, and what it does until the next one.
_BETWEEN = {
    "mdadm --create end": "clearing the new array",
    "mkfs end": "between mkfs and mount",
    "mount end": AFTER,
    "umount end": "clearing the file system",
    "mdadm --stop end": "erasing the disks",
}
_INSIDE = {
    "create": {"mdadm --create", "clearing the new array"},
    "mkfs": {"mkfs", "between mkfs and mount", "mount"},
    "growth": {"writing"},
    "removal": {"umount", "clearing the file system", "mdadm --stop", "erasing the disks"},
}


def where_it_fell(phase: str, told: str) -> str:
    """The step in which a machine was, from the last that it told, such as ``mkfs begin``."""
    if phase == "growth":
        return "writing"
    if told in _BETWEEN:
        return _BETWEEN[told]
    return (
        told.removesuffix(" begin") if told.endswith(" begin") else f"after {told}" if told else "before its first step"
    )


__all__ = ["AFTER", "AGAIN", "UNTOUCHED", "WHOLE", "Outcome", "Seen", "Verdict", "judge", "table", "where_it_fell"]
