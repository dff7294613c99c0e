#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S11: the collection, ``rclone copy`` and AzCopy by itself bring the same data to one node and to four that share a file system.

``python benchmarks/staging/s11_others.py`` (root, about six minutes; needs Debian's package rclone,
but for ``--only collection,azcopy``). Azurite serves files of log-normal
sizes; every node has the same limit, by ``tc``, and every side the same number of requests in flight and checks MD5. The others share
the work as the reference does, by patterns for the numbers in file names: a fixed part of the names for each node. The collection's time
is that of listing, planning, copying and comparing the destination; the time that Ansible needs around it is not in it.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from _ranks import command_inside, copy, inside, network, parameters, plan, shared, verify
from _report import AZCOPY, Goal, exit_status, report
from lab.blob.service import Azurite

NODES = (1, 4)
GROUPS = 64
MEAN_BYTES = 512_000
SIGMA = 0.5  # of the logarithm of the size, as in the demo's dataset
CONCURRENCY = 8
_NAME_BYTES = 64  # at the end of each file, so that no two are alike


class Task(t.NamedTuple):
    """What is to be brought to how many nodes."""

    server: Azurite
    container: str
    nodes: int
    sizes: dict[str, int]
    rate_mbit: int

    @property
    def ideal_s(self) -> float:
        return sum(self.sizes.values()) * 8 / (self.nodes * self.rate_mbit * 1e6)

    def groups(self, node: int) -> list[str]:
        """The numbers in the names of a node's files."""
        return [f"{group:02d}" for group in range(GROUPS) if group * self.nodes // GROUPS == node]


def fill(server: Azurite, nodes: int, seconds: float, rate_mbit: int) -> Task:
    """A dataset that takes the nodes so long."""
    rng = random.Random(11)
    sizes: dict[str, int] = {}
    container = f"for-{nodes}"
    server.create_container(container)
    left = nodes * rate_mbit * 1e6 / 8 * seconds
    while left > 0:
        number = len(sizes)
        size = max(_NAME_BYTES, int(rng.lognormvariate(math.log(MEAN_BYTES) - SIGMA**2 / 2, SIGMA)))
        sizes[f"train/f{number // GROUPS:05d}_{number % GROUPS:02d}.bin"] = size
        left -= size
    noise = rng.randbytes(16 * MEAN_BYTES)

    def put(name: str) -> None:
        server.put(container, name, noise[: sizes[name] - _NAME_BYTES] + name.encode().ljust(_NAME_BYTES))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, sizes))
    return Task(server, container, nodes, sizes, rate_mbit)


def by_us(task: Task, scratch: Path) -> None:
    url = task.server.url(task.container)
    source = {"url": url, "prefix": "", "sas": task.server.sas("rl")}
    options = {
        "sources": [source],
        "nic_mbps": task.rate_mbit,
        "concurrency": CONCURRENCY,
        "processes": 1,
        "batch_s": 10,
    }
    params = parameters(url, scratch / "data", task.nodes, **options)
    # The first node lists, behind its own limit.
    run = inside(0, lambda: plan(params)["run"])
    ranks = shared(params, run)
    copy(ranks)
    verify(ranks)


def by_rclone(task: Task, scratch: Path) -> None:
    token = f"{task.server.endpoint}?{task.server.sas('rl')}"
    environment = {**os.environ, "RCLONE_CONFIG_SRC_TYPE": "azureblob", "RCLONE_CONFIG_SRC_SAS_URL": token}
    limits = [f"--transfers={CONCURRENCY}", f"--checkers={CONCURRENCY}", "--config=/dev/null", "--quiet"]
    commands = []
    for node in range(task.nodes):
        argv = ["rclone", "copy", f"src:{task.container}", str(scratch / "data"), *limits]
        if task.nodes > 1:
            argv += ["--include", f"*_{{{','.join(task.groups(node))}}}.bin"]
        commands.append(argv)
    _on_all_nodes(commands, environment)


