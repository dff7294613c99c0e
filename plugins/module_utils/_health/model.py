# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What a check launches, and what became of a launch. Both cross the wire between controller and first node as JSON."""

from __future__ import annotations

import dataclasses
import typing as t


@dataclasses.dataclass(frozen=True)
class Collective:
    """A program of nccl-tests. ``name`` is what users write."""

    name: str
    program: str


COLLECTIVES = {
    one.name: one
    for one in (
        Collective("all_reduce", "all_reduce_perf"),
        Collective("alltoall", "alltoall_perf"),
        Collective("all_gather", "all_gather_perf"),
        Collective("reduce_scatter", "reduce_scatter_perf"),
    )
}


@dataclasses.dataclass(frozen=True)
class Launch:
    """One collective over ``nodes``, measured ``samples`` times. ``program`` is a name; where it lies is the node's business."""

    id: str
    nodes: tuple[str, ...]
    program: str
    arguments: tuple[str, ...]
    samples: int
    timeout_s: float


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a launch.

    ``busbw_gbytes_s``: of each sample at the largest size. ``curve``: [size in bytes, median GB/s] of all sizes. ``wrong``: wrong elements.
    ``transport``: the networks that NCCL named. ``unreadable``: why there are no numbers, although it ran. ``trouble``: why it could
    not run, which is nobody's fault: a missing tool, a launcher that refuses. ``lost``: nodes that do not answer, and those on which
    something of the launch is left, with the reason.
    """

    id: str
    nodes: tuple[str, ...]
    seconds: float = 0.0
    rc: int | None = None
    timed_out: bool = False
    busbw_gbytes_s: tuple[float, ...] = ()
    curve: tuple[tuple[int, float], ...] = ()
    wrong: int = 0
    transport: tuple[str, ...] = ()
    unreadable: str = ""
    trouble: str = ""
    lost: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    log_tail: str = ""

    @classmethod
    def of(cls, data: t.Mapping[str, t.Any]) -> Outcome:
        """From JSON, which has no tuples."""
        names = {field.name for field in dataclasses.fields(cls)}
        values = {key: value for key, value in data.items() if key in names}
        for key in ("nodes", "busbw_gbytes_s", "transport"):
            values[key] = tuple(values.get(key, ()))
        values["curve"] = tuple((int(size), float(busbw)) for size, busbw in values.get("curve", ()))
        return cls(**values)

    def as_json(self) -> dict[str, t.Any]:
        return dataclasses.asdict(self)


__all__ = ["COLLECTIVES", "Collective", "Launch", "Outcome"]
