# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nccl-tests 2.19.6 and NCCL 2.30.7 print: pure. Formats: src/util.cu and src/common.cu; NCCL's log: src/init.cc, src/bootstrap.cc,
src/transport/net.cc, net_socket.cc and net_ib/init.cc.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import Any

from .fabric import Collective, Member, seconds
from .options import Options

VERSION, NCCL_VERSION, NCCL_CODE = "2.19.6", "2.30.7", 23007
TIME_FORMAT = "%Y-%m-%d %H:%M:%S"


@dataclasses.dataclass(frozen=True)
class Timing:
    """A half of a row, one operation out of place or in place. ``wrong`` is None where results are not checked."""

    time_us: float
    algbw_gbytes_s: float
    busbw_gbytes_s: float
    wrong: int | None

    def text(self) -> str:
        wrong = "N/A" if self.wrong is None else f"{self.wrong:g}"
        numbers = f"  {number(self.time_us, 7)}  {number(self.algbw_gbytes_s, 6)}  {number(self.busbw_gbytes_s, 6)}"
        return f"{numbers}  {wrong:>6}"

    def document(self) -> dict[str, Any]:
        return {
            "time": self.time_us,
            "alg_bw": self.algbw_gbytes_s,
            "bus_bw": self.busbw_gbytes_s,
            "nwrong": self.wrong,
        }


@dataclasses.dataclass(frozen=True)
class Row:
    size: int
    count: int
    redop: str
    halves: tuple[Timing, Timing]

    def text(self, timestamp: bool) -> str:
        start = f"{self.size:12d}  {self.count:12d}  {'float':>8}  {self.redop:>6}  {-1:6d}"
        end = f"{time.strftime(TIME_FORMAT):>21}" if timestamp else ""
        return start + self.halves[0].text() + self.halves[1].text() + end

    def document(self, iters: int) -> dict[str, Any]:
        return {
            "size": self.size,
            "count": self.count,
            "type": "float",
            "redop": self.redop,
            "root": f"{-1:6d}",
            "out_of_place": self.halves[0].document(),
            "in_place": self.halves[1].document(),
            "actual_iterations": iters,
            "experiment_name": "",
        }


def number(value: float, width: int) -> str:
    """As many decimals as fit."""
    for decimals in (2, 1, 0):
        text = f"{value:{width}.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:{width}.{1 if width >= 7 else 0}e}"


def rows(options: Options, collective: Collective, members: list[Member]) -> Iterator[Row]:
    """All rows, cycle after cycle; without end where ``-N 0`` asks for it."""
    ranks = sum(len(member.devices) for member in members)
    cycle = 0
    while options.run_cycles <= 0 or cycle < options.run_cycles:
        asked = options.minbytes
        while asked <= options.maxbytes:
            count = collective.count(asked, ranks)
            size = count * 4 * (ranks if collective.per_rank else 1)
            halves = [timing(options, collective, members, size, (cycle, in_place)) for in_place in (False, True)]
            yield Row(size, count, collective.redop, (halves[0], halves[1]))
            asked = asked * options.stepfactor if options.stepfactor > 1 else asked + options.stepbytes
        cycle += 1


def timing(
    options: Options, collective: Collective, members: list[Member], size: int, sample: tuple[int, bool]
) -> Timing:
    taken_s = seconds(members, collective, size, sample)
    algbw = size / 1e9 / taken_s
    ranks = sum(len(member.devices) for member in members)
    # In place an all-to-all is not checked.
    checked = options.check and not (sample[1] and collective.name == "alltoall")
    wrong = sum(member.wrong for member in members) if checked else None
    return Timing(taken_s * 1e6, algbw, algbw * collective.busbw_factor(ranks), wrong)


def wrong_checks(measured: list[Row], members: list[Member]) -> int:
    """Each process counts the checks in which its results were wrong."""
    checks = sum(bool(half.wrong) for row in measured for half in row.halves)
    return checks * sum(bool(member.wrong) for member in members)


def average_busbw(measured: list[Row]) -> float:
    values = [half.busbw_gbytes_s for row in measured for half in row.halves]
    return sum(values) / len(values)


def head(program: str, options: Options) -> str:
    factor = options.stepfactor > 1
    step = f"{options.stepfactor if factor else options.stepbytes}({'factor' if factor else 'bytes'})"
    return "\n".join(
        [
            f"# nccl-tests version {VERSION} nccl-headers={NCCL_CODE} nccl-library={NCCL_CODE}",
            f"# Collective test starting: {program}",
            f"# nThread {options.nthreads} nGpus {options.ngpus} minBytes {options.minbytes} maxBytes {options.maxbytes} "
            f"step: {step} warmup iters: {options.warmup_iters} iters: {options.iters} agg iters: {options.agg_iters} "
            f"validation: {options.check} graph: 0 unalign: 0",
            "#",
            "# Using devices",
        ]
    )


