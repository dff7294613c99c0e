# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S6: one rank of eight has a quarter of the bandwidth. Static shares wait for it; claimed batches do not.

``python benchmarks/staging/s6_slow_rank.py`` (root, about four minutes). Real AzCopy, rates by tc. The static
side is what the same code does without a shared file system: every rank copies its own share.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from pathlib import Path

from _ranks import copy, network, parameters, separate, shared, verify
from _report import Goal, exit_status, report
from lab.blob.fast_server import Body, FastServer

RATES_MBIT = [10, *[40] * 7]
BLOB_BYTES = 1 << 20
BATCHES_PER_RANK = 16


def makespan(files: int, *, static: bool) -> tuple[float, float]:
    """(seconds, ideal seconds) for so many blobs of one size."""
    body = Body(os.urandom(BLOB_BYTES))
    blobs = {f"f{number:05d}": body for number in range(files)}
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm"))
        address = stack.enter_context(network(RATES_MBIT))
        server = stack.enter_context(FastServer(blobs, address=address))
        share_s = files * BLOB_BYTES * 8 / len(RATES_MBIT) / 40e6
        batch_s = share_s / BATCHES_PER_RANK
        params = parameters(server.url, Path(scratch) / "data", len(RATES_MBIT), nic_mbps=40, batch_s=batch_s)
        ranks = separate(params) if static else shared(params)
        seconds, _results = copy(ranks)
        verify(ranks)
    return seconds, files * BLOB_BYTES * 8 / (sum(RATES_MBIT) * 1e6)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--static-files", type=int, default=600, help="of 1 MiB (default: %(default)s)")
    parser.add_argument("--claimed-files", type=int, default=4000, help="of 1 MiB (default: %(default)s)")
    options = parser.parse_args()
    rows = []
    static_s, static_ideal_s = makespan(options.static_files, static=True)
    claimed_s, claimed_ideal_s = makespan(options.claimed_files, static=False)
    for name, seconds, ideal in (("static", static_s, static_ideal_s), ("claimed", claimed_s, claimed_ideal_s)):
        rows.append({"shares": name, "makespan_s": seconds, "ideal_s": ideal, "makespan/ideal": seconds / ideal})
    goal = Goal("makespan/ideal of claimed batches", claimed_s / claimed_ideal_s, 1.1)
    ratio = f"static {static_s / static_ideal_s:.2f} x ideal, claimed {claimed_s / claimed_ideal_s:.2f} x ideal"
    report("S6 One rank of 8 running 4 x slow", rows, ratio=ratio, goal=goal)
    return exit_status(goal)


if __name__ == "__main__":
    sys.exit(main())
