#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S12: a storage account that throttles. How much of its limit do four nodes use, and does a file fail? Raw AzCopy beside it.

``python benchmarks/staging/s12_throttled.py`` (about five minutes). Azurite behind a proxy that answers 503 ServerBusy with
``Retry-After: 1`` to what exceeds so many requests, or bytes, a second. Nobody is told the limit. Each of four AzCopy processes by
themselves has a quarter of the directories. The part of the limit that is used is that by what arrived: what is served includes
what was fetched twice.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from _ranks import copy, parameters, shared, verify
from _report import AZCOPY, Goal, exit_status, report
from _throttle import ThrottledAccount
from lab.blob.service import Azurite, azurite

NODES = 4
PROCESSES = 2
CONCURRENCY = 8
#: For each file: AzCopy asks for the properties of those in a list of names twice before it fetches them.
REQUESTS = {"collection": 3, "raw AzCopy": 1}
#: Where raw AzCopy has not ended after so many times the ideal, it is stopped.
_PATIENCE = 6


class Case(t.NamedTuple):
    """A dataset, and the limit that it runs into."""

    name: str
    files: int
    bytes_each: int
    limit: dict[str, float]

    def used(self, failed: int, seconds: float, requests_each: int) -> float:
        """The part of the limit that brought files, each of which takes so many requests."""
        arrived_per_s = (self.files - failed) / seconds
        if "requests_per_s" in self.limit:
            return arrived_per_s * requests_each / self.limit["requests_per_s"]
        return arrived_per_s * self.bytes_each / self.limit["bytes_per_s"]


def fill(server: Azurite, case: Case) -> None:
    server.create_container(case.name)
    body = random.Random(case.name).randbytes(case.bytes_each)
    with ThreadPoolExecutor(8) as pool:
        for put in [
            pool.submit(server.put, case.name, f"d{number % NODES}/f{number:05d}", body) for number in range(case.files)
        ]:
            put.result()


def ours(account: ThrottledAccount, server: Azurite, case: Case, scratch: Path) -> dict[str, t.Any]:
    url = f"http://127.0.0.1:{account.port}/{server.account}/{case.name}"
    source = {"url": url, "prefix": "", "sas": server.sas("rl")}
    options = {"sources": [source], "processes": PROCESSES, "concurrency": CONCURRENCY, "batch_s": 10}
    ranks = shared(parameters(url, scratch / "data", NODES, **options))
    before = account.counts()
    seconds, results = copy(ranks, namespaces=False)
    served = {what: count - before[what] for what, count in account.counts().items()}
    verify(ranks)
    failed = sum(result["failed_count"] for result in results)
    retried = sum(result["retried_batches"] for result in results)
    return {"seconds": seconds, "failed": failed, "retried batches": retried, **served}


def raw(account: ThrottledAccount, server: Azurite, case: Case, scratch: Path, cap_s: float) -> dict[str, t.Any]:
    began = time.monotonic()
    before = account.counts()
    with contextlib.ExitStack() as stack:
        processes = []
        for node in range(NODES):
            url = f"http://127.0.0.1:{account.port}/{server.account}/{case.name}/d{node}/*?{server.sas('rl')}"
            private = str(scratch / f"log-{node}")
            environment = {
                **os.environ,
                "AZCOPY_LOG_LOCATION": private,
                "AZCOPY_JOB_PLAN_LOCATION": private,
                "AZCOPY_CONCURRENCY_VALUE": str(PROCESSES * CONCURRENCY),
                "AZCOPY_DISABLE_SYSLOG": "true",
            }
            argv = [str(AZCOPY), "copy", url, str(scratch / "raw" / f"d{node}"), "--recursive", "--from-to=BlobLocal"]
            process = subprocess.Popen(
                [*argv, "--check-md5=FailIfDifferent", "--log-level=NONE", "--skip-version-check"],
                stdin=subprocess.PIPE,  # held open: AzCopy spins at end of file
                stdout=subprocess.DEVNULL,
                env=environment,
            )
            processes.append(stack.enter_context(process))
        until = began + cap_s
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, until - time.monotonic()))
            process.kill()
    seconds = time.monotonic() - began
    served = {what: count - before[what] for what, count in account.counts().items()}
    there = [path for path in (scratch / "raw").rglob("f*") if path.stat().st_size == case.bytes_each]
    return {"seconds": seconds, "failed": case.files - len(there), **served}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="that the limit leaves (default: %(default)s)")
    options = parser.parse_args()
    cases = [
        Case("requests", int(options.seconds * 100 / REQUESTS["collection"]), 4096, {"requests_per_s": 100}),
        Case("bytes", int(options.seconds * 10), 1_000_000, {"bytes_per_s": 10e6}),
    ]
    rows: list[dict[str, t.Any]] = []
    goals: list[Goal] = []
    with azurite() as server:
        for case in cases:
            fill(server, case)
            for side in REQUESTS:
                with (
                    tempfile.TemporaryDirectory(dir="/dev/shm") as place,
                    ThrottledAccount(server.port, **case.limit) as account,
                ):
                    if side == "collection":
                        result = ours(account, server, case, Path(place))
                    else:
                        result = raw(account, server, case, Path(place), _PATIENCE * options.seconds)
                used = case.used(result["failed"], result["seconds"], REQUESTS[side])
                print(f"{case.name}, {side}: {result['seconds']:.1f} s, {used:.2f} of it", file=sys.stderr, flush=True)
                rows.append({"limit": case.name, "side": side, "files": case.files, "of the limit": used, **result})
            goals += [
                Goal(f"part of the limit of {case.name} used", rows[-2]["of the limit"], 0.9, at_least=True),
                Goal(f"files that fail under a limit of {case.name}", rows[-2]["failed"], 0),
            ]
    ratio = ", ".join(
        f"{mine['limit']}: raw AzCopy takes {theirs['seconds'] / mine['seconds']:.2f} x as long"
        for mine, theirs in zip(rows[::2], rows[1::2])
    )
    limits = "100 requests/s, and 10 MB/s"
    report(f"S12 {NODES} nodes at an account that gives {limits}", rows, ratio=ratio, goal=goals)
    return exit_status(goals)


if __name__ == "__main__":
    sys.exit(main())
