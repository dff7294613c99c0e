#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S4: CPU of a throttled copy, AzCopy with stdin at end of file (as under Ansible, systemd, Slurm) beside our supervisor.

Both copy the same bytes under the same cap, which takes about 14 s by default; what differs is what AzCopy's stdin is.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import resource
import subprocess
import tempfile
import time

from _report import AZCOPY, Goal, exit_status, report
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.run import CopyRequest, run_copy
from lab.blob.fast_server import Body, FastServer

CAP_MBPS = 100
FILES = 20


def cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def raw(url: str, work: pathlib.Path) -> None:
    environment = {
        **os.environ,
        "AZCOPY_DISABLE_SYSLOG": "true",
        "AZCOPY_LOG_LOCATION": str(work / "log"),
        "AZCOPY_JOB_PLAN_LOCATION": str(work / "plan"),
    }
    argv = [str(AZCOPY), "copy", url, str(work / "raw"), "--recursive", "--from-to", "BlobLocal"]
    argv += ["--cap-mbps", str(CAP_MBPS), "--log-level", "ERROR"]
    with open(os.devnull, encoding="ascii") as nothing:
        subprocess.run(argv, stdin=nothing, stdout=subprocess.DEVNULL, env=environment, check=True)


def ours(url: str, work: pathlib.Path) -> None:
    outcome = run_copy(CopyRequest(str(AZCOPY), url, str(work / "ours"), cap_mbps=CAP_MBPS))
    if outcome.error is not None:
        raise outcome.error


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=14, help="that the cap leaves (default: %(default)s)")
    options = parser.parse_args()
    file_bytes = int(CAP_MBPS * 1e6 / 8 * options.seconds / FILES)
    rows = []
    body = Body(os.urandom(file_bytes))
    with tempfile.TemporaryDirectory(prefix="s4-", dir="/dev/shm") as base:
        work = pathlib.Path(base)
        with FastServer({f"t/f{number:02d}": body for number in range(FILES)}) as server:
            for label, side in (("azcopy < /dev/null", raw), ("collection", ours)):
                wall, cpu = time.monotonic(), cpu_s()
                side(f"{server.url}/t", work)
                rows.append({"side": label, "wall_s": time.monotonic() - wall, "cpu_s": cpu_s() - cpu})
        for folder in ("raw", "ours"):
            copied = sum(path.stat().st_size for path in (work / folder).rglob("f*") if path.is_file())
            assert copied == FILES * file_bytes, f"{folder}: {copied} bytes"
    ratio = float(rows[1]["cpu_s"]) / float(rows[0]["cpu_s"])
    goal = Goal("CPU of the collection", ratio, 0.1, " x")
    report(f"S4 {FILES * file_bytes / 1e6:.0f} MB at {CAP_MBPS} Mb/s", rows, ratio=f"{1 / ratio:.1f} x less", goal=goal)
    return exit_status(goal)


if __name__ == "__main__":
    raise SystemExit(main())
