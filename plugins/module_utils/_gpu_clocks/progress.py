# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What becomes of one GPU: written down before its steps are taken, after each, and when it is read back."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks import plan as clocks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks import smi
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.model import (
    LOCKS,
    Gpu,
    Layer,
    Problem,
    Record,
    Settings,
    Step,
)


@dataclasses.dataclass
class Progress:
    """One GPU on its way from what it was to what is wanted. ``steps`` are still to be taken, ``done`` were."""

    gpu: Gpu
    old: Record
    record: Record
    before: Settings
    steps: list[Step]
    wanted: Settings | None
    problems: list[Problem]
    notes: list[str]
    layers: dict[str, Layer]
    done: list[Step] = dataclasses.field(default_factory=list)
    after: Settings | None = None

    @property
    def changed(self) -> bool:
        return bool(self.done or self.steps) or _held(self.old.layers) != _held(self.layers)


def _held(layers: dict[str, Layer]) -> dict[str, t.Any]:
    """What a person would call a change of the record: priors and who holds them."""
    return {name: (layer.prior, layer.holders) for name, layer in layers.items()}


def announce(plan: Progress, *, restoring: bool) -> None:
    """Prepare the record for an interruption: locks about to be set are unknown, and what is to be restored is kept."""
    stepped = [step.setting for step in plan.steps]
    sessions = {name: life for name, life in plan.record.sessions.items() if name not in stepped}
    layers = clocks.owed(plan.old.layers, plan.layers) if restoring else plan.record.layers
    plan.record = clocks.touch(dataclasses.replace(plan.record, sessions=sessions, layers=layers), stepped)


def book(plan: Progress, outcomes: list[tuple[Step, smi.Outcome]], session: str, *, again: bool) -> None:
    """Write down what became of the steps."""
    for step, outcome in outcomes:
        if not outcome.kind:
            plan.done.append(step)
            if step.setting in LOCKS:
                sessions = {**plan.record.sessions, step.setting: session}
                plan.record = dataclasses.replace(plan.record, sessions=sessions, **{step.setting: step.value})
            if step.value and outcome.acknowledged not in (None, step.value):
                plan.notes.append(f"asked for {step.value}, the driver set {outcome.acknowledged}")
        elif outcome.kind == "unsupported" and step.setting != "persistence":
            plan.record = dataclasses.replace(
                plan.record, refused={**plan.record.refused, step.setting: plan.gpu.driver}
            )
            if not again:
                plan.problems.append(Problem(step.setting, outcome.kind, outcome.said))
        else:
            plan.problems.append(Problem(step.setting, outcome.kind, outcome.said))
    refused = [step for step, outcome in outcomes if outcome.kind == "unsupported"]
    plan.steps = refused if again else []


def compare(plan: Progress, gpu: Gpu | None, session: str) -> None:
    if gpu is None:
        plan.problems.append(Problem("", "lost", "it answered before its clocks were set and does not any more"))
        return
    known = clocks.current(gpu, dataclasses.replace(plan.record, seen_mhz=gpu.graphics_mhz), session)
    plan.after = known
    for step in plan.done:
        found = getattr(known, step.setting)
        if step.setting not in LOCKS and found != step.value:
            message = f"nvidia-smi {' '.join(step.arguments)} was accepted, but {step.setting} reads {found}"
            plan.problems.append(Problem(step.setting, "not_applied", message))
        if step.setting != "graphics_lock":
            continue
        lock = plan.record.graphics_lock
        plan.record = dataclasses.replace(plan.record, seen_mhz=gpu.graphics_mhz if lock else None)
        if not lock or not clocks.contradicts(gpu, lock, None):
            continue
        if gpu.graphics_mhz != plan.gpu.graphics_mhz:
            plan.notes.append(f"locked at {lock[0]}-{lock[1]} MHz it runs at {gpu.graphics_mhz} MHz")
        elif gpu.reasons is None or gpu.reasons & clocks.IDLE:
            plan.notes.append(f"idle, it stays at {gpu.graphics_mhz} MHz: whether its lock holds shows under load")
        else:
            # Told that it is locked, at work, and not moved at all: the next run has to try again.
            sessions = {name: life for name, life in plan.record.sessions.items() if name != step.setting}
            plan.record = dataclasses.replace(plan.record, sessions=sessions)
            plan.after = dataclasses.replace(known, graphics_lock=None, unknown=known.unknown | {step.setting})
            message = (
                f"nvidia-smi {' '.join(step.arguments)} was accepted, but the clock stays at {gpu.graphics_mhz} MHz"
            )
            plan.problems.append(Problem(step.setting, "not_applied", message))
    plan.gpu = gpu


def final(plan: Progress, *, check: bool) -> Settings:
    """What is in effect at the end; in check mode, what would be."""
    if plan.after is not None:
        return plan.after
    if not check or plan.wanted is None:
        return plan.before
    final = plan.before
    for step in plan.steps:
        changes: dict[str, t.Any] = {step.setting: step.value}
        final = dataclasses.replace(final, **changes, unknown=final.unknown - {step.setting})
    return final


__all__ = ["Progress", "announce", "book", "compare", "final"]
