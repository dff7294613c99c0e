# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for nccl-tests on lab nodes: one rank of a launch, under the real mpirun or srun.

The ranks meet in real collectives and tell each other what they know of their nodes, so that a dead or hung one is missed as in a real
launch. How long a launch takes has nothing to do with what it prints. See README.md in the directory above.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import fabric, node, options, report
from .mpi import World

#: testResult_t of src/common.h
CUDA_ERROR, NCCL_ERROR, TIMEOUT, NOT_IMPLEMENTED, NUM_RESULTS = 2, 3, 4, 5, 7
HOST_BYTES, MEMBER_BYTES = 256, 4096


class TestError(Exception):
    """The test ends with this code, after these lines."""

    def __init__(self, code: int, *lines: str) -> None:
        super().__init__(*lines)
        self.code = code


def main() -> int:
    # As of a program in C, also while it waits inside MPI.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    program = os.path.basename(sys.argv[0])
    asked = options.parse(program, sys.argv[1:])
    if os.environ.get("NCCL_TESTS_SPLIT", os.environ.get("NCCL_TESTS_SPLIT_MASK")):
        sys.exit(f"{program}: the lab's stand-in does not split a launch (NCCL_TESTS_SPLIT).")
    world = World()
    state = node.state()
    faults = state["faults"]
    try:
        members = join(program, asked, world, state)
        time.sleep(faults["nccl_takes_s"])
        code = measure(program, asked, world.rank == 0 and not faults["nccl_garbage"], members)
    except TestError as failure:
        print(*failure.args, failed(1454), sep="\n")
        return failure.code
    if faults["nccl_garbage"]:
        garble()
    world.gather(b"", 1)
    world.end()
    if code:
        print(failed(1454))
    return code


def failed(line: int) -> str:
    """How each of its functions passes a failure on; ``line``: of src/common.cu."""
    return f" .. {node.HOST} pid {os.getpid()}: Test failure common.cu:{line}"


def join(program: str, asked: options.Options, world: World, state: dict[str, Any]) -> list[fabric.Member]:
    """Take this rank's GPUs and meet the others, or fail as the node's state has it."""
    faults = state["faults"]
    loud = world.rank == 0 and not faults["nccl_garbage"]
    if loud:
        print(report.head(program, asked))
    before = world.gather(node.HOST.encode(), HOST_BYTES)[: world.rank]
    first = before.count(node.HOST.encode()) * asked.gpus
    devices = take(range(first, first + asked.gpus))
    indices = [gpu["index"] for gpu in node.gpus(devices, state)]
    node.hold(indices)
    own = node.member(devices, state, os.environ)
    log(report.log_network(own, node.interface(), state["hcas"]), world.rank == 0, own)
    if faults["nccl_crash"]:
        error = "unhandled system error (run with NCCL_DEBUG=INFO for details)"
        raise TestError(NCCL_ERROR, f"{node.HOST}: Test NCCL failure common.cu:217 '{error} / '", failed(1620))
    if faults["nccl_hang"]:
        hang(faults["nccl_hang"], indices)
    deadline = time.monotonic() + asked.timeout

    def look_at_clock() -> None:
        if asked.timeout and time.monotonic() > deadline:
            raise TestError(TIMEOUT, f"{node.HOST}: Test timeout ({asked.timeout}s) common.cu:523")

    members = [fabric.Member.unpack(data) for data in world.gather(own.pack(), MEMBER_BYTES, look_at_clock)]
    log(report.log_ring(members, world.rank), world.rank == 0, own)
    if loud:
        print(*map(report.device_line, report.devices(members)), sep="\n")
    return members


def take(numbers: range) -> list[fabric.Device]:
    """CUDA's devices of these numbers."""
    try:
        cuda = node.Cuda()
    except node.CudaError as error:
        raise TestError(CUDA_ERROR, f"{node.HOST}: Test CUDA failure util.cu:674 '{error}'") from error
    if numbers.stop > cuda.count():
        print(
            f"Invalid number of GPUs: {numbers.stop} requested but only {cuda.count()} were found.\n"
            "Please check the number of processes and GPUs per process.",
            file=sys.stderr,
        )
        raise TestError(NOT_IMPLEMENTED)
    return [cuda.device(number) for number in numbers]


def hang(how: str, gpus: list[int]) -> None:
    """Never return. ``deaf``: SIGTERM does not end it; ``left``: a process that its launcher does not know keeps the GPUs, too."""
    sys.stdout.flush()
    if how == "left" and os.fork() == 0:
        os.setsid()
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(quiet, stream)
        node.hold(gpus)
        how = "deaf"
    if how == "deaf":
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(3600)


def measure(program: str, asked: options.Options, loud: bool, members: list[fabric.Member]) -> int:
    """Every rank comes to the same results; one tells them."""
    began, collective = time.strftime(report.TIME_FORMAT), fabric.COLLECTIVES[program]
    most = fabric.most_bytes(members, bool(asked.check))
    lines = []
    if asked.maxbytes > most:
        asked.maxbytes, asked.minbytes = most, min(asked.minbytes, most)
        lines = ["#", f"# Reducing maxBytes to {most} due to memory limitation"]
    if loud:
        print(*lines, report.table_head(bool(asked.report_timestamps)), sep="\n", flush=True)
    rows = []
    for row in report.rows(asked, collective, members):
        rows.append(row)
        if loud:
            print(row.text(bool(asked.report_timestamps)))
        if asked.run_cycles <= 0:
            time.sleep(0.1)
    least = float(os.environ.get("NCCL_TESTS_MIN_BW", "-1"))
    wrong, average = report.wrong_checks(rows, members), report.average_busbw(rows)
    passed = None if least == -1 else average >= least * 0.9
    if loud:
        print(report.foot(program, wrong, average, passed), end="\n\n")
    if loud and asked.output_file.lower().endswith(".json"):
        variables = [f"{name}={value}" for name, value in os.environ.items()]
        process = {"start_time": began, "args": sys.argv, "env": variables}
        write(Path(asked.output_file), report.document(asked, members, rows, passed, process))
    return NUM_RESULTS if wrong or passed is False else 0


def write(path: Path, document: dict[str, Any]) -> None:
    """A file that is there already is left: the next free number follows the name."""
    for place in (path, *(path.with_name(f"{path.name}.{number}") for number in range(1000))):
        if not place.exists():
            place.write_text(json.dumps(document), encoding="utf-8")
            return


def log(lines: Iterable[tuple[int, str]], first: bool, own: fabric.Member) -> None:
    """NCCL's log: ``host:pid:thread [device] NCCL INFO …`` where NCCL_DEBUG asks for it, else its version at most."""
    level = os.environ.get("NCCL_DEBUG", "").upper()
    if level in ("INFO", "TRACE"):
        for device, text in lines:
            print(f"{own.host}:{own.pid}:{own.pid} [{device}] NCCL INFO {text}", flush=True)
    elif level in ("VERSION", "WARN") and first:
        print(*(text for _device, text in lines if text.startswith("NCCL version")), sep="\n", flush=True)


def garble() -> None:
    """What a broken terminal, library or disk may leave of an output: bytes of no encoding, and rows that break off."""
    noise = random.Random(node.HOST)
    row = b"  1073741824     268435456     float     sum      -1   nan  "
    sys.stdout.flush()
    for _line in range(20):
        sys.stdout.buffer.write(row[: noise.randrange(len(row))] + noise.randbytes(40) + b"\n")
