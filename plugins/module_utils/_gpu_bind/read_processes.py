# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Read where processes may run, where their memory comes from, and which GPUs they use."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_bind.model import (
    Finding,
    Gpu,
    Node,
    Process,
    Request,
    Thread,
    parse_set,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_bind.read_node import (
    ask_nvidia_smi,
    read,
    read_map,
)

# The same, in the same order, as in gpu-bind.
_MPI = ("OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK")
_RANK_VARIABLES = ("GPU_BIND_RANK", *_MPI, "PALS_LOCAL_RANKID", "FLUX_TASK_LOCAL_ID", "LOCAL_RANK", "SLURM_LOCALID")
# Whoever reads a file first places it: of files only those count that are memory.
_MEMORY_FILE = re.compile(r" file=/(?:dev/shm/|dev/zero|memfd:|SYSV)")
# The kernel makes numa_maps while it is read: its beginning shows the policy and costs next to nothing.
_NUMA_MAPS_BEGINNING = 65536


def _status_fields(text: str) -> dict[str, str]:
    return {key: value.strip() for key, _colon, value in (line.partition(":") for line in text.splitlines())}


def _see_thread(directory: Path) -> Thread | None:
    fields = _status_fields(read(directory / "status"))
    if "Cpus_allowed_list" not in fields:
        return None
    # The name may hold blanks and parentheses; the processor is the 39th field, 37 after the state.
    tail = read(directory / "stat").rpartition(")")[2].split()
    last = int(tail[36]) if len(tail) > 36 else None
    cpus = parse_set(fields["Cpus_allowed_list"])
    return Thread(int(directory.name), fields.get("Name", "?"), cpus, fields.get("State", "?")[:1], last)


def _see_policy(directory: Path) -> str | None:
    """The memory policy of a process as ``numa_maps`` words it: ``default``, ``bind:1``, ``prefer:0``, ..."""
    try:
        with (directory / "numa_maps").open(encoding="utf-8", errors="replace") as file:
            lines = file.read(_NUMA_MAPS_BEGINNING).splitlines()
    except OSError:
        return None
    policies = Counter(line.split()[1] for line in lines if len(line.split()) > 1)
    return policies.most_common(1)[0][0] if policies else None


