#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run of the collection costs that has nothing to change, beside the same work written one task per step.

    python benchmarks/converge/run.py [--hosts 100] [--peer-hosts 20] [--only results,hosts,peers,off]

Needs the lab (bin/demo --lab) and brings it to the state in which nothing is left to do, which changes nothing on a lab that
bin/demo has configured. Many hosts are the lab's nodes under many names, each with an ssh connection of its own; where a role
names nodes (whom to trust, where to launch, whose bricks) it names the real ones, so what grows with the length of such lists
is not in the figures. This machine is controller and nodes at once: wall times include the nodes' work, CPU is the
controller's alone (ansible-playbook and every process that it waited for). C3 is --hosts 500, which takes its time.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "staging")]

import _measure
from _report import goal_met
from _runs import Bench

MEASURES = {
    "results": _measure.task_results,
    "hosts": _measure.many_hosts,
    "peers": _measure.beside_peers,
    "off": _measure.features_off,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=100, help="how many hosts for C1, C3 and C4 (default: 100)")
    parser.add_argument("--peer-hosts", type=int, default=20, help="how many for C2 and beside them (default: 20)")
    parser.add_argument("--only", default=",".join(MEASURES), help=f"some of {','.join(MEASURES)}")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",")
    unknown = set(chosen) - set(MEASURES)
    if unknown:
        parser.error(f"there is no measure {', '.join(sorted(unknown))}")
    with Bench(arguments.hosts, arguments.peer_hosts) as bench:
        goals = [goal for name in chosen for goal in MEASURES[name](bench)]
    return 0 if goal_met(goals) else 1


if __name__ == "__main__":
    sys.exit(main())
