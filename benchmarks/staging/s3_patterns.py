#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S3: patterns for ranges of numbers, and what a prefix that the service can list saves against a recursive pattern."""

from __future__ import annotations

import argparse
import sys
import typing as t

from _prefixes import prefix_buckets
from _report import Goal, exit_status, report
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._shards.patterns import Template, join
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._shards.plan import contiguous
from lab.list_server import dataset, spawned
from lab.list_server.azcopy import available, dry_run

# Numbers, digits, ranks.
CASES = ((64, 3, 3), (64, 3, 16), (1000, 3, 7), (100_000, 5, 3), (1_000_000, 7, 16))


def patterns() -> tuple[list[dict[str, t.Any]], list[Goal]]:
    rows, goals = [], []
    for groups, width, ranks in CASES:
        template = Template(f"*_{{index:0{width}d}}.tfrecord.gz")
        shares = [template.globs(block) for block in contiguous(groups, ranks)]
        most, longest = max(map(len, shares)), max(len(join(share)) for share in shares)
        each = max(len(block) for block in contiguous(groups, ranks))
        rows.append(
            {
                "groups": groups,
                "ranks": ranks,
                "width": width,
                "globs": most,
                "bytes": longest,
                "one glob per number": each,
                "its bytes": each * (len(template.name(0)) + 1) - 1,
            }
        )
        few = 2 if (groups, ranks) == (64, 16) else 2 * width - 1
        goals.append(Goal(f"{groups:,} groups over {ranks} ranks: globs", most, few))
        goals.append(Goal(f"{groups:,} groups over {ranks} ranks: bytes", longest, 4096))
    return rows, goals


def prefixes(blobs: int) -> tuple[list[dict[str, t.Any]], list[Goal]]:
    """One bucket of names: by a prefix the service lists, and by the same pattern with --recursive."""
    names = dataset(blobs)
    buckets, left = prefix_buckets(names, [1.0] * blobs, 64)
    assert not left
    bucket = max(buckets, key=lambda one: one.weight)
    wanted = [names[member] for member in bucket.members]
    rows = []
    with spawned(blobs, list_delay_s=0.1, head_delay_s=0.003) as server:
        for how, path, arguments in (
            ("prefix, not recursive", f"{bucket.directory}*", ()),
            ("same pattern, recursive", bucket.directory.rstrip("/"), ("--recursive",)),
        ):
            server.reset()
            run = dry_run(server.url, path, "--include-pattern", bucket.pattern, *arguments)
            if sorted(run.names) != wanted:
                sys.exit(f"{bucket.pattern} selected {len(run.names)} blobs instead of {len(wanted)}")
            rows.append(
                {
                    "selection": how,
                    "pattern": bucket.pattern,
                    "files": len(run.names),
                    "wall s": run.seconds,
                    "CPU s": run.cpu_s,
                    **{what: server.stats()[what] for what in ("LIST", "HEAD")},
                }
            )
    faster = rows[1]["wall s"] / rows[0]["wall s"]
    return rows, [Goal("recursive over prefix, wall", faster, 10 if blobs >= 1_000_000 else 1, at_least=True)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blobs", type=int, default=1_000_000)
    options = parser.parse_args()
    if not available():
        sys.exit("AzCopy is not installed: run bin/test once, it sets up the tools.")
    rows, goals = patterns()
    report("S3: patterns for ranges of numbers", rows, goal=goals)
    listed, more = prefixes(options.blobs)
    report(f"S3: one of 64 buckets of {options.blobs:,} blobs", listed, ratio=f"{more[0].value:.1f} x", goal=more)
    return exit_status([*goals, *more])


if __name__ == "__main__":
    sys.exit(main())
