# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Set, prove and restore the clocks of all GPUs of this node: what the module and the node's own gpu-clocks both run.

Read, plan, save what was there, apply, read back, save what is there now. The order survives a kill at any point: what was
there is on disk before the first change, and a lock whose setting was interrupted counts as unknown.
"""

from __future__ import annotations

import dataclasses
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks import plan as clocks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks import smi
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.model import (
    LAYERS,
    Decision,
    Gpu,
    Problem,
    Record,
    Settings,
    Wish,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.progress import (
    Progress,
    announce,
    book,
    compare,
    final,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.report import (
    describe,
    difference,
    failure,
    grouped,
    outcome,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.request import Options
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.selection import (
    lost_gpus,
    selected,
    unanswered,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.store import Store
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node import nvidia_smi as node_smi
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.nvidia_smi import SmiReport
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.sysfs import read_pci_gpus

# A clock needs a moment to follow its lock.
_SETTLE_S = 2.0
_POLL_S = 0.25
# A refused lock may leave application clocks, which may be refused in turn.
_ROUNDS = 3


_Decide = t.Callable[[Gpu, Record, Settings, str], Decision]


class Clocks:
    """The clocks of this node's GPUs."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._store = Store(options.state_path)
        self._commands: list[list[str]] = []

    # What can be asked for

    def apply(self, wish: Wish, layer: str = "node", holder: str = "node", *, check: bool = False) -> dict[str, t.Any]:
        """Give every GPU what was wished for, and remember what it had."""
        clocks.check_wish(wish)

        def decide(gpu: Gpu, record: Record, now: Settings, session: str) -> Decision:
            return clocks.decide_wish(gpu, record, now, session, wish, layer, holder)

        return self._run(decide, check=check)

    def restore(self, layer: str = "node", holder: str | None = None, *, check: bool = False) -> dict[str, t.Any]:
        """Give back what was there before the layer; ``all`` ends every job and the node's own."""

        def decide(_gpu: Gpu, record: Record, _now: Settings, _session: str) -> Decision:
            return clocks.decide_restore(record, layer, holder)

        leaving = holder if layer == "job" else None
        return self._run(decide, check=check, restoring=True, forget=layer != "job", leaving=leaving)

    def verify(self, wish: Wish, layer: str = "node", holder: str = "node") -> dict[str, t.Any]:
        """Change nothing; fail where something would have to be changed."""
        result = self.apply(wish, layer, holder, check=True)
        wrong = [gpu for gpu in result["gpus"] if gpu["status"] == "changed"]
        if wrong:
            said = "; ".join(f"GPU {gpu['index']} ({gpu['bus_id']}): {difference(gpu)}" for gpu in wrong)
            entry_point, command = ("job_begin", "begin --job") if layer == "job" else ("configure", "apply")
            raise ClusterError(
                "not_applied",
                f"{len(wrong)} of {len(result['gpus'])} GPUs do not have the wanted clocks: {said}.",
                f"Run the role gpu_clocks (entry point {entry_point}), or gpu-clocks {command} on the node.",
                **{**result, "changed": False},
            )
        return {**result, "changed": False}

    def status(self) -> dict[str, t.Any]:
        """What there is and what is remembered, without a verdict."""
        report, gpus, session = self._observe()
        records = self._store.load()
        found = []
        for gpu in gpus:
            record = clocks.forget_dead_jobs(records.get(gpu.uuid, Record()), session)
            layers = {
                name: {"before": record.layers[name].prior.show(), "holders": list(record.layers[name].holders)}
                for name in LAYERS
                if name in record.layers
            }
            found.append({**describe(gpu), **clocks.current(gpu, record, session).show(), "layers": layers})
        return {"gpus": found, "unknown": report.unknown}

    # How it is done

    def _observe(self) -> tuple[SmiReport, list[Gpu], str]:
        report = smi.observe(self._options.nvidia_smi, self._options.timeout_s)
        gpus = smi.read(report)
        if not gpus and not self._absent(report):
            first = report.unknown[0]
            kind = {"missing": "no_driver", "timeout": "timeout"}.get(report.state, "no_gpu")
            raise ClusterError(kind, f"No GPU can be asked for its clocks: {first['reason']}.", first["remedy"])
        driver = gpus[0].driver if gpus else ""
        return report, gpus, smi.session(self._options.root, driver)

    def _absent(self, report: SmiReport) -> bool:
        """Whether the node has no GPU and need not have one."""
        if self._options.required or report.state == "timeout":
            return False
        return not lost_gpus(report) and not read_pci_gpus(self._options.root)

    def _call(self, arguments: t.Sequence[str]) -> node_smi.SmiRun:
        self._commands.append([self._options.nvidia_smi, *arguments])
        return node_smi.call(self._options.nvidia_smi, arguments, self._options.timeout_s)

    def _run(
        self,
        decide: _Decide,
        *,
        check: bool,
        restoring: bool = False,
        forget: bool = False,
        leaving: str | None = None,
    ) -> dict[str, t.Any]:
        if restoring and not self._store.load():
            # Nothing was ever set here: no GPU needs to answer for that, and no lock file needs to stay behind.
            return {"changed": False, "gpus": [], "commands": [], "unknown": [], "diff": {"before": {}, "after": {}}}
        with self._store.locked(check=check, timeout_s=self._options.timeout_s):
            saved = self._store.load()
            gpus: list[Gpu] = []
            try:
                report, gpus, session = self._observe()
                chosen, missing = selected(gpus, self._options.gpus)
            except ClusterError:
                if leaving is not None and not check:
                    self._save([], _left(saved, gpus, leaving), set())
                raise
            # A job ends once. It must not hold for ever a GPU that does not answer just now.
            left = leaving is not None and (missing or not self._options.gpus)
            records = _left(saved, gpus, leaving or "") if left else saved
            plans = [self._plan(gpu, records.get(gpu.uuid, Record()), decide, session) for gpu in chosen]
            gone = set()
            if forget and not self._options.gpus and not lost_gpus(report):
                # Taken out of the node: nobody is left to give anything back to.
                gone = {uuid for uuid in records if uuid not in {gpu.uuid for gpu in gpus}}
            if not check:
                self._act(plans, records, decide, session, restoring=restoring)
                self._save(plans, records, gone)
        lost = unanswered(missing, report) if self._options.gpus else lost_gpus(report)
        return self._result(plans, report, lost, check=check, forgotten=bool(gone) or records != saved)

    def _plan(self, gpu: Gpu, old: Record, decide: _Decide, session: str) -> Progress:
        record = clocks.forget_dead_jobs(old, session)
        now = clocks.current(gpu, record, session)
        decision = decide(gpu, record, now, session)
        todo = clocks.steps(gpu, decision.record, now, decision.wanted) if decision.wanted else []
        problems, notes = list(decision.problems), list(decision.notes)
        layers = decision.record.layers
        return Progress(gpu, old, decision.record, now, todo, decision.wanted, problems, notes, layers)

    def _act(
        self, plans: list[Progress], records: dict[str, Record], decide: _Decide, session: str, *, restoring: bool
    ) -> None:
        """Apply; where a GPU turns out not to support something, plan that GPU again without it."""
        todo = [plan for plan in plans if plan.steps]
        for left in range(0 if restoring else _ROUNDS - 1, -1, -1):
            for plan in todo:
                announce(plan, restoring=restoring)
            self._save(plans, records, set())
            outcomes = smi.perform(self._call, [(plan.gpu, plan.steps) for plan in todo])
            for plan in todo:
                book(plan, outcomes[plan.gpu.uuid], session, again=left > 0)
            todo = self._again(todo, decide, session)
            if not todo:
                break
        self._read_back([plan for plan in plans if plan.done], session)
        for plan in plans if restoring else []:
            if plan.problems:
                plan.layers = clocks.owed(plan.old.layers, plan.layers)  # to be tried again
            else:
                plan.record = dataclasses.replace(plan.record, layers=plan.layers)

    def _again(self, plans: list[Progress], decide: _Decide, session: str) -> list[Progress]:
        """GPUs that do not support a setting, planned anew from what they are now."""
        refused = [plan for plan in plans if plan.steps]
        if not refused:
            return []
        fresh = {gpu.uuid: gpu for gpu in smi.read(smi.observe(self._options.nvidia_smi, self._options.timeout_s))}
        again = []
        for plan in refused:
            gpu = fresh.get(plan.gpu.uuid)
            if gpu is None:
                plan.steps = []
                plan.problems.append(
                    Problem("", "lost", "it answered before its clocks were set and does not any more")
                )
                continue
            new = self._plan(gpu, plan.record, decide, session)
            plan.record, plan.wanted, plan.steps = new.record, new.wanted, new.steps
            plan.problems += [problem for problem in new.problems if problem not in plan.problems]
            plan.notes += [note for note in new.notes if note not in plan.notes]
            again += [plan] if plan.steps else []
        return again

    def _read_back(self, plans: list[Progress], session: str) -> None:
        """Compare what was set with what the GPUs say now."""
        deadline = time.monotonic() + _SETTLE_S
        locked = {
            plan.gpu.uuid: plan.record.graphics_lock
            for plan in plans
            if any(step.setting == "graphics_lock" and step.value for step in plan.done)
        }
        fresh: dict[str, Gpu] = {}
        while plans:
            fresh = {gpu.uuid: gpu for gpu in smi.read(smi.observe(self._options.nvidia_smi, self._options.timeout_s))}
            late = [
                uuid
                for uuid, lock in locked.items()
                if uuid in fresh and lock and clocks.contradicts(fresh[uuid], lock, None)
            ]
            if not late or time.monotonic() >= deadline:
                break
            time.sleep(_POLL_S)
        for plan in plans:
            compare(plan, fresh.get(plan.gpu.uuid), session)

    def _save(self, plans: list[Progress], records: dict[str, Record], gone: set[str]) -> None:
        merged = {**records, **{plan.gpu.uuid: plan.record for plan in plans}}
        # What will not be given back need not be remembered.
        kept = {uuid: record for uuid, record in merged.items() if record.layers and uuid not in gone}
        if kept != self._store.load():
            self._store.save(kept)

    def _result(
        self, plans: list[Progress], report: SmiReport, lost: list[dict[str, str]], *, check: bool, forgotten: bool
    ) -> dict[str, t.Any]:
        for plan in plans if self._options.allow_unsupported else []:
            plan.notes += [problem.message for problem in plan.problems if problem.kind == "unsupported"]
            plan.problems = [problem for problem in plan.problems if problem.kind != "unsupported"]
        gpus = [outcome(plan, check=check) for plan in plans]
        planned = [[self._options.nvidia_smi, *arguments] for arguments in grouped(plans)] if check else self._commands
        result: dict[str, t.Any] = {
            "changed": forgotten or any(plan.changed for plan in plans),
            "gpus": gpus,
            "commands": planned,
            "unknown": report.unknown,
            "diff": {
                "before": {plan.gpu.label: plan.before.show() for plan in plans},
                "after": {plan.gpu.label: final(plan, check=check).show() for plan in plans},
            },
        }
        if not plans:
            result["reason"] = "This node has no GPU, and `required` is false."
        bad = [(plan.gpu.label, problem) for plan in plans for problem in plan.problems]
        if bad or (lost and plans):
            raise failure(bad, lost, len(plans), result)
        return result


def _left(records: dict[str, Record], gpus: list[Gpu], holder: str) -> dict[str, Record]:
    """The records after a job has ended, of the GPUs that do not answer."""
    there = {gpu.uuid for gpu in gpus}
    return {uuid: record if uuid in there else clocks.leave(record, holder) for uuid, record in records.items()}


__all__ = ["Clocks"]
