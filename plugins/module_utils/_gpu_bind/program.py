# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""See whether the processes of a running job are on the CPUs and the memory that are next to the GPUs they use.

    gpu-bind-check                    # every process that nvidia-smi lists
    gpu-bind-check --name train.py    # processes by their command line

Needs Python 3.9 or newer and nothing else; no root for processes of one's own. Changes nothing.
Exit status: 0 all is right, 1 something is wrong, 2 it could not be seen (no process, no nvidia-smi, no permission).
"""

from __future__ import annotations

import argparse
import json
import re
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_bind.model import Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_bind.read_node import see_node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_bind.read_processes import see_processes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_bind.report import document, text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_bind.verify import judge


def pids(value: str) -> list[int]:
    return [int(number) for number in value.split(",")]


def _parse(arguments: t.Sequence[str] | None) -> argparse.Namespace:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("gpu-bind-check", description=__doc__, formatter_class=layout)
    parser.add_argument(
        "--pid",
        type=pids,
        action="extend",
        default=[],
        help="look at these processes, comma-separated",
    )
    parser.add_argument("--name", metavar="REGEX", help="look at processes with such a command line")
    parser.add_argument(
        "--wait", type=float, default=0, metavar="S", help="wait so many seconds for processes to appear"
    )
    parser.add_argument("--memory", action="store_true", help="also see where the memory is (slow for large processes)")
    parser.add_argument("--strict", action="store_true", help="warnings count as wrong")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--map", type=Path, default=Path("/etc/gpu-bind/map"), help="the map of gpu-bind")
    parser.add_argument("--nvidia-smi", default="nvidia-smi", metavar="PROGRAM")
    parser.add_argument("--timeout", type=float, default=20, metavar="S", help="seconds that nvidia-smi may take (20)")
    parser.add_argument("--sysfs", type=Path, default=Path("/sys"), metavar="DIR", help="in a container: the host's")
    parser.add_argument("--procfs", type=Path, default=Path("/proc"), metavar="DIR", help="in a container: the host's")
    options = parser.parse_args(arguments)
    try:
        re.compile(options.name or "")
    except re.error as exc:
        parser.error(f"--name {options.name!r} is not a regular expression: {exc}")
    return options


def _request(options: argparse.Namespace) -> Request:
    return Request(
        pids=tuple(options.pid),
        name=options.name or "",
        memory=options.memory,
        map=options.map,
        nvidia_smi=options.nvidia_smi,
        timeout_s=options.timeout,
        sysfs=options.sysfs,
        procfs=options.procfs,
    )


def main(arguments: t.Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = _parse(arguments)
    request, deadline = _request(options), time.monotonic() + options.wait
    while True:
        node = see_node(request)
        processes = see_processes(node, request)
        if any(process.gpus for process in processes) or time.monotonic() >= deadline:
            break
        time.sleep(min(0.5, max(0.0, deadline - time.monotonic())))
    report = document(node, processes, judge(node, processes))
    print(json.dumps(report, indent=1) if options.json else text(report))
    return {"ok": 0, "warn": 1 if options.strict else 0, "fail": 1, "incomplete": 2}[report["verdict"]]


__all__ = ["main"]
