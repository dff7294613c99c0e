# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What the module and the node's own program say of the GPUs."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks import smi
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.model import Gpu, Problem
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.progress import Progress, final
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.nvidia_smi import SmiRun


def grouped(plans: list[Progress]) -> list[list[str]]:
    """The calls that a real run would make, if every GPU does as it is told."""
    argv: list[list[str]] = []

    def call(arguments: t.Sequence[str]) -> SmiRun:
        argv.append(list(arguments))
        return SmiRun(rc=0)

    smi.perform(call, [(plan.gpu, plan.steps) for plan in plans])
    return argv


def describe(gpu: Gpu) -> dict[str, t.Any]:
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "bus_id": gpu.bus_id,
        "mig": gpu.mig,
        "clocks": {
            "graphics_mhz": gpu.graphics_mhz,
            "memory_mhz": gpu.memory_mhz,
            "max_graphics_mhz": gpu.max_graphics_mhz,
            "max_memory_mhz": gpu.max_memory_mhz,
        },
    }


def outcome(plan: Progress, *, check: bool) -> dict[str, t.Any]:
    status = "failed" if plan.problems else "changed" if plan.changed else "ok"
    return {
        **describe(plan.gpu),
        "status": status,
        "before": plan.before.show(),
        "after": final(plan, check=check).show(),
        "problems": [
            {**dataclasses.asdict(problem), "remedy": smi.REMEDIES.get(problem.kind, "")} for problem in plan.problems
        ],
        "notes": plan.notes,
    }


def difference(gpu: dict[str, t.Any]) -> str:
    parts = [
        f"{name.replace('_', ' ')} {gpu['before'][name]} instead of {gpu['after'][name]}"
        for name in gpu["before"]
        if gpu["before"][name] != gpu["after"][name]
    ]
    return ", ".join(parts) or "nothing was saved of what it had before"


def failure(
    bad: list[tuple[str, Problem]], lost: list[dict[str, str]], handled: int, result: dict[str, t.Any]
) -> ClusterError:
    said = [f"{label}: {problem.message}" for label, problem in bad]
    said += [f"{item['what']}: {item['reason']}" for item in lost]
    first = smi.REMEDIES.get(bad[0][1].kind, "") if bad else lost[0]["remedy"]
    kind = bad[0][1].kind if bad else "lost"
    failed = len({label for label, _problem in bad})
    rest = f" {handled - failed} of {handled} answering GPUs are as wanted." if handled else ""
    return ClusterError(kind, f"Clocks could not be set everywhere. {'; '.join(said)}.{rest}", first, **result)


__all__ = ["describe", "difference", "failure", "grouped", "outcome"]
