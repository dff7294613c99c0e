# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet that prints what nccl-tests prints, and a run of the engine over it."""

from __future__ import annotations

import dataclasses
import math
import random
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._health.launch import _read
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._health.model import Launch, Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._health_run.document import document
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._health_run.engine import HealthRun, Request

HEAD = """# nccl-tests version 2.17.6 nccl-headers=22703 nccl-library=22703
# Collective test starting: {program}
# nThread 1 nGpus 1 minBytes {size} maxBytes {size} step: 2(factor) warmup iters: 2 iters: 5 agg iters: 1 validation: 1 graph: 0
#
# Using devices
{node}:77:77 [0] NCCL INFO Using network {network}
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
SIZE = 1 << 30


def text(program: str, node: str, busbw: t.Sequence[float], wrong: int = 0, network: str = "IB") -> str:
    """What the program prints on one node's behalf, one row for each bandwidth."""
    lines = [HEAD.format(program=program, node=node, network=network, size=SIZE)]
    for value in busbw:
        algbw = value / 1.75
        half = f"{SIZE / algbw / 1e3:9.1f} {algbw:7.2f} {value:7.2f} {wrong:6}"
        lines.append(f"{SIZE:12} {SIZE // 4:13} {'float':>9} {'sum':>7} {-1:7} {half} {half}\n")
    mean = sum(busbw) / len(busbw)
    lines.append(
        f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}\n# Avg bus bandwidth    : {mean:g} \n#\n"
    )
    return "".join(lines)


@dataclasses.dataclass
class Fleet:
    """Faults by node: a factor of its bandwidth, ``hang``, ``wrong``, ``crash``, ``garbage``, ``gone``; ``all``: of every launch."""

    nodes: tuple[str, ...]
    faults: t.Mapping[str, float | str] = dataclasses.field(default_factory=dict)
    network: str = "IB"
    seed: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    def outcome(self, launch: Launch) -> Outcome:
        faults = {node: self.faults[node] for node in (*launch.nodes, "all") if node in self.faults}
        kinds = set(faults.values())
        blank = Outcome(launch.id, launch.nodes, seconds=10.0, rc=0)
        gone = {node: "does not answer: no route to it" for node, kind in faults.items() if kind == "gone"}
        if gone:
            return dataclasses.replace(blank, rc=255, lost=gone, unreadable="ssh: no route")
        if "missing" in kinds:
            return dataclasses.replace(blank, rc=1, trouble="there is no /opt/nccl-tests/build/all_reduce_perf on n0")
        if "hang" in kinds:
            return dataclasses.replace(blank, rc=-15, timed_out=True, seconds=launch.timeout_s)
        if "crash" in kinds:
            return _read(
                dataclasses.replace(blank, rc=3),
                "n1: Test NCCL failure common.cu:958 'unhandled system error'\n",
                launch.samples,
            )
        if "garbage" in kinds and (faults.get(launch.nodes[0]) == "garbage" or "all" in faults):
            return _read(blank, "\x00 no table\n", launch.samples)
        factor = min([1.0, *(one for one in faults.values() if isinstance(one, float))])
        healthy = 400.0 * (1 - 0.01 * math.log2(max(len(launch.nodes), 2)))
        values = [healthy * factor * (1 + self.chance.gauss(0, 0.01)) for _one in range(launch.samples)]
        wrong = 7 if "wrong" in kinds else 0
        return _read(
            dataclasses.replace(blank, rc=0),
            text(launch.program, launch.nodes[0], values, wrong, self.network),
            launch.samples,
        )

    def baseline(self) -> dict[str, float]:
        return dict.fromkeys(("all_reduce", "alltoall", "all_gather"), 400.0 * (1 - 0.01 * math.log2(len(self.nodes))))


def nodes(count: int) -> tuple[str, ...]:
    return tuple(f"n{number}" for number in range(count))


def request(fleet: Fleet, **options: t.Any) -> Request:
    return Request(nodes=fleet.nodes, **{"expected_gbytes_s": fleet.baseline(), **options})


def finish(run: HealthRun, fleet: Fleet, rounds: int = 1000) -> list[list[Outcome]]:
    """Run it to its end, or for so many rounds."""
    seen = []
    for _round in range(rounds):
        launches = run.next_round()
        if not launches:
            break
        outcomes = [fleet.outcome(launch) for launch in launches]
        run.record(outcomes, max(one.seconds for one in outcomes))
        seen.append(outcomes)
    return seen


def told(run: HealthRun) -> dict[str, t.Any]:
    return document(
        run, run_id="test", launcher="mpirun", started="2026-01-01T00:00:00+00:00", ended="2026-01-01T00:10:00+00:00"
    )


def check(fleet: Fleet, **options: t.Any) -> dict[str, t.Any]:
    run = HealthRun(request(fleet, **options))
    finish(run, fleet)
    return told(run)