def by_azcopy(task: Task, scratch: Path) -> None:
    commands = []
    for node in range(task.nodes):
        url = f"{task.server.url(task.container)}/*?{task.server.sas('rl')}"
        argv = [str(AZCOPY), "copy", url, str(scratch / "data"), "--recursive", "--from-to=BlobLocal"]
        argv += ["--check-md5=FailIfDifferent", "--log-level=NONE", "--skip-version-check"]
        if task.nodes > 1:
            argv += ["--include-pattern", ";".join(f"*_{group}.bin" for group in task.groups(node))]
        commands.append(argv)
    private = str(scratch / "log")
    places = {"AZCOPY_LOG_LOCATION": private, "AZCOPY_JOB_PLAN_LOCATION": private, "AZCOPY_DISABLE_SYSLOG": "true"}
    _on_all_nodes(commands, {**os.environ, **places, "AZCOPY_CONCURRENCY_VALUE": str(CONCURRENCY)})


def _on_all_nodes(commands: t.Sequence[list[str]], environment: dict[str, str]) -> None:
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    command_inside(node, *argv),
                    stdin=subprocess.PIPE,  # held open: AzCopy spins at end of file
                    stdout=subprocess.DEVNULL,
                    env=environment,
                )
            )
            for node, argv in enumerate(commands)
        ]
        statuses = [process.wait() for process in processes]
    if any(statuses):
        raise RuntimeError(f"{commands[0][0]} ended with {statuses}.")


SIDES: dict[str, t.Callable[[Task, Path], None]] = {
    "collection": by_us,
    "rclone": by_rclone,
    "azcopy": by_azcopy,
}


def measure(task: Task, side: str) -> dict[str, t.Any]:
    """One row of the table. Raises where a file is missing or has another size."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        scratch = Path(place)
        began = time.monotonic()
        SIDES[side](task, scratch)
        seconds = time.monotonic() - began
        there = {
            str(path.relative_to(scratch / "data")): path.stat().st_size
            for path in (scratch / "data").rglob("*.bin")
            if ".staging" not in path.parts
        }
        if there != task.sizes:
            raise RuntimeError(f"{side} brought {len(there)} of {len(task.sizes)} files, or other sizes.")
    row = {"nodes": task.nodes, "side": side, "files": len(task.sizes), "ideal_s": task.ideal_s, "makespan_s": seconds}
    return {**row, "of the ideal": task.ideal_s / seconds}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40, help="that the limits leave (default: %(default)s)")
    parser.add_argument(
        "--mbit", type=int, default=100, help="what each node may send and receive (default: %(default)s)"
    )
    parser.add_argument("--only", default=",".join(SIDES), help="some of %(default)s, the collection among them")
    options = parser.parse_args()
    sides = [side for side in SIDES if side in options.only.split(",")]
    if set(options.only.split(",")) != {*sides, "collection"}:
        parser.error(f"--only takes collection and some of {', '.join(SIDES)}")
    if "rclone" in sides and not shutil.which("rclone"):
        sys.exit("rclone is not installed: apt-get install rclone.")
    rows = []
    with network([options.mbit] * max(NODES)) as address, contextlib.ExitStack() as stack:
        server = Azurite(address=address)
        server.start()
        stack.callback(server.stop)
        for nodes in NODES:
            task = fill(server, nodes, options.seconds, options.mbit)
            for side in sides:
                rows.append(measure(task, side))
                print(f"{nodes} nodes, {side}: {rows[-1]['makespan_s']:.1f} s", file=sys.stderr, flush=True)
    goals, ratios = [], []
    for nodes in NODES:
        mine, *others = [row for row in rows if row["nodes"] == nodes]
        for other in others:
            ratio = mine["makespan_s"] / other["makespan_s"]
            # With one node nothing can be gained but overheads: "not slower" leaves what two runs of one tool differ by.
            limit = 1.0 if nodes >= 4 else 1.03
            goals.append(Goal(f"{nodes} nodes: makespan over that of {other['side']}", ratio, limit))
            ratios.append(f"{nodes}: {1 / ratio:.2f} x as fast as {other['side']}")
    report(f"S11 {options.mbit} Mbit/s per node", rows, ratio=", ".join(ratios), goal=goals)
    return exit_status(goals)


if __name__ == "__main__":
    sys.exit(main())
