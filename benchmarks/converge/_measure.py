# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The four measurements, each printing both sides and returning its goals."""

from __future__ import annotations

import collections
import subprocess
import sys
from pathlib import Path

from _report import Goal, report
from _runs import HERE, ROOT, SITE, Bench, Run, unchanged
from lab.task_results import TaskResult

# Goals C1 to C4 of the collection.
RESULTS_PER_NODE, RESULTS_PER_ROLE, CPU_PER_NODE_S = 45, 3, 1.6
PEERS_RATIO = 6
# Set for 500 hosts beside 20.
GROWTH = 1.15
# 500 MB, set for 1,000 hosts.
MEMORY_MIB = 476
OFF_MS = 20
_VERIFY_PLAYS = ("Verify",)


def _short(role: str) -> str:
    return role.rpartition(".")[2] or "(no role)"


def _phase(result: TaskResult) -> str:
    """Roles are run once in their own play and proven once more in those of verify.yml."""
    name = _short(result.role)
    return f"{name}, verify.yml" if result.play.startswith(_VERIFY_PLAYS) else name


def task_results(bench: Bench) -> list[Goal]:
    """C1, first half: task results per node, and per role and node."""
    run = bench.converged()
    nodes = sorted({result.host for result in run.results})
    per_node = run.per_host()
    table: dict[str, collections.Counter[str]] = {}
    for result in run.results:
        table.setdefault(_phase(result), collections.Counter())[result.host] += 1
    rows = [
        {"part": part, **{node: counts[node] for node in nodes}, "per node": sum(counts.values()) / len(nodes)}
        for part, counts in table.items()
    ]
    rows.append({"part": "all", **{n: per_node[n] for n in nodes}, "per node": sum(per_node.values()) / len(nodes)})
    roles = {part: counts for part, counts in table.items() if not part.startswith("(no role)")}
    goals = [
        Goal("task results of a node", max(per_node.values()), RESULTS_PER_NODE),
        Goal("task results per role and node", max(c[n] for c in roles.values() for n in nodes), RESULTS_PER_ROLE),
    ]
    report(f"C1 site.yml with nothing to change, task results ({len(nodes)} nodes)", rows, goal=goals)
    print(f"{next(iter(nodes))} also carries the tasks that run once for all nodes (run_once).")
    return goals


def _site(bench: Bench, count: int) -> Run:
    """site.yml over ``count`` nodes, with nothing to change."""
    if count not in bench.site_runs:
        run = bench.play(SITE, *bench.inventories(count), extra=bench.variables())
        bench.site_runs[count] = unchanged(run, SITE)
    return bench.site_runs[count]


def many_hosts(bench: Bench) -> list[Goal]:
    """C1, second half: CPU of the controller per node at many hosts; and as far as it goes C3, how that grows."""
    bench.converged()
    few, many = min(bench.peer_hosts, bench.hosts), bench.hosts
    rows = []
    for count in dict.fromkeys((few, many)):
        run = _site(bench, count)
        rows.append(
            {
                "hosts": count,
                "wall s": run.wall_s,
                "controller CPU s": run.cpu_s,
                "CPU per node s": run.cpu_s / count,
                "ssh masters s per node": run.masters_cpu_s / count,
                "results per node": len(run.results) / count,
                "memory of the main process MiB": run.main_rss_mib,
            }
        )
    per_node = _site(bench, many).cpu_s / many
    growth = per_node / (_site(bench, few).cpu_s / few)
    goals = [
        Goal(f"controller CPU per node at {many} hosts", per_node, CPU_PER_NODE_S, " s"),
        Goal(f"CPU per node at {many} hosts against {few}", growth, GROWTH, " x"),
        Goal(f"memory of the main process at {many} hosts", _site(bench, many).main_rss_mib, MEMORY_MIB, " MiB"),
    ]
    report("C1 and C3 site.yml with nothing to change, many hosts", rows, goal=goals)
    if many != bench.peer_hosts:
        _report_tasks(_site(bench, many), many)
    return goals


