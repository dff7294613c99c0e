#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S1: the manifest of a million blobs, ours against `azcopy list`, and how often the container is listed for all ranks.

Both sides list the same server, which holds the names in memory and takes 100 ms per page, one after the other.
The goals are for a million blobs: with few of them the start of Python weighs in.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

from _report import ROOT, Goal, exit_status, report
from lab.list_server import spawned
from lab.list_server.azcopy import available, dry_run, list_container

PAGE = 5000
# ru_maxrss would not do for the memory: a new process begins with what the one that started it had.
OURS = """
import json, re, sys
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.catalogue import build_manifest
manifest = build_manifest([{"url": sys.argv[1], "prefix": "train"}])
peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())
print(json.dumps([len(manifest.blobs), int(peak.group(1)) / 1024]))
"""


def list_ours(url: str) -> tuple[int, float, float, float]:
    """Blobs, wall and CPU seconds (start of Python included), and peak memory in MiB."""
    environment = {"PYTHONPATH": str(ROOT / ".venv" / "collections"), "PATH": "/usr/bin:/bin"}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", OURS, url], env=environment, capture_output=True, text=True, check=True
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    blobs, memory = json.loads(done.stdout)
    return blobs, wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, memory


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blobs", type=int, default=1_000_000)
    parser.add_argument("--ranks", type=int, default=64)
    options = parser.parse_args()
    if not available():
        sys.exit("AzCopy is not installed: run bin/test once, it sets up the tools.")
    rows, goals, memory_of = [], [], {}
    for shape, directories in (("flat", 0), ("100 directories", 100)):
        with spawned(options.blobs, directories=directories, list_delay_s=0.1) as server:
            blobs, wall, cpu, memory = list_ours(server.url)
            our_lists, memory_of[shape] = server.stats()["LIST"], memory
            server.reset()
            theirs = list_container(server.url)
            their_lists = server.stats()["LIST"]
            if not blobs == len(theirs.names) == options.blobs:
                sys.exit(f"{options.blobs} blobs are there, we found {blobs}, azcopy {len(theirs.names)}")
            rows += [
                {"container": shape, "lister": "ours", "wall s": wall, "CPU s": cpu, "LIST": our_lists, "MiB": memory},
                {
                    "container": shape,
                    "lister": "azcopy list",
                    "wall s": theirs.seconds,
                    "CPU s": theirs.cpu_s,
                    "LIST": their_lists,
                },
            ]
            goals += [
                Goal(f"{shape}: CPU, ours over azcopy's", cpu / theirs.cpu_s, 1 / 15),
                Goal(f"{shape}: wall, ours over azcopy's", wall / theirs.seconds, 1 / 2),
            ]
            if not directories:
                server.reset()
                pattern = dry_run(server.url, "train", "--recursive", "--include-pattern", "*_000.tfrecord.gz")
                per_rank = server.stats()["LIST"]
                rows.append(
                    {
                        "container": shape,
                        "lister": "one rank by pattern",
                        "wall s": pattern.seconds,
                        "CPU s": pattern.cpu_s,
                        "LIST": per_rank,
                    }
                )
                pages = -(-options.blobs // PAGE)
                goals += [
                    Goal("flat: LIST calls, ours over pages and ranks", our_lists / (pages + options.ranks), 1),
                    Goal(
                        f"flat: LIST calls of {options.ranks} ranks by pattern over ours",
                        per_rank * options.ranks / our_lists,
                        48,
                        at_least=True,
                    ),
                ]
    flat, split = memory_of.values()
    goals.append(Goal("memory, 100 directories side by side over flat", split / flat, 1.25))
    ratio = ", ".join(f"{goal.what} 1/{1 / goal.value:.1f}" for goal in goals if "azcopy's" in goal.what)
    report(f"S1: manifest of {options.blobs:,} blobs", rows, ratio=ratio, goal=goals)
    return exit_status(goals)


if __name__ == "__main__":
    sys.exit(main())
