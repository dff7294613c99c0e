# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What was found, as one document and as text for people."""

from __future__ import annotations

import dataclasses
import os
import typing as t
from collections import Counter

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_bind.model import (
    Finding,
    Node,
    Process,
    format_set,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_bind.verify import verdict_of


def document(node: Node, processes: list[Process], findings: list[Finding]) -> dict[str, t.Any]:
    def process_entry(process: Process) -> dict[str, t.Any]:
        return {
            "pid": process.pid,
            "command": process.command,
            "local_rank": process.rank,
            "gpus": [gpu.index for gpu in process.gpus],
            "gpus_from": process.gpus_from or None,
            "cpus": format_set(process.cpus),
            "numa": node.numa_of(process.cpus),
            "memory_nodes": format_set(process.mems),
            "memory_policy": process.policy,
            "memory_mib": process.memory_mib,
            "threads": len(process.threads),
            "threads_running": sum(thread.state == "R" for thread in process.threads),
            "thread_cpus": dict(Counter(format_set(thread.cpus) for thread in process.threads)),
            "last_cpus": sorted({thread.last_cpu for thread in process.threads if thread.last_cpu is not None}),
            "verdict": verdict_of(finding for finding in findings if finding.pid == process.pid),
        }

    return {
        "schema": 1,
        "host": os.uname().nodename,
        "verdict": verdict_of(findings),
        "numa": [{"id": number, "cpus": format_set(cpus)} for number, cpus in node.cpus.items()],
        "gpus": [dataclasses.asdict(gpu) for gpu in node.gpus],
        "processes": [process_entry(process) for process in processes],
        "findings": [dataclasses.asdict(finding) for finding in findings],
    }


def _table(head: t.Sequence[str], rows: t.Sequence[t.Sequence[t.Any]]) -> list[str]:
    cells = [["-" if cell is None else str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells]


def text(report: dict[str, t.Any]) -> str:
    rows: list[tuple[t.Any, ...]] = []
    for entry in report["numa"]:
        here = ",".join(str(gpu["index"]) for gpu in report["gpus"] if gpu["numa"] == entry["id"])
        rows.append((entry["id"], entry["cpus"], here or "-"))
    lines = [*_table(("NUMA", "CPUs", "GPUs"), rows), ""]
    rows = []
    for entry in report["processes"]:
        rank, gpus = entry["local_rank"], ",".join(map(str, entry["gpus"])) or ("none" if entry["gpus_from"] else "-")
        numa, threads = ",".join(map(str, entry["numa"])), f"{entry['threads']} ({entry['threads_running']})"
        where = (entry["cpus"], numa, entry["memory_policy"] or "?", threads, format_set(entry["last_cpus"]))
        rows.append((entry["pid"], rank, gpus, *where, entry["verdict"], entry["command"][:40]))
    if rows:
        head = ("PID", "rank", "GPU", "CPUs", "NUMA", "memory", "threads (running)", "last on", "verdict", "command")
        lines += [*_table(head, rows), ""]
    for finding in report["findings"]:
        who = f"process {finding['pid']} " if finding["pid"] and not finding["what"].startswith("process") else ""
        lines.append(f"{finding['verdict']}: {who}{finding['what']}. {finding['remedy']}")
    lines.append(f"{report['verdict']}: {len(report['processes'])} processes, {len(report['gpus'])} GPUs")
    return "\n".join(lines)


__all__ = ["document", "text"]
