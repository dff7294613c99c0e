#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvme_raid's RAID0 delivers of what its disks deliver together: sequential 1 MiB requests, 32 in flight per disk, direct.

    python benchmarks/nvme_raid/run.py                                     # a node of the VM lab (bin/demo --vm)
    python benchmarks/nvme_raid/run.py -i inventory.yml gpu-1 --mib 16384   # real hardware

Takes the node's empty local NVMe disks, writes and reads them raw and all at once, makes the array, writes and reads files
on it, and removes it. Both sides move the same number of bytes with the same number of requests in flight. Disks that hold
anything are not touched.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import typing as t
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]
GOAL = 0.95
CHUNK_BYTES = 512 << 10


class Side(t.NamedTuple):
    """One run of fio: bytes per second, and the share of one CPU that it used per job."""

    rate: float
    cpu_percent: float


def parse(text: str, direction: str) -> Side:
    """The one group that fio reports."""
    (job,) = json.loads(text[text.index("{") :])["jobs"]
    return Side(float(job[direction]["bw_bytes"]), float(job["usr_cpu"]) + float(job["sys_cpu"]))


def measure(options: argparse.Namespace) -> dict[str, t.Any]:
    """One run of the playbook."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        variables = {"target": options.node, "mib": options.mib, "depth": options.depth, "models": options.model}
        extra = json.dumps({**variables, "results": str(results)})
        done = subprocess.run(
            ["ansible-playbook", "-i", options.inventory, str(HERE / "measure.yml"), "-e", extra],
            cwd=REPO,
            env={**os.environ, "ANSIBLE_FORCE_COLOR": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"The measurement failed.\n{done.stdout}{done.stderr}")
        return dict(json.loads(results.read_text(encoding="utf-8")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("node", nargs="?", default="vm-1")
    parser.add_argument("-i", "--inventory", default=str(REPO / "inventories/vm"))
    parser.add_argument("--mib", type=int, default=256, help="how much every disk writes and reads")
    parser.add_argument("--depth", type=int, default=32, help="requests in flight per disk")
    parser.add_argument("--model", action="append", default=[], help="only disks of this model (shell pattern)")
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    runs = [measure(options) for _run in range(options.runs)]
    first = runs[0]
    disks = len(first["disks"])
    print(
        f"{options.node}: {disks} disks, {options.mib} MiB each, {options.depth} requests of 1 MiB per disk, {options.runs} runs"
    )
    met = True
    for direction in ("write", "read"):
        raw = [parse(run[f"raw_{direction}"], direction) for run in runs]
        array = [parse(run[f"array_{direction}"], direction) for run in runs]
        ratio = statistics.median(one.rate / other.rate for one, other in zip(array, raw))
        met = met and ratio >= GOAL
        print(
            f"{direction:5}  disks {statistics.median(side.rate for side in raw) / 1e9:7.3f} GB/s   "
            f"array {statistics.median(side.rate for side in array) / 1e9:7.3f} GB/s   ratio {ratio:.2f}   "
            f"CPU of a job {raw[0].cpu_percent:.0f} % and {array[0].cpu_percent:.0f} %"
        )
    unit, width = first["geometry"]["unit_bytes"], first["geometry"]["width_bytes"]
    stripes = (unit, width) == (CHUNK_BYTES, disks * CHUNK_BYTES)
    print(f"stripes of XFS   {width >> 10} KiB in units of {unit >> 10} KiB: {'right' if stripes else 'WRONG'}")
    if first["machine"] == "qemu":
        print(
            "The machine is emulated in software: its processors limit both sides, not its disks. Take no rate from here."
        )
    print(f"goal             array at least {GOAL} of its disks, both ways: {'met' if met and stripes else 'MISSED'}")
    sys.exit(0 if met and stripes else 3)  # 1 is an exception's, here as in benchmarks/staging


if __name__ == "__main__":
    main()
