# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How every staging benchmark shows its result: both sides, the ratio, the goal, and whether it was met."""

from __future__ import annotations

import os
import sys
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The benchmarks are scripts: they find the collection and the lab as pytest does.
sys.path[:0] = [str(ROOT / ".venv" / "collections"), str(ROOT / "tests")]
AZCOPY = ROOT / ".cache/blob/node_modules/@azure-tools/azcopy-linux/dist/bin/azcopy_linux_amd64"
#: Exit status. Python ends with 1 after an exception and after sys.exit(message), and argparse with 2.
GOAL_MISSED = 3


class Goal(t.NamedTuple):
    """``value`` must be at most (or, with ``at_least``, at least) ``limit``."""

    what: str
    value: float
    limit: float
    unit: str = ""
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def report(
    title: str, rows: t.Sequence[t.Mapping[str, t.Any]], *, ratio: str = "", goal: t.Sequence[Goal] | Goal = ()
) -> None:
    """Print ``rows`` as a table, then the ratio and each goal with 'met' or 'MISSED'."""
    print(f"\n{title}\n{'=' * len(title)}")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = [columns] + [[_text(row.get(column, "")) for column in columns] for row in rows]
    widths = [max(len(line[index]) for line in table) for index in range(len(columns))]
    for number, line in enumerate(table):
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))
    if ratio:
        print(f"ratio: {ratio}")
    for one in [goal] if isinstance(goal, Goal) else goal:
        sign = ">=" if one.at_least else "<="
        verdict = "met" if one.met else "MISSED"
        print(f"goal:  {one.what} {sign} {_text(one.limit)}{one.unit}: {_text(one.value)}{one.unit}, {verdict}")
    print(f"machine: {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}", flush=True)


def exit_status(goals: t.Sequence[Goal] | Goal) -> int:
    """0 where all goals are met, else GOAL_MISSED. A benchmark that could not measure ends with another status."""
    return 0 if all(one.met for one in ([goals] if isinstance(goals, Goal) else goals)) else GOAL_MISSED


def _text(value: t.Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}" if value < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


__all__ = ["AZCOPY", "GOAL_MISSED", "ROOT", "Goal", "exit_status", "report"]
