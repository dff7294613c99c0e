# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What the planner hands out and gets back."""

from __future__ import annotations

import enum
import typing as t

#: Nominal nodes of a launch, and the keys of the topology that it spans: launches of one scale can be compared.
Scale = tuple[int, tuple[str, ...]]


class Launch(t.NamedTuple):
    """A collective to run over these nodes, measured so many times within one launch."""

    nodes: tuple[str, ...]
    samples: int


class Run(t.NamedTuple):
    """A launch that has ended. ``busbw_gbytes_s`` is the median of its samples, None where it hung or failed."""

    number: int  # of its round, from 1
    nodes: tuple[str, ...]
    scale: Scale
    busbw_gbytes_s: float | None
    samples: int
    incomplete: bool = False  # it was not measured, and that is nobody's fault


class Trial(t.NamedTuple):
    """A run, and what was tried in it: nodes, or domains as ``key=value``."""

    items: tuple[str, ...]
    run: Run


class Found(enum.Enum):
    FAST = "fast"
    SLOW = "slow"  # or it hung, or failed
    UNCLEAR = "unclear"  # too close to the floor, nothing to compare it with, or not measured
