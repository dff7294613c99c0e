#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S5: a gzip data set end to end, ``azcopy --decompress`` beside AzCopy plus the collection's decompressor.

Both take the same blobs from the same in-memory server and write to the same directory; both check the MD5 of every blob
and the CRC32 of every gzip member. ``s5_decompress.py [--blobs N] [--work DIR]``; DIR needs 17 MB per blob (default
/dev/shm, so that no disk is measured).
"""

from __future__ import annotations

import argparse
import array
import base64
import gzip
import hashlib
import pathlib
import random
import resource
import shutil
import tempfile
import threading
import time
import typing as t

from _report import AZCOPY, Goal, exit_status, report
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.run import CopyOutcome, CopyRequest, run_copy
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.drain import LandingItem, drain
from lab.blob.fast_server import Body, FastServer

VOLUME_BYTES = 128**3 * 4 * 2  # a CosmoFlow sample: 128^3 voxels, 4 redshifts, int16
DISTINCT = 4


def volume(seed: int) -> bytes:
    """Particle counts that compress about as well as CosmoFlow's (1 : 6 to 1 : 7)."""
    chance = random.Random(seed)
    counts = [int(chance.expovariate(1 / 1.15)) for _ in range(200_000)]
    pool = array.array("h", [min(n * n, 3000) if chance.random() < 0.97 else n for n in counts]).tobytes()
    pieces = bytearray()
    while len(pieces) < VOLUME_BYTES:
        start = chance.randrange(0, len(pool) - 65536, 2)
        pieces += pool[start : start + 65536]
    return bytes(pieces[:VOLUME_BYTES])


def cpu_s() -> float:
    """CPU seconds of this process and its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def by_azcopy(server: FastServer, work: pathlib.Path, names: list[str]) -> None:
    outcome = run_copy(CopyRequest(str(AZCOPY), f"{server.url}/t", str(work / "out"), decompress=True))
    require(outcome)


def by_us(
    server: FastServer, work: pathlib.Path, names: list[str], md5: list[str], sizes: list[int], engine: str
) -> None:
    items = [
        LandingItem(
            name,
            str(work / "raw" / name),
            str(work / "out" / name[:-3]),
            raw_size=sizes[number % DISTINCT],
            raw_md5=md5[number % DISTINCT],
        )
        for number, name in enumerate(names)
    ]
    outcomes: list[CopyOutcome] = []
    request = CopyRequest(str(AZCOPY), f"{server.url}/t", str(work / "raw"), check_md5="NoCheck")
    copier = threading.Thread(target=lambda: outcomes.append(run_copy(request)))
    copier.start()
    for finished in drain(items, copier_done=lambda: bool(outcomes), engine=engine):
        if finished.error is not None:
            raise finished.error
    copier.join()
    require(outcomes[0])


def require(outcome: CopyOutcome) -> None:
    if outcome.error is not None:
        raise outcome.error


def measure(label: str, work: pathlib.Path, blobs: int, run: t.Callable[[], None]) -> dict[str, t.Any]:
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    wall, cpu = time.monotonic(), cpu_s()
    run()
    wall, cpu = time.monotonic() - wall, cpu_s() - cpu
    written = [path.stat().st_size for path in (work / "out").rglob("*") if path.is_file()]
    assert written == [VOLUME_BYTES] * blobs, f"{label} left {len(written)} of {blobs} files"
    return {"engine": label, "wall_s": wall, "client_cpu_s": cpu, "out_mb_s": blobs * VOLUME_BYTES / 1e6 / wall}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blobs", type=int, default=240)
    parser.add_argument("--work", default="/dev/shm")
    parser.add_argument("--runs", type=int, default=2, help="runs of each side; the best counts")
    options = parser.parse_args()
    bodies = [Body(gzip.compress(volume(seed), 6, mtime=0), "gzip") for seed in range(DISTINCT)]
    md5 = [base64.b64encode(hashlib.md5(body.data).digest()).decode() for body in bodies]
    sizes = [len(body.data) for body in bodies]
    names = [f"univ_{number:05d}.tfrecord.gz" for number in range(options.blobs)]
    blobs = {f"t/{name}": bodies[number % DISTINCT] for number, name in enumerate(names)}
    rows: list[dict[str, t.Any]] = []
    with tempfile.TemporaryDirectory(prefix="s5-", dir=options.work) as base, FastServer(blobs) as server:
        work = pathlib.Path(base) / "work"
        sides: dict[str, t.Callable[[], None]] = {
            "azcopy --decompress": lambda: by_azcopy(server, work, names),
            "azcopy + standard library": lambda: by_us(server, work, names, md5, sizes, "stdlib"),
            "azcopy + isal": lambda: by_us(server, work, names, md5, sizes, "isal"),
        }
        for label, run in sides.items():
            tries = [measure(label, work, options.blobs, run) for _ in range(options.runs)]
            rows.append(min(tries, key=lambda row: row["wall_s"]))
    base_s = rows[0]["wall_s"]
    goals = [
        Goal("faster with the standard library", base_s / rows[1]["wall_s"], 1.3, " x", at_least=True),
        Goal("faster with isal", base_s / rows[2]["wall_s"], 2.5, " x", at_least=True),
    ]
    title = f"S5 {options.blobs} blobs of {sum(sizes) / DISTINCT / 1e6:.2f} MB, {VOLUME_BYTES / 1e6:.1f} MB unpacked"
    report(title, rows, ratio=" / ".join(f"{base_s / row['wall_s']:.2f}" for row in rows), goal=goals)
    return exit_status(goals)


if __name__ == "__main__":
    raise SystemExit(main())
