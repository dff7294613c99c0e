#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S10: ten million names and a thousand ranks. What planning costs the first node and the controller, and what claiming costs all.

``python benchmarks/staging/s10_size.py`` (about 20 minutes; the names need 2 GB of memory for the server and 5 GB below ``--work``).
The module lists a server that holds the names in memory, plans for all ranks and stores the plan; beside it stands a tenth of the names.
The blobs are small, so that no disk is too small for them. What the module is told and prints is what goes through the controller. Where
each node keeps a share of its own, that is the first node's listing, and a plan for every node, of which one is made here and stands for
all. Much of it is there whatever is staged, as every node is told the URL and answers with its numbers: the goal is for what the names
and the nodes add, beyond as many plans for one name and one node. Then a thousand workers that copy nothing claim batches on a local
file system, and an eighth of them: what each asks of the file system must not grow with their number.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import typing as t

from _many_ranks import simulate
from _report import ROOT, Goal, exit_status, report
from lab.list_server.server import Spawned, spawned

_FEWER = 8
# ru_maxrss would not do for the memory: a new process begins with what the one that started it had.
_PLAN = """
import json, re, resource, sys
from ansible.module_utils.testing import patch_module_args
from ansible_collections.hpcai.gpu_cluster.plugins.modules.dataset_plan import main
status = 0
with patch_module_args(json.load(sys.stdin)):
    try:
        main()
    except SystemExit as end:
        status = end.code
own = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read()).group(1))
# The work is done by a child.
used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
cpu_s = sum(one.ru_utime + one.ru_stime for one in used)
print(json.dumps([status, max(own, used[1].ru_maxrss) / 1024, cpu_s]), file=sys.stderr)
"""


class Call(t.NamedTuple):
    """One call of the module: its answer, and what it took."""

    answer: dict[str, t.Any]
    seconds: float
    cpu_s: float
    memory_mib: float
    carried_bytes: int  # options and answer


def call(url: str, destination: str, **options: t.Any) -> Call:
    """The module on a node, in a process of its own."""
    source = {"url": url, "prefix": "train", "sas": "sv=2021-12-02&sp=rl&sig=any"}
    text = json.dumps({"destination": destination, "sources": [source], "nic_mbps": 1000, "batch_s": 60, **options})
    environment = {"PYTHONPATH": str(ROOT / ".venv" / "collections"), "PATH": "/usr/bin:/bin"}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _PLAN], input=text, env=environment, capture_output=True, text=True, check=True
    )
    seconds = time.monotonic() - began
    status, memory_mib, cpu_s = json.loads(done.stderr.splitlines()[-1])
    if status:
        sys.exit(f"The plan fails: {done.stdout[-2000:]}")
    answer = json.loads(done.stdout.splitlines()[-1])
    return Call(answer, seconds, cpu_s, memory_mib, len(text) + len(done.stdout))


def host(rank: int) -> str:
    return f"gpu-{rank:04d}.cluster.example"


def own(url: str, destination: str, rank: int, ranks: int, manifest: str) -> Call:
    """The plan of a node that keeps a share of its own."""
    return call(url, destination, rank=rank, world_size=ranks, host=host(rank), manifest=manifest)


def _server(names: int) -> t.ContextManager[Spawned]:
    return spawned(names, directories=min(names, 100), most_bytes=2000)


def measure(names: int, ranks: int, work: str, *, local: bool) -> dict[str, t.Any]:
    """The plan of a run, and with shares of the nodes' own that of one node in the middle, too."""
    hosts = [host(rank) for rank in range(ranks)]
    with tempfile.TemporaryDirectory(dir=work, prefix="s10-") as place, _server(names) as server:
        calls = [call(server.url, f"{place}/data", hosts=hosts, return_manifest=local)]
        if local:
            calls.append(own(server.url, f"{place}/own", ranks // 2, ranks, calls[0].answer["manifest"]))
    with tempfile.TemporaryDirectory(dir=work, prefix="s10-") as place, _server(1) as server:
        least = [call(server.url, f"{place}/data", hosts=[host(0)], return_manifest=local)]
        if local:
            digest = f"sha256:{least[0].answer['manifest_digest']}"
            least.append(own(server.url, f"{place}/own", 0, 1, digest))
    times = [1, ranks]
    carried = sum(one.carried_bytes * number for one, number in zip(calls, times))
    anyway = sum(one.carried_bytes * number for one, number in zip(least, times))
    seconds = sum(one.seconds for one in calls)
    return {
        "names": names,
        "scope": "local" if local else "shared",
        "wall s": seconds,
        "CPU s": sum(one.cpu_s for one in calls),
        "MiB": max(one.memory_mib for one in calls),
        "bytes per name": max(one.memory_mib for one in calls) * 2**20 / names,
        "kB through the controller": carried / 1000,
        "kB that names and nodes add": (carried - anyway) / 1000,
        "us per name": seconds / names * 1e6,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", type=int, default=10_000_000)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--work", default="/var/tmp", help="a directory on a local disk (default: %(default)s)")
    parser.add_argument("--batch-s", type=float, default=3.0, help="seconds of a batch to claim (default: %(default)s)")
    parser.add_argument("--part", choices=["plan", "claims", "both"], default="both")
    options = parser.parse_args()
    goals: list[Goal] = []
    if options.part != "claims":
        rows = [
            measure(options.names // 10, options.ranks, options.work, local=False),
            measure(options.names, options.ranks, options.work, local=False),
            measure(options.names, options.ranks, options.work, local=True),
        ]
        small, large, local = rows
        planning = [
            Goal("memory of the first node, shared", large["MiB"] * 1.048576, 2000, " MB"),
            Goal("memory of the first node, local", local["MiB"] * 1.048576, 2000, " MB"),
            Goal(
                "added to what goes through the controller, shared", large["kB that names and nodes add"], 1000, " kB"
            ),
            Goal("added to what goes through the controller, local", local["kB that names and nodes add"], 1000, " kB"),
        ]
        ratio = (
            f"a name costs {large['us per name'] / small['us per name']:.2f} x as much time as among a tenth of them"
        )
        report(f"S10 {options.names:,} names for {options.ranks:,} ranks", rows, ratio=ratio, goal=planning)
        goals += planning
    if options.part != "plan":
        few, many = (
            simulate(ranks, options.work, options.batch_s) for ranks in (options.ranks // _FEWER, options.ranks)
        )
        claiming = [
            Goal(f"{what}, {many['ranks']:,} ranks over {few['ranks']:,}", many[what] / max(few[what], 1), 2)
            for what in ("calls per rank", "entries per rank")
        ]
        ratio = f"{many['seconds'] / few['seconds']:.2f} x as long with {_FEWER} x the ranks and batches"
        report(f"S10 {options.ranks:,} ranks claim batches", [few, many], ratio=ratio, goal=claiming)
        goals += claiming
    return exit_status(goals)


if __name__ == "__main__":
    sys.exit(main())
