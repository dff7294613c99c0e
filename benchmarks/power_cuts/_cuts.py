# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cuts are made: drawn from a seed before anything runs, so that each can be made again by its number."""

from __future__ import annotations

import dataclasses
import random

#: In turn, so that each phase gets its share whatever the seed.
PHASES = ("create", "mkfs", "growth", "removal")
#: One for each turn over the phases: arrays as most machines have them, and some others.
_SHAPES = ("raid0", "raid0", "raid10", "raid0", "single", "raid0", "raid0", "raid10")
#: Who makes the file system: the unit of the role that is started, the role in a play, or the unit while the machine boots.
_MAKERS = ("unit", "play", "boot", "unit")
#: What the drives lose of what they were never told to flush. Any of it may be gone, which is why most cuts lose some.
_LOSSES = ("some", "all", "some", "none")
GROWTH_S = 8.0


@dataclasses.dataclass(frozen=True)
class Cut:
    """One power cut. ``fraction``: when, as a part of the time that the phase takes undisturbed, 0 to 1."""

    number: int
    phase: str
    shape: str
    maker: str
    fraction: float
    loss: str
    seed: str  # of what else is drawn for this cut: which of the writes that were not flushed are lost

    def __str__(self) -> str:
        who = f" by the {self.maker}" if self.phase in ("create", "mkfs") else ""
        return f"cut {self.number}: {self.phase} of {self.shape}{who} at {self.fraction:.0%}, losing {self.loss} of what was not flushed"


def draw(seed: int, count: int) -> tuple[Cut, ...]:
    """The cuts of a run. A longer run begins with the cuts of a shorter one with the same seed."""
    rng = random.Random(seed)
    cuts: list[Cut] = []
    while len(cuts) < count:
        shapes = rng.sample(_SHAPES, len(_SHAPES))
        makers = rng.sample(_MAKERS * 4, len(_MAKERS) * 4)
        for shape in shapes:
            for phase in PHASES:
                # One disk has no array that could be cut in its creation.
                phase = "mkfs" if (shape, phase) == ("single", "create") else phase
                maker = makers.pop() if phase in ("create", "mkfs") else ""
                number = len(cuts) + 1
                cuts.append(Cut(number, phase, shape, maker, rng.random(), rng.choice(_LOSSES), f"{seed}/{number}"))
    return tuple(cuts[:count])


def shared_out(cuts: tuple[Cut, ...], machines: int) -> list[tuple[Cut, ...]]:
    """Cuts for machines that work at the same time. A turn over the phases stays together: one leads to the state of the next."""
    turns = [cuts[start : start + len(PHASES)] for start in range(0, len(cuts), len(PHASES))]
    return [tuple(cut for turn in turns[number::machines] for cut in turn) for number in range(machines)]


__all__ = ["GROWTH_S", "PHASES", "Cut", "draw", "shared_out"]
