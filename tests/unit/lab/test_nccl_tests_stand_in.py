# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's stand-in for nccl-tests, without MPI: its options, what faults do to its numbers, and that the collection reads its output.

Both sides were written from nccl-tests' source by different people.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._health.nccl_tests import (
    Report,
    parse,
    parse_json,
    transports,
)

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "lab/gpu_simulator"))
from nccl_tests import fabric, options, report

PROGRAMS = sorted(fabric.COLLECTIVES)
SIZES = ["-b", "1M", "-e", "64M", "-f", "4", "-g", "2"]


def member(number: int, **faults: object) -> fabric.Member:
    devices = tuple(fabric.Device(at, f"000{at}:00:00.0", "NVIDIA A100-SXM4-40GB", 40 << 30) for at in range(2))
    return dataclasses.replace(fabric.Member(f"gpu-{number}", 100 + number, devices, (200, 200)), **faults)


def printed(program: str, members: list[fabric.Member], *arguments: str) -> str:
    asked = options.parse(program, [*SIZES, *arguments])
    measured = list(report.rows(asked, fabric.COLLECTIVES[program], members))
    lines = [report.head(program, asked), *map(report.device_line, report.devices(members)), report.table_head(False)]
    lines += [row.text(False) for row in measured]
    wrong = report.wrong_checks(measured, members)
    return "\n".join([*lines, report.foot(program, wrong, report.average_busbw(measured), None), ""])


def busbw(program: str, members: list[fabric.Member]) -> float:
    found = parse(printed(program, members))
    assert isinstance(found, Report)
    return found.samples[0]


@pytest.mark.parametrize("cycles", [1, 5])
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_collection_reads_its_table(program: str, cycles: int) -> None:
    found = parse(printed(program, [member(1), member(2)], "-N", str(cycles)), cycles)
    assert isinstance(found, Report)
    assert (len(found.curve), len(found.samples), found.wrong) == (4, cycles, 0)
    assert 30 < found.samples[0] < 50


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_collection_reads_its_json(program: str) -> None:
    members = [member(1), member(2)]
    asked = options.parse(program, SIZES)
    measured = list(report.rows(asked, fabric.COLLECTIVES[program], members))
    found = parse_json(json.dumps(report.document(asked, members, measured, None, {"env": ["TOKEN=secret"]})))
    assert isinstance(found, Report)
    assert len(found.rows) == 4


@pytest.mark.parametrize(
    ("faults", "share"),
    [
        ({}, 1.0),
        ({"factor": 0.6}, 0.6),
        ({"slow_links": ("gpu-2",)}, 0.5),
        ({"slow_links": ("gpu-9",)}, 1.0),
        ({"bad_leaf": "leaf-1"}, 0.5),
    ],
)
def test_the_slowest_member_counts(faults: dict[str, object], share: float) -> None:
    healthy = busbw("all_reduce_perf", [member(1), member(2)])
    assert busbw("all_reduce_perf", [member(1, **faults), member(2)]) == pytest.approx(share * healthy, rel=0.03)


def test_wrong_results_and_sockets_are_seen() -> None:
    found = parse(printed("all_reduce_perf", [member(1, wrong=3), member(2)]))
    assert isinstance(found, Report)
    assert found.wrong > 0
    for sockets, network in ((False, "IB"), (True, "Socket")):
        lines = report.log_network(member(1, sockets=sockets), "eth0:10.0.0.1<0>", {"mlx5_0": 200})
        text = "\n".join(f"gpu-1:100:100 [{device}] NCCL INFO {line}" for device, line in lines)
        assert transports(text) == (network,)


@pytest.mark.parametrize(("text", "size"), [("64M", 64 << 20), ("8g", 8 << 30), ("0.5K", 512), ("100", 100)])
def test_sizes(text: str, size: int) -> None:
    assert options.parse("all_reduce_perf", ["-e", "16G", "-b", text]).minbytes == size


def test_what_the_real_one_does_not_know_is_refused() -> None:
    with pytest.raises(SystemExit):
        options.parse("all_reduce_perf", ["--no-such-option", "1"])
    with pytest.raises(SystemExit):
        options.parse("all_reduce_perf", ["-b", "many"])
