# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S7: 200 Mbit/s per node, 1 to 8 nodes. How much of the nodes' bandwidth does the copy use, and the whole staging?

``python benchmarks/staging/s7_scaling.py`` (root, about four minutes). Each node brings the same number of bytes, so the
ideal time is the same for all rows. End to end adds listing, planning and the comparison with the manifest.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path

from _ranks import copy, network, parameters, shared, verify
from _report import Goal, exit_status, report
from lab.blob.fast_server import Body, FastServer

RATE_MBIT = 200
BLOB_BYTES = 1 << 20
NODES = (1, 2, 4, 8)
# Eight nodes share the CPUs of one machine here, so each gets one AzCopy process with few requests in flight: for the same
# bytes a second process costs a third more CPU, four cost twice as much, and eight requests in flight a tenth more than four.
CONCURRENCY = 4
PROCESSES = 1


def measure(nodes: int, blobs_per_node: int) -> dict[str, float]:
    """One row of the table."""
    body = Body(os.urandom(BLOB_BYTES))
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm"))
        address = stack.enter_context(network([RATE_MBIT] * nodes))
        blobs = {f"f{number:05d}": body for number in range(nodes * blobs_per_node)}
        server = stack.enter_context(FastServer(blobs, address=address))
        began = time.monotonic()
        options = {"nic_mbps": RATE_MBIT, "concurrency": CONCURRENCY, "processes": PROCESSES}
        ranks = shared(parameters(server.url, Path(scratch) / "data", nodes, **options))
        copy_s, _results = copy(ranks)
        verify(ranks)
        whole_s = time.monotonic() - began
    ideal_s = blobs_per_node * BLOB_BYTES * 8 / (RATE_MBIT * 1e6)
    return {
        "nodes": nodes,
        "ideal_s": ideal_s,
        "copy_s": copy_s,
        "end_to_end_s": whole_s,
        "copy_efficiency": ideal_s / copy_s,
        "end_to_end_efficiency": ideal_s / whole_s,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blobs-per-node", type=int, default=1000, help="of 1 MiB (default: %(default)s)")
    options = parser.parse_args()
    rows = [measure(nodes, options.blobs_per_node) for nodes in NODES]
    goals = [
        Goal("worst copy efficiency", min(row["copy_efficiency"] for row in rows), 0.90, at_least=True),
        Goal("worst end-to-end efficiency", min(row["end_to_end_efficiency"] for row in rows), 0.80, at_least=True),
    ]
    ratio = f"8 nodes are {rows[0]['end_to_end_s'] * 8 / rows[-1]['end_to_end_s']:.2f} x as fast as one"
    report(f"S7 {RATE_MBIT} Mbit/s per node", rows, ratio=ratio, goal=goals)
    return exit_status(goals)


if __name__ == "__main__":
    sys.exit(main())
