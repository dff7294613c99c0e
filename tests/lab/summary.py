# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab's last staging shows, for people: ``summary.py ROOT`` reads staging.json from the first node over ssh.

Ends with 1 when the dataset is not whole or is not what the lab's Blob service holds.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import typing as t

REPORT = "/mnt/scratch/cosmoflow/.staging/staging.json"


def lines(report: dict[str, t.Any], expected: dict[str, int]) -> list[str]:
    """The summary of a report; ``expected`` is what was put into the Blob service."""
    text = [
        f"Dataset: {report['verified_files']} of {report['total_files']} files verified ({report['verdict']}), "
        f"{report['total_raw_bytes'] / 1e6:.1f} MB over the network, {report['verified_bytes'] / 1e6:.1f} MB staged"
    ]
    for number, one in enumerate(report["rounds"], 1):
        text.append(f"Round {number}: max/ideal bytes per rank {one['imbalance']:.4f}")
        text.append(
            f"  {'rank':>4}  {'node':<8} {'files':>6} {'MB':>8} {'s':>6} {'Gbit/s':>7}  batches (from others, again)"
        )
        text += [
            f"  {rank['rank']:>4}  {rank['host']:<8} {rank['files']:>6} {rank['raw_bytes'] / 1e6:>8.1f} {rank['seconds']:>6.1f} "
            f"{rank['gbps']:>7.3f}  {rank['batches']} ({rank['stolen_batches']}, {rank['retried_batches']})"
            for rank in one["ranks"]
        ]
    wanted = {"total_files": "files", "total_raw_bytes": "bytes", "verified_bytes": "raw_bytes"}
    text += [
        f"WRONG: {key} is {report[key]}, the Blob service was given {expected[name]}"
        for key, name in wanted.items()
        if report[key] != expected[name]
    ]
    return text


def whole(report: dict[str, t.Any], expected: dict[str, int]) -> bool:
    """Whether everything that the Blob service holds was staged and verified."""
    return (
        report["verdict"] == "ok"
        and report["verified_files"] == report["total_files"] == expected["files"]
        and report["total_raw_bytes"] == expected["bytes"]
        and report["verified_bytes"] == expected["raw_bytes"]
    )


def fetch(root: pathlib.Path) -> tuple[dict[str, t.Any], dict[str, int]]:
    """The report of the lab's first node, and what the lab's dataset is."""
    state = root / ".cache" / "lab"
    lab = json.loads((state / "machines.json").read_text())
    options = [
        "StrictHostKeyChecking=yes",
        f"UserKnownHostsFile={state / 'known_hosts'}",
        "IdentitiesOnly=yes",
        "BatchMode=yes",
    ]
    argv = ["ssh", "-i", str(state / "id_ed25519"), *(part for option in options for part in ("-o", option))]
    answer = subprocess.run(
        [*argv, f"root@{lab['machines']['gpu-1']}", "cat", REPORT], capture_output=True, text=True, check=True
    )
    return json.loads(answer.stdout), lab["dataset"]


def main(argv: list[str]) -> int:
    if len(argv) != 1 or argv[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        report, expected = fetch(pathlib.Path(argv[0]))
    except subprocess.CalledProcessError as exc:
        print(f"gpu-1 has no {REPORT}: {exc.stderr.strip()}. Was the dataset staged?", file=sys.stderr)
        return 1
    print(*lines(report, expected), sep="\n")
    print("Simulated in this lab: the GPUs. Everything else that was shown is real.")
    return 0 if whole(report, expected) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

__all__ = ["lines", "whole"]
