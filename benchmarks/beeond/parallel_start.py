#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a file system over many nodes takes to start: by `beeond start` alone, one node after the other, and by the module.

    python benchmarks/beeond/parallel_start.py                 # 64 hosts
    python benchmarks/beeond/parallel_start.py --hosts 16

The hosts are nodes of namespaces on this machine with the double of `tests/lab/beeond`. What a network and a node's own work take is waited
for: `--ssh-s` before each command of ssh, `--service-s` for each storage service, `--mount-s` for the mount. The module's time holds all
that it does besides: it looks at every node before and after, and prepares all of them.

What it does not prove: how long BeeGFS takes. And all hosts share this machine's cores: on nodes of their own the module is faster.
"""

from __future__ import annotations

import argparse
import pathlib
import resource
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/unit/beeond"), str(ROOT / "tests")]

from beeond_nodes import POINT, Cluster, small

#: A missed goal, as of the other benchmarks.
GOAL_MISSED = 3
GOAL = 10.0


def delay(nodes: small.Nodes, name: str, path: str, seconds: float) -> None:
    """Let a script of a node take its time."""
    place = nodes.root(name) / path
    shebang, _newline, rest = place.read_text(encoding="utf-8").partition("\n")
    wait = f"import time; time.sleep({seconds})" if "python" in shebang else f"sleep {seconds}"
    place.write_text(f"{shebang}\n{wait}\n{rest}", encoding="utf-8")


def by_the_tool(cluster: Cluster) -> float:
    """Seconds of `beeond start` as its documentation has it; the file system is stopped and removed again."""
    first, names = cluster.nodes.names[0], "\\n".join(cluster.nodes.names)
    words = f"-n /tmp/nodes -i /tmp/status -d /scratch/tool -c {POINT} -L /tmp"
    cluster.nodes.shell(first, f"printf '{names}\\n' > /tmp/nodes")
    began = time.monotonic()
    cluster.nodes.shell(first, f"beeond start {words} -p 1000", timeout_s=3600)
    took_s = time.monotonic() - began
    cluster.nodes.shell(first, "beeond stop -n /tmp/nodes -i /tmp/status -d -L -P", timeout_s=3600)
    return took_s


def by_the_module(cluster: Cluster) -> float:
    began = time.monotonic()
    done = cluster.module(timeout_s=3600)
    took_s = time.monotonic() - began
    if done.get("failed"):
        raise SystemExit(f"The module's start failed: {done['msg']}")
    cluster.module("cleaned", allow_data_loss=True)
    return took_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--ssh-s", type=float, default=0.2, help="default: %(default)s")
    parser.add_argument("--service-s", type=float, default=1.0, help="default: %(default)s")
    parser.add_argument("--mount-s", type=float, default=1.0, help="default: %(default)s")
    options = parser.parse_args()
    if not small.possible():
        parser.exit(2, "It needs user namespaces with a network.\n")
    # Two processes and several open files for each host.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    with (
        tempfile.TemporaryDirectory(prefix="beeond-start-") as place,
        small.Nodes(pathlib.Path(place) / "nodes", options.hosts) as nodes,
    ):
        cluster = Cluster(nodes, "8.3.1")
        for name in nodes.names:
            delay(nodes, name, "usr/bin/ssh", options.ssh_s)
            delay(nodes, name, "opt/beegfs/sbin/beegfs-storage", options.service_s)
            delay(nodes, name, "usr/sbin/mount.beegfs", options.mount_s)
        tool_s = by_the_tool(cluster)
        print(f"{options.hosts} hosts, beeond start:  {tool_s:7.1f} s", flush=True)
        module_s = by_the_module(cluster)
    ratio = tool_s / module_s
    print(
        f"{options.hosts} hosts, the module:    {module_s:7.1f} s, {ratio:.1f} times as fast (goal at 64 hosts: {GOAL:g})"
    )
    return 0 if ratio >= GOAL else GOAL_MISSED


if __name__ == "__main__":
    sys.exit(main())
