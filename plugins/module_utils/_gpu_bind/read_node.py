# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Read where the CPUs and GPUs of a node are: from sysfs, nvidia-smi, and the map of gpu-bind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_bind.model import (
    Finding,
    Gpu,
    Map,
    Node,
    Request,
    parse_set,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.sysfs import bus_id_or_empty


def read(path: Path) -> str:
    """The whole of a file of the kernel, blanks at its ends included; "" when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""


def ask_nvidia_smi(program: str, query: str, timeout_s: float) -> tuple[list[list[str]], str]:
    """Rows of a query, and what went wrong."""
    try:
        with subprocess.Popen(
            [program, query, "--format=csv,noheader"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C"},
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                output, _nothing = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                return [], f"{program} did not answer within {timeout_s:g} s"
    except OSError as exc:
        return [], f"{program} cannot be run: {exc.strerror}"
    rows = [[cell.strip() for cell in line.split(",")] for line in output.splitlines() if "," in line]
    if process.returncode:
        said = next((line.strip() for line in output.splitlines() if line.strip()), "")
        return rows, f"{program} exited with {process.returncode}: {said[:160]}"
    return rows, ""


def _enter(known: Map, fields: list[str]) -> None:
    """What one line of a map says. Raises ValueError for one that makes no sense."""
    if fields[:2] == ["#", "minors"]:
        minors = enumerate(",".join(fields[2:]).split(","))
        known.minors = {index: int(minor) for index, minor in minors if minor.isdigit()}
    if len(fields) < 6 or not fields[0].isdigit():
        return
    memory, uuids = parse_set(fields[3]), fields[5].split(",")
    known.ranks[int(fields[0])] = indices = [int(index) for index in fields[1].split(",")]
    for index, uuid in zip(indices, uuids if len(uuids) == len(indices) else [""] * len(indices)):
        # A rank on several NUMA nodes says nothing about one of its GPUs.
        known.gpus[index] = (min(memory) if len(memory) == 1 else None, uuid.strip("-"))


def read_map(path: Path) -> Map:
    """The map of gpu-bind: places of each rank's GPUs, and per GPU its NUMA node, UUID and the number of its device."""
    known = Map()
    for line in read(path).splitlines():
        try:
            _enter(known, line.split())
        except ValueError:
            known.damaged.append(line.strip())
    return known


def _judge_map(path: Path, known: Map) -> list[Finding]:
    remedy = "Run the role hpcai.gpu_cluster.numa_pinning, which writes the map anew."
    return [
        Finding("map_damaged", "incomplete", f"{path} has a line that is not one of a map: {line[:80]}", remedy)
        for line in known.damaged
    ]


def _driver_minor(procfs: Path, bus_id: str) -> int | None:
    """What the driver says of a GPU's device file."""
    text = read(procfs / "driver/nvidia/gpus" / bus_id / "information") if bus_id else ""
    told = re.search(r"^Device Minor:[ \t]*([0-9]+)[ \t]*$", text, re.MULTILINE)
    return int(told.group(1)) if told else None


def _numa_cpus(sysfs: Path) -> dict[int, set[int]]:
    """CPUs by NUMA node."""
    base = sysfs / "devices/system/node"
    cpus = {
        int(entry.name[4:]): parse_set(read(entry / "cpulist"))
        for entry in (base.iterdir() if base.is_dir() else [])
        if re.match(r"^node\d+$", entry.name)
    }
    # A kernel without NUMA has no such directory: the machine is one node.
    return dict(sorted(cpus.items())) or {0: parse_set(read(sysfs / "devices/system/cpu/online"))}


def _ask_gpus(request: Request, mapped: Map) -> tuple[list[Gpu], list[Finding]]:
    """The GPUs by nvidia-smi, else by the map, and what went wrong. Reads no file of the driver where it has trouble."""
    rows, trouble = ask_nvidia_smi(request.nvidia_smi, "--query-gpu=index,uuid,pci.bus_id", request.timeout_s)
    gpus = [
        Gpu(int(row[0]), row[1], bus_id_or_empty(row[2]))
        for row in rows
        if len(row) == 3 and row[0].isdigit() and not row[1].startswith("[")
    ]
    findings = []
    if trouble:
        remedy = "Install the driver, or name the program with --nvidia-smi."
        findings.append(Finding("nvidia_smi", "incomplete", trouble, remedy))
        gpus = gpus or [Gpu(index, uuid, "") for index, (_numa, uuid) in sorted(mapped.gpus.items())]
    for gpu in gpus:
        # Where nvidia-smi has trouble, reading the driver's files could hang.
        told = None if trouble else _driver_minor(request.procfs, gpu.bus_id)
        gpu.minor = mapped.minors.get(gpu.index) if told is None else told
    return gpus, findings


def _place(gpu: Gpu, cpus: dict[int, set[int]], sysfs: Path, mapped: Map) -> None:
    """Say on which NUMA node a GPU is, and how that is known."""
    number = read(sysfs / "bus/pci/devices" / gpu.bus_id / "numa_node").strip() if gpu.bus_id else ""
    if number.isdigit() and int(number) in cpus:
        gpu.numa, gpu.numa_from = int(number), "sysfs"
    elif len(cpus) == 1:
        gpu.numa, gpu.numa_from = next(iter(cpus)), "only node"
    elif mapped.gpus.get(gpu.index, (None, ""))[0] in cpus:
        gpu.numa, gpu.numa_from = mapped.gpus[gpu.index][0], "map"


def see_node(request: Request) -> Node:
    """The NUMA nodes and the GPUs, each with its place."""
    cpus, mapped = _numa_cpus(request.sysfs), read_map(request.map)
    memory = parse_set(read(request.sysfs / "devices/system/node/has_memory")) or set(cpus)
    gpus, findings = _ask_gpus(request, mapped)
    for gpu in gpus:
        _place(gpu, cpus, request.sysfs, mapped)
    return Node(cpus, memory, gpus, [*findings, *_judge_map(request.map, mapped)])


__all__ = ["ask_nvidia_smi", "read", "read_map", "see_node"]
