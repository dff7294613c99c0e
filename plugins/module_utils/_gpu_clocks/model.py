# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What the files of the clocks share: a GPU as it was read, what is asked of it, and what is remembered of it."""

from __future__ import annotations

import dataclasses
import typing as t

Pair = tuple[int, int]

# In this order a job lies upon what the node was set to, and goes before it.
LAYERS: tuple[str, ...] = ("node", "job")
LOCKS: tuple[str, ...] = ("graphics_lock", "memory_lock")


@dataclasses.dataclass(frozen=True)
class Gpu:
    """One GPU as it was read. None is what it does not tell. Pairs of application clocks are (memory, graphics)."""

    index: int
    uuid: str
    name: str
    bus_id: str
    driver: str
    persistence: bool | None = None
    mig: bool | None = None
    graphics_mhz: int | None = None
    memory_mhz: int | None = None
    max_graphics_mhz: int | None = None
    max_memory_mhz: int | None = None
    applications: Pair | None = None
    default_applications: Pair | None = None
    applications_deprecated: bool = False
    compute_capability: float | None = None
    reasons: int | None = None

    @property
    def label(self) -> str:
        return f"GPU {self.index} ({self.bus_id})"


@dataclasses.dataclass(frozen=True)
class Wish:
    """What was asked for. ``method`` is ``auto``, ``lock`` or ``applications``."""

    policy: str
    graphics_mhz: int | None = None
    memory_mhz: int | None = None
    method: str = "auto"
    persistence: bool = True


@dataclasses.dataclass(frozen=True)
class Settings:
    """Clock settings. None is the driver's default: no lock, default application clocks; for persistence: not told.

    Locks named in ``unknown`` are whatever they are: read, nobody can say; wanted, they are left alone.
    """

    persistence: bool | None = None
    applications: Pair | None = None
    graphics_lock: Pair | None = None
    memory_lock: Pair | None = None
    unknown: frozenset[str] = frozenset()

    def show(self) -> dict[str, str]:
        """For people and diffs."""

        def lock(name: str) -> str:
            value = getattr(self, name)
            if name in self.unknown:
                return "unknown"
            return f"{value[0]}-{value[1]} MHz" if value else "none"

        return {
            "persistence": {True: "on", False: "off", None: "unknown"}[self.persistence],
            "application_clocks": "memory {} MHz, graphics {} MHz".format(*self.applications)
            if self.applications
            else "default",
            "graphics_lock": lock("graphics_lock"),
            "memory_lock": lock("memory_lock"),
        }


@dataclasses.dataclass(frozen=True)
class Layer:
    """What was there before the node's policy, or before a job, and who set it since.

    A job's layer without holders is owed: all of them have ended, and it could not be given back.
    """

    prior: Settings
    session: str
    holders: tuple[str, ...] = ()
    touched: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class Record:
    """What is remembered of a GPU. ``sessions`` names, for each lock, the life of the driver in which it was set."""

    sessions: dict[str, str] = dataclasses.field(default_factory=dict)
    graphics_lock: Pair | None = None
    memory_lock: Pair | None = None
    seen_mhz: int | None = None  # the graphics clock just after it was locked
    refused: dict[str, str] = dataclasses.field(default_factory=dict)  # setting -> the driver that does not support it
    layers: dict[str, Layer] = dataclasses.field(default_factory=dict)

    def above(self, layer: str) -> str | None:
        """The lowest layer that lies upon this one."""
        return next((name for name in LAYERS[LAYERS.index(layer) + 1 :] if name in self.layers), None)


@dataclasses.dataclass(frozen=True)
class Problem:
    """Why a GPU does not get what was asked for."""

    setting: str
    kind: str
    message: str


@dataclasses.dataclass(frozen=True)
class Target:
    settings: Settings
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Step:
    """One change: the arguments of nvidia-smi without ``-i``, and the value it leads to."""

    setting: str
    arguments: tuple[str, ...]
    value: t.Any


@dataclasses.dataclass(frozen=True)
class Decision:
    """What is to be remembered of a GPU from now on, and the settings that it is to have; None leaves them as they are."""

    record: Record
    wanted: Settings | None
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


__all__ = [
    "LAYERS",
    "LOCKS",
    "Decision",
    "Gpu",
    "Layer",
    "Pair",
    "Problem",
    "Record",
    "Settings",
    "Step",
    "Target",
    "Wish",
]
