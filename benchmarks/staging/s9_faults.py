#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S9: the fault table, raw AzCopy beside the collection. ``s9_faults.py [--raw-cap SECONDS] [KEY ...]``

Raw AzCopy is stopped after the cap where it does not end by itself ("no end"); everything else runs as users get it.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile

from _report import Goal, exit_status, report
from lab.blob.faults import FAULTS, Ending, Stage, play_ours, play_raw
from lab.blob.service import azurite

LIMIT_S = 60.0


def describe(ending: Ending) -> str:
    if not ending.ended:
        return f"no end in {ending.seconds:.0f} s"
    return f"{ending.verdict}, {ending.seconds:.1f} s"


def remark(ending: Ending) -> str:
    found = []
    if ending.silent:
        found.append("SILENT")
    if ending.wrong_names:
        found.append("wrong: " + ",".join(ending.wrong_names))
    if ending.leftovers:
        found.append(f"{ending.leftovers} left over")
    return "; ".join(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--raw-cap", type=float, default=20.0, help="seconds after which raw AzCopy is stopped")
    parser.add_argument("keys", nargs="*", help="rows to play; all without")
    options = parser.parse_args()
    rows = []
    endings: list[tuple[Ending, Ending]] = []
    unexpected = []
    with azurite() as server:
        for fault in FAULTS:
            if options.keys and fault.key not in options.keys:
                continue
            pair = []
            for side in ("raw", "ours"):
                with (
                    tempfile.TemporaryDirectory(prefix="s9-") as root,
                    Stage(fault, server, pathlib.Path(root)) as stage,
                ):
                    pair.append(play_raw(stage, options.raw_cap) if side == "raw" else play_ours(stage))
            raw, ours = pair
            endings.append((raw, ours))
            if ours.verdict != (fault.kind or "ok"):
                unexpected.append(f"{fault.key}: {ours.verdict} instead of {fault.kind or 'ok'}: {ours.message}")
            rows.append(
                {
                    "row": fault.row,
                    "case": fault.title,
                    "raw AzCopy": describe(raw),
                    "raw remark": remark(raw),
                    "collection": describe(ours),
                    "our remark": remark(ours),
                    "<= 60 s": "yes" if ours.ended and ours.seconds <= LIMIT_S else "NO",
                }
            )
            print(f"{fault.key}: {describe(raw)} | {describe(ours)}", file=sys.stderr, flush=True)
    ours_all = [ours for _raw, ours in endings]
    goals = [
        Goal("silent successes", sum(ending.silent for ending in ours_all), 0),
        Goal("longest time to the end after the fault", max(ending.seconds for ending in ours_all), LIMIT_S, " s"),
        Goal("wrong data at a final name", sum(bool(ending.wrong_names) for ending in ours_all), 0),
        Goal("temporary files left behind", sum(ending.leftovers for ending in ours_all), 0),
        Goal("endings of another kind than documented", len(unexpected), 0),
    ]
    raw_all = [raw for raw, _ours in endings]
    summary = (
        f"raw AzCopy: {sum(raw.silent for raw in raw_all)} silent, {sum(not raw.ended for raw in raw_all)} without end"
    )
    report("S9 fault table", rows, ratio=summary, goal=goals)
    print("\n".join(unexpected))
    return exit_status(goals)


if __name__ == "__main__":
    raise SystemExit(main())
