#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S2: the plan for a million files over 1,024 ranks, against the round robin that scripts usually do."""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import time
import typing as t

from _report import Goal, exit_status, report
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._shards.plan import (
    DEFAULT_BYTES_PER_SECOND,
    DEFAULT_SECONDS_PER_FILE,
    contiguous,
    file_seconds,
    imbalance,
    plan_shards,
    round_robin,
)

SIZES: dict[str, t.Callable[[random.Random], float]] = {
    "CosmoFlow-like": lambda chance: 2.26e6 * chance.uniform(0.9, 1.1),
    "log-normal": lambda chance: chance.lognormvariate(14, 2),
    "Pareto": lambda chance: 1e5 * chance.paretovariate(1.1),
}


def measure(shape: str, files: int, ranks: int) -> list[dict[str, t.Any]]:
    chance = random.Random(1)
    sizes = [int(SIZES[shape](chance)) for _file in range(files)]
    start, cpu = time.perf_counter(), time.process_time()
    seconds = file_seconds(sizes, DEFAULT_BYTES_PER_SECOND, DEFAULT_SECONDS_PER_FILE)
    plan = plan_shards(seconds, ranks)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert sum(map(len, plan.shares)) == files
    rows = [
        {"sizes": shape, "method": "ours", "wall s": wall, "CPU s": cpu, "MiB": memory, "max/ideal": plan.imbalance}
    ]
    for method, partition in (("round robin", round_robin), ("contiguous", contiguous)):
        loads = [sum(seconds[index] for index in part) for part in partition(files, ranks)]
        rows.append({"sizes": shape, "method": method, "max/ideal": imbalance(loads, max(seconds))})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--shape", choices=list(SIZES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.shape:
        print(json.dumps(measure(options.shape, options.files, options.ranks)))
        return 0
    rows: list[dict[str, t.Any]] = []
    for shape in SIZES:  # each in a process of its own, so that the memory is its own
        argv = [sys.executable, __file__, f"--files={options.files}", f"--ranks={options.ranks}", f"--shape={shape}"]
        rows += json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    ours = [row for row in rows if row["method"] == "ours"]
    goals = [
        # One thread, no I/O: on a machine with other work the CPU time says what the wall would be on a quiet one.
        Goal("CPU time, slowest", max(row["CPU s"] for row in ours), 1.5, " s"),
        Goal("memory, largest (the sizes included)", max(row["MiB"] for row in ours), 600, " MiB"),
        Goal("max/ideal, worst", max(row["max/ideal"] for row in ours), 1.0002),
    ]
    worst = max(row["max/ideal"] for row in rows if row["method"] == "round robin")
    ratio = f"the slowest rank of round robin works {worst / goals[2].value:.2f} x as long as ours at worst"
    report(f"S2: plan of {options.files:,} files over {options.ranks:,} ranks", rows, ratio=ratio, goal=goals)
    return exit_status(goals)


if __name__ == "__main__":
    sys.exit(main())
