#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What node_facts costs on a node with 8 GPUs, 8 adapters and 8 NVMe disks: seconds and processes.

    python3 benchmarks/node_facts/run.py [--runs 20]

Each run is a new interpreter, as on a node: start, Ansible's imports, facts, JSON. The tree that stands for the node is the
one of the unit tests, and nvidia-smi is a stand-in that answers at once, because the goal leaves its time out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
GOAL_S = 0.3
sys.path[:0] = [str(REPO / "tests"), str(REPO / ".venv/collections")]

from unit.node.fake_node import FIXTURES, ndv4

# Runs in the new interpreter. The module's own imports are part of it; the audit hook counts what it starts.
CODE = """
import json, sys, time
started = []
def watch(event, args):
    if event in ("subprocess.Popen", "os.system", "os.posix_spawn", "os.fork"):
        started.append(str(args[0]))
sys.addaudithook(watch)
sys.path.insert(0, {collections!r})
from pathlib import Path
from ansible_collections.hpcai.gpu_cluster.plugins.modules import node_facts
begin = time.perf_counter()
facts = node_facts.collect(Path({root!r}), nvidia_smi={smi!r}, metadata="never")
assert len(facts["gpus"]) == len(facts["hcas"]) == len(facts["nvme"]) == 8 and not facts["unknown"]
json.dumps(facts)
print(time.perf_counter() - begin, len(started))
"""


def run_once(root: Path, smi: Path) -> tuple[float, float, int]:
    """Seconds of the whole process, seconds of the facts in it, processes that it started."""
    code = CODE.format(collections=str(REPO / ".venv/collections"), root=str(root), smi=str(smi))
    started = time.perf_counter()
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd="/")
    seconds = time.perf_counter() - started
    facts, processes = ran.stdout.split()
    return seconds, float(facts), int(processes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        root = ndv4(Path(folder) / "root").root
        smi = Path(folder) / "nvidia-smi"
        smi.write_text(f"#!/bin/sh\nexec cat {FIXTURES}/ndv4.out\n", encoding="utf-8")
        smi.chmod(0o755)
        whole, facts, processes = zip(*(run_once(root, smi) for _run in range(runs)))
    print(f"8 GPUs, 8 adapters, 8 NVMe disks; {runs} runs, {os.cpu_count()} CPUs, Python {sys.version.split()[0]}")
    print(f"whole module   median {statistics.median(whole):.3f} s   worst {max(whole):.3f} s")
    print(f"facts alone    median {statistics.median(facts):.3f} s   worst {max(facts):.3f} s")
    print(f"processes      {max(processes)} (nvidia-smi)")
    met = statistics.median(whole) <= GOAL_S and set(processes) == {1}
    print(f"goal           at most {GOAL_S} s and one process: {'met' if met else 'MISSED'}")
    sys.exit(0 if met else 3)  # 1 is an exception's, here as in benchmarks/staging


if __name__ == "__main__":
    main()