def _report_tasks(run: Run, hosts: int) -> None:
    """What each task costs, dearest first; those below a thousandth of a second per host are left out."""
    costs: dict[str, list[float]] = {}
    for task in run.tasks:
        cost = costs.setdefault(f"{_short(task.role)}: {task.name.rpartition(' : ')[2][:60]}", [0.0, 0.0])
        cost[0] += task.cpu_s * 1000 / hosts
        cost[1] += task.wall_s
    dearest = sorted(costs.items(), key=lambda item: -item[1][0])
    rows = [{"task": task, "CPU ms per host": cpu, "wall s": wall} for task, (cpu, wall) in dearest if cpu >= 1]
    report(f"Where it goes, {hosts} hosts", rows)


def _build_programs(folder: Path) -> None:
    """What the peers' tasks copy to nodes, built anew for the Python that the roles' defaults name."""
    names = [f"{name}=/usr/bin/python3" for name in ("gpu-bind-check", "gpu-clocks")]
    subprocess.run([sys.executable, HERE / "peers/build_programs.py", folder, *names], check=True)


def beside_peers(bench: Bench) -> list[Goal]:
    """C2: the same work written one task per step."""
    _build_programs(ROOT / ".cache/converge/programs")
    bench.converged()
    count, playbook = bench.peer_hosts, HERE / "peers.yml"
    bench.ready_for_peers(playbook)
    ours = _site(bench, count)
    inventories = [bench.defaults_inventory(), *bench.inventories(count)]
    theirs = unchanged(bench.play(playbook, *inventories, extra=bench.variables()), playbook)
    rows = [
        {
            "written as": name,
            "task results per host": len(run.results) / count,
            "wall s": run.wall_s,
            "controller CPU s": run.cpu_s,
            "CPU per host s": run.cpu_s / count,
        }
        for name, run in (("this collection", ours), ("one task per step", theirs))
    ]
    goals = [
        Goal("fewer task results", len(theirs.results) / len(ours.results), PEERS_RATIO, " x", at_least=True),
        Goal("less wall", theirs.wall_s / ours.wall_s, PEERS_RATIO, " x", at_least=True),
        Goal("less controller CPU", theirs.cpu_s / ours.cpu_s, PEERS_RATIO, " x", at_least=True),
    ]
    report(f"C2 nothing to change, {count} hosts", rows, goal=goals)
    _report_tasks(ours, count)
    return goals


def features_off(bench: Bench) -> list[Goal]:
    """C4: features that are off, beside a play without them.

    Parts of a role that are off are items with ``when`` in a task that runs anyway, or tasks behind ``end_role``: a run that has
    nothing to change has no result of them (``task_results``).
    """
    inventories = bench.inventories(bench.hosts)
    parts = ("mofed", "nvidia_driver", "mpi", "gpu_clocks", "numa_pinning", "nvme_raid", "container_runtime")
    off = {f"gpu_cluster_{part}": False for part in parts}
    off |= {"gpu_cluster_scratch": "none", "dataset_staging_sources": []}
    without = bench.play(HERE / "nothing.yml", *inventories).cpu_s
    # gpu_cluster_mpi stands for two roles; glusterfs and dataset_staging have no such switch.
    roles = len(parts) + 3
    cpu = bench.play(HERE / "off.yml", *inventories, extra={**bench.variables(), **off}).cpu_s
    cost = (cpu - without) / bench.hosts / roles * 1000
    row = {"roles": roles, "CPU s": cpu, "CPU without s": without, "ms per role and host": cost}
    goals = [Goal("a role that is off, per host", cost, OFF_MS, " ms")]
    report(f"C4 what is off, {bench.hosts} hosts", [row], goal=goals)
    return goals


__all__ = ["beside_peers", "features_off", "many_hosts", "task_results"]
