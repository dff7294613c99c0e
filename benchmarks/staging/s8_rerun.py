# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S8: stage 10,000 files, run again, damage one, run again. What is asked of the storage account each time?

``python benchmarks/staging/s8_rerun.py`` (root, about two minutes). Beside it AzCopy itself with ``--overwrite=ifSourceNewer``,
which asks for everything again and does not see a truncated file.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import subprocess
import sys
import tempfile
import time
import typing as t
from pathlib import Path

from _ranks import copy, network, parameters, plan, shared, verify
from _report import AZCOPY, Goal, exit_status, report
from lab.blob.fast_server import Body, FastServer

RANKS = 2
PAGE = 5000  # names that one answer lists
Damage = t.Callable[[Path], object]


def alter(path: Path) -> None:
    path.write_bytes(b"x" * path.stat().st_size)


DAMAGES: dict[str, Damage] = {
    "truncated": lambda path: os.truncate(path, 10),
    "deleted": Path.unlink,
    "altered, same size": alter,
}


class Counter:
    """Requests since the last look."""

    def __init__(self, server: FastServer) -> None:
        self._server = server
        self._seen = server.counts()

    def take(self) -> dict[str, int]:
        now = self._server.counts()
        since = {what: now[what] - self._seen[what] for what in now}
        self._seen = now
        return since


def raw_azcopy(url: str, destination: Path) -> None:
    argv = [str(AZCOPY), "copy", f"{url}/*?sv=1&sig=none", str(destination), "--recursive", "--from-to", "BlobLocal"]
    environment = {**os.environ, "AZCOPY_LOG_LOCATION": "/tmp", "AZCOPY_DISABLE_SYSLOG": "true"}
    with subprocess.Popen(
        [*argv, "--overwrite=ifSourceNewer", "--log-level=NONE"],
        stdin=subprocess.PIPE,  # held open: AzCopy spins at end of file
        stdout=subprocess.DEVNULL,
        env=environment,
    ) as process:
        if status := process.wait():
            raise RuntimeError(f"AzCopy ended with {status}.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000, help="of 4 KiB (default: %(default)s)")
    options = parser.parse_args()
    names = [f"d{number % 10}/f{number:05d}" for number in range(options.files)]
    blobs = {name: Body(os.urandom(64) * 64) for name in names}
    damaged = names[options.files // 2]
    rows: list[dict[str, t.Any]] = []
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        address = stack.enter_context(network([1000] * RANKS))
        server = stack.enter_context(FastServer(blobs, address=address))
        counter = Counter(server)
        params = parameters(server.url, scratch / "data", RANKS)
        victim = scratch / "data" / damaged

        def stage(case: str) -> None:
            began = time.monotonic()
            planned = plan(params)
            if planned["run"]:
                ranks = shared(params)
                copy(ranks)
                verify(ranks)
            seconds = time.monotonic() - began
            rows.append(
                {"case": case, "side": "role", **counter.take(), "copied": planned["missing_files"], "s": seconds}
            )

        stage("first run")
        stage("second run")
        for name, damage in DAMAGES.items():
            damage(victim)
            stage(f"one file {name}")
        raw_azcopy(server.url, scratch / "raw")
        counter.take()
        raw_victim = next((scratch / "raw").rglob(Path(damaged).name))
        os.truncate(raw_victim, 10)
        began = time.monotonic()
        raw_azcopy(server.url, scratch / "raw")
        rows.append(
            {
                "case": "one file truncated",
                "side": "azcopy",
                **counter.take(),
                "copied": int(raw_victim.stat().st_size != 10),
                "s": time.monotonic() - began,
            }
        )
    by_case = {row["case"]: row for row in rows if row["side"] == "role"}
    again = by_case["second run"]
    repaired = [by_case[f"one file {name}"] for name in DAMAGES]
    goals = [
        Goal("LIST requests of a second run", again["LIST"], math.ceil(options.files / PAGE) + 1),
        Goal("GET requests of a second run", again["GET"], 0),
        Goal("files copied for one damaged file, at most", max(row["copied"] for row in repaired), 1),
        Goal("files copied for one damaged file, at least", min(row["copied"] for row in repaired), 1, at_least=True),
    ]
    report(f"S8 {options.files} files, run again", rows, goal=goals)
    return exit_status(goals)


if __name__ == "__main__":
    sys.exit(main())
