#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run of the collection costs that has nothing to change, beside the same work written one task per step.

    python benchmarks/converge/run.py [--stand-ins] [--hosts 100] [--peer-hosts 20] [--only results,hosts,peers,off]

On the lab (bin/demo --lab) it first reaches the state in which nothing is left to do, which changes nothing on a lab that bin/demo
has configured. Many hosts are the lab's nodes under many names, each with an ssh connection of its own; where a role names nodes
(whom to trust, where to launch, whose bricks) it names the real ones, so what grows with the length of such lists is not in the
figures. This machine is controller and nodes at once: wall times include the nodes' work, CPU is the controller's alone
(ansible-playbook and every process that it waited for).

With --stand-ins it needs no lab: a connection answers every module call from constants, without a process per host, and lists of
nodes are as long as the inventory, which is what grows with it. It does not prove what ssh and nodes cost (ssh is 10 to 20 ms of
CPU for every module call), nor that the nodes' answers are these. peers.yml is answered as briefly as it can be, with fewer and
smaller facts, so that its side is not the dearer one for that. C3 is --stand-ins --hosts 500; its memory is --hosts 1000.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "staging")]

import _measure
from _lab import LabBench
from _report import exit_status
from _runs import Bench

MEASURES = {
    "results": _measure.task_results,
    "hosts": _measure.many_hosts,
    "peers": _measure.beside_peers,
    "off": _measure.features_off,
}


def _bench(*, stand_ins: bool) -> type[Bench]:
    """Stand-ins need the collection's Python, and the lab does not."""
    if not stand_ins:
        return LabBench
    from _stand_in import StandInBench

    return StandInBench


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=100, help="how many hosts for C1, C3 and C4 (default: 100)")
    parser.add_argument("--peer-hosts", type=int, default=20, help="how many for C2 and beside them (default: 20)")
    parser.add_argument("--only", default=",".join(MEASURES), help=f"some of {','.join(MEASURES)}")
    parser.add_argument("--stand-ins", action="store_true", help="use nodes that are not there instead of the lab's")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",")
    unknown = set(chosen) - set(MEASURES)
    if unknown:
        parser.error(f"there is no measure {', '.join(sorted(unknown))}")
    with _bench(stand_ins=arguments.stand_ins)(arguments.hosts, arguments.peer_hosts) as bench:
        goals = [goal for name in chosen for goal in MEASURES[name](bench)]
    return exit_status(goals)


if __name__ == "__main__":
    sys.exit(main())