def devices(members: list[Member]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for member in members:
        for device in member.devices:
            found.append(
                {
                    "rank": len(found),
                    "group": 0,
                    "pid": member.pid,
                    "hostname": member.host,
                    "device": device.number,
                    "device_hex": device.bus_id.lower().rpartition(".")[0],
                    "device_info": device.name,
                }
            )
    return found


def device_line(device: dict[str, Any]) -> str:
    return (
        f"#  Rank {device['rank']:2d} Group {device['group']:2d} Pid {device['pid']:6d} on {device['hostname']:>10} "
        f"device {device['device']:2d} [{device['device_hex']}] {device['device_info']}"
    )


def table_head(timestamps: bool) -> str:
    pad = 19 if timestamps else 0
    return "\n".join(
        [
            "#",
            f"# {'':>10}  {'':>12}  {'':>8}  {'':>6}  {'':>6}           out-of-place                       in-place          ",
            f"# {'size':>10}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}"
            + f"  {'time':>7}  {'algbw':>6}  {'busbw':>6}  {'#wrong':>6}" * 2
            + f" {'timestamp' if timestamps else '':>{pad}}",
            f"# {'(B)':>10}  {'(elements)':>12}  {'':>8}  {'':>6}  {'':>6}"
            + f"  {'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6}  {'':>6}" * 2
            + f" {TIME_FORMAT if timestamps else '':>{pad}}",
        ]
    )


def foot(program: str, wrong: int, average: float, passed: bool | None) -> str:
    """``passed``: whether the average is at least what NCCL_TESTS_MIN_BW asks for; None where it asks for nothing."""
    verdict = "" if passed is None else "OK" if passed else "FAILED"
    return "\n".join(
        [
            f"# {'Out of bounds values':<20} : {wrong} {'FAILED' if wrong else 'OK'}",
            f"# {'Avg bus bandwidth':<20} : {average:g} {verdict}",
            "#",
            f"# Collective test concluded: {program}",
            "#",
        ]
    )


def document(
    options: Options, members: list[Member], measured: list[Row], passed: bool | None, process: dict[str, Any]
) -> dict[str, Any]:
    """What ``-J`` writes. ``process``: args, env (with all its secrets, as the real one writes it), start_time."""
    wrong = wrong_checks(measured, members)
    step = {"step_factor": options.stepfactor} if options.stepfactor > 1 else {"step_bytes": options.stepbytes}
    return {
        "version": 3,
        **process,
        "nccl_version": NCCL_CODE,
        "config": {
            "nthreads": options.nthreads,
            "ngpus": options.ngpus,
            "minimum_bytes": options.minbytes,
            "maximum_bytes": options.maxbytes,
            **step,
            "warmup_iters": options.warmup_iters,
            "iterations": options.iters,
            "aggregated_iterations": options.agg_iters,
            "validation": options.check,
            "graph": 0,
            "blocking_collectives": "false",
            "per_iter_timing": "false",
            "per_iter_skip": 0,
            "parallel_init": "false",
            "devices": devices(members),
        },
        "results": [row.document(options.iters) for row in measured],
        "out_of_bounds": {"count": wrong, "okay": "false" if wrong else "true"},
        "average_bus_bandwidth": {
            "bandwidth": average_busbw(measured),
            "okay": "unchecked" if passed is None else "true" if passed else "false",
        },
        "errors": [""],
        "end_time": time.strftime(TIME_FORMAT),
    }


def log_network(member: Member, interface: str, hcas: dict[str, int]) -> Iterator[tuple[int, str]]:
    """Device and text of NCCL's lines about a process's way to other nodes; ``interface``: ``eth0:10.89.0.11<0>``."""
    names = "".join(f" [{place}]{name}:1/IB" for place, name in enumerate(hcas))
    lines = [f"NET/IB : Using{names} [RO]; OOB {interface}", "Using network IB"]
    if member.sockets:
        lines = ["NET/IB : No device found.", f"NET/Socket : Using [0]{interface}", "Using network Socket"]
    for line in (f"Bootstrap: Using {interface}", f"NCCL version {NCCL_VERSION}+cuda12.4", *lines):
        yield member.devices[0].number, line


def log_ring(members: list[Member], own: int) -> Iterator[tuple[int, str]]:
    """The same of each of its GPUs: where the ring leaves the node, and that it is ready. ``own``: the process."""
    everyone = [(member, device) for member in members for device in member.devices]
    for rank, (member, device) in enumerate(everyone):
        if member is not members[own]:
            continue
        peer = (rank + 1) % len(everyone)
        other, remote = everyone[peer]
        if other.host != member.host:
            how = "NET/Socket/0" if member.sockets else f"NET/IB/{device.number}/GDRDMA"
            way = f"{rank}[{device.number}] -> {peer}[{remote.number}]"
            yield device.number, f"Channel 00/0 : {way} [send] via {how}"
        bus_id = int(device.bus_id.replace(":", "").replace(".", ""), 16)
        yield (
            device.number,
            f"ncclCommInitRankConfig comm 0x{member.pid:x}{device.number:x} rank {rank} nranks {len(everyone)} "
            f"cudaDev {device.number} nvmlDev {device.number} busId {bus_id:x} commId 0x{members[0].pid:x} - Init COMPLETE",
        )