def _see_memory(directory: Path) -> dict[int, int] | None:
    """Where its memory is, in MiB by NUMA node. The kernel walks all its pages for this: seconds for a large process."""
    kib, text = Counter[int](), read(directory / "numa_maps")
    for line in text.splitlines():
        if " file=/" in line and not _MEMORY_FILE.search(line):
            continue
        page = re.search(r"kernelpagesize_kB=(\d+)", line)
        for node, pages in re.findall(r"\bN(\d+)=(\d+)", line):
            kib[int(node)] += int(pages) * int(page.group(1) if page else 4)
    return {node: amount // 1024 for node, amount in sorted(kib.items())} if text else None


def _see_process(procfs: Path, pid: int, memory: bool) -> Process | None:
    """None when it is gone, or has ended and waits for its parent."""
    directory = procfs / str(pid)
    fields = _status_fields(read(directory / "status"))
    if "Cpus_allowed_list" not in fields or fields.get("State", "").startswith("Z"):
        return None
    try:
        tasks = sorted(directory.joinpath("task").iterdir(), key=lambda task: int(task.name))
    except OSError:
        tasks = []
    words = read(directory / "cmdline").split("\0")
    return Process(
        pid,
        int(fields.get("PPid", "0")),
        " ".join(word for word in words if word) or f"[{fields.get('Name', '?')}]",
        parse_set(fields["Cpus_allowed_list"]),
        parse_set(fields.get("Mems_allowed_list", "")),
        [thread for thread in map(_see_thread, tasks) if thread],
        policy=_see_policy(directory),
        memory_mib=_see_memory(directory) if memory else None,
    )


def _environment(procfs: Path, pid: int) -> dict[str, str]:
    pairs = (entry.partition("=") for entry in read(procfs / str(pid) / "environ").split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def local_rank(variables: dict[str, str]) -> int | None:
    """The rank by the variables of launchers; None where none tells it."""
    # In the order of gpu-bind: torchrun inside another launcher starts ranks of its own.
    torch = ("LOCAL_RANK",) if "TORCHELASTIC_RUN_ID" in variables else ()
    names = (_RANK_VARIABLES[0], *torch, *_RANK_VARIABLES[1:])
    return next((int(variables[name]) for name in names if variables.get(name, "").isdigit()), None)


def _opened_gpus(directory: Path, gpus: list[Gpu]) -> list[Gpu]:
    """The GPUs whose devices a process has open: all that it may use, when it has begun to."""
    opened = set()
    try:
        for entry in (directory / "fd").iterdir():
            with contextlib.suppress(OSError):
                opened.add(os.readlink(entry))
    except OSError:
        return []
    # Where minors are not known they are taken for the indexes, but not beside some that are not.
    renumbered = any(gpu.minor not in (None, gpu.index) for gpu in gpus)
    minors = [gpu.index if gpu.minor is None and not renumbered else gpu.minor for gpu in gpus]
    return [gpu for gpu, minor in zip(gpus, minors) if f"/dev/nvidia{minor}" in opened]


def _shown(variables: dict[str, str]) -> str | None:
    """CUDA_VISIBLE_DEVICES as far as CUDA reads it: to the first negative number. Empty is no GPU, None is all."""
    visible = variables.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return None
    return "" if visible == "NoDevFiles" else f",{visible}".partition(",-")[0][1:]


def _gpus_by_environment(
    directory: Path, variables: dict[str, str], gpus: list[Gpu], ranks: dict[int, list[int]]
) -> list[Gpu]:
    """Which GPUs a process is meant to use: its rank's places in CUDA_VISIBLE_DEVICES, or those if they are its own."""
    rank, visible = local_rank(variables), _shown(variables)
    if visible == "":
        return []
    by_name = {str(gpu.index): gpu for gpu in gpus} | {gpu.uuid: gpu for gpu in gpus if gpu.uuid}
    names = visible.split(",") if visible else [str(gpu.index) for gpu in gpus]
    # In a cgroup of Slurm's the numbers begin at 0 whatever the GPUs are.
    slurm = variables.get("SLURM_STEP_GPUS") or variables.get("SLURM_JOB_GPUS")
    if visible and slurm and names == [str(number) for number in range(len(names))]:
        # Where each task has GPUs of its own Slurm tells every one of them the same, too.
        if "SLURMD_TRES_BIND" in variables:
            found = _opened_gpus(directory, gpus)
            return found if len(found) == len(names) else []
        names = slurm.split(",")
    places = [] if rank is None else ranks.get(rank, [rank])
    if visible and (len(names) == 1 or (len(names) == len(places) and max(places) >= len(names))):
        places = list(range(len(names)))
    return [by_name[names[place]] for place in places if place < len(names) and names[place] in by_name]


def _own_family(procfs: Path) -> set[int]:
    """This program and what started it: their command lines hold the name that is looked for."""
    family, pid = set(), os.getpid()
    while pid > 1 and pid not in family:
        family.add(pid)
        pid = int(_status_fields(read(procfs / str(pid) / "status")).get("PPid", "0"))
    return family


def _by_command_line(procfs: Path, pattern: str) -> list[int]:
    wanted, family = re.compile(pattern), _own_family(procfs)
    found = []
    for entry in procfs.iterdir():
        if entry.name.isdigit() and int(entry.name) not in family:
            command = read(entry / "cmdline").replace("\0", " ")
            if command and wanted.search(command):
                found.append(int(entry.name))
    return sorted(found)


def _ask_users(node: Node, request: Request) -> None:
    """Add to each GPU the processes that nvidia-smi tells, and what went wrong to the findings."""
    rows, trouble = ask_nvidia_smi(request.nvidia_smi, "--query-compute-apps=gpu_uuid,pid", request.timeout_s)
    if trouble and not node.findings:
        node.findings.append(Finding("nvidia_smi", "incomplete", trouble, "Processes are told by environment only."))
    by_uuid = {gpu.uuid: gpu for gpu in node.gpus}
    for row in rows:
        if len(row) >= 2 and row[0] in by_uuid and row[1].isdigit():
            by_uuid[row[0]].pids.append(int(row[1]))


def _assign(process: Process, node: Node, request: Request, ranks: dict[int, list[int]]) -> None:
    """Say which GPUs a process uses: by nvidia-smi, else by its environment, which makes it a user of theirs."""
    variables = _environment(request.procfs, process.pid)
    process.rank = local_rank(variables)
    process.gpus = [gpu for gpu in node.gpus if process.pid in gpu.pids]
    process.gpus_from = "nvidia-smi" if process.gpus else ""
    if not process.gpus:
        directory = request.procfs / str(process.pid)
        process.gpus = _gpus_by_environment(directory, variables, node.gpus, ranks)
        process.shows_no_gpu = _shown(variables) == ""
        process.gpus_from = "environment" if process.gpus or process.shows_no_gpu else ""
        for gpu in process.gpus:
            gpu.pids.append(process.pid)


def see_processes(node: Node, request: Request) -> list[Process]:
    """The processes asked for, each with the GPUs that it uses. Adds to the node's findings."""
    _ask_users(node, request)
    users = {pid for gpu in node.gpus for pid in gpu.pids}
    named = _by_command_line(request.procfs, request.name) if request.name else []
    ranks = read_map(request.map).ranks
    processes = []
    for pid in sorted({*request.pids, *named} if request.pids or request.name else users):
        process = _see_process(request.procfs, pid, request.memory)
        if process is None:
            if pid in request.pids or pid in users:
                what = f"process {pid} cannot be seen here"
                remedy = "It ended, or it is in another container: run this on the host."
                node.findings.append(Finding("process_gone", "incomplete", what, remedy, pid))
        elif "nvidia-cuda-mps" not in process.command:
            _assign(process, node, request, ranks)
            # Without a rank it may be anything that has the words in its command line.
            of_job = process.shows_no_gpu and process.rank is not None
            if process.gpus or of_job or pid in request.pids:
                processes.append(process)
    return processes


__all__ = ["local_rank", "see_processes"]
