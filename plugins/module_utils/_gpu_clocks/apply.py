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
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks import plan as clocks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks import smi
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.plan import (
    LOCKS,
    Gpu,
    Layer,
    Problem,
    Record,
    Settings,
    Step,
    Wish,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.store import Store
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node import nvidia_smi as node_smi
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.nvidia_smi import SmiReport
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.sysfs import normalize_bus_id, read_pci_gpus

STATE_PATH = "/var/lib/gpu_clocks/state.json"
# A clock needs a moment to follow its lock.
_SETTLE_S = 2.0
_POLL_S = 0.25
# A refused lock may leave application clocks, which may be refused in turn.
_ROUNDS = 3
_NAMES_REMEDY = "Name GPUs by index, UUID or bus id; a GPU that is missing has an XID in the kernel log."


@dataclasses.dataclass(frozen=True)
class Options:
    """How to reach the GPUs. ``gpus`` empty means all; otherwise indices, UUIDs or bus ids."""

    nvidia_smi: str = "nvidia-smi"
    timeout_s: float = 30.0
    state_path: str = STATE_PATH
    required: bool = True
    allow_unsupported: bool = False
    gpus: tuple[str, ...] = ()
    root: Path = Path("/")


@dataclasses.dataclass
class _Plan:
    """One GPU's way."""

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


class _Decision(t.NamedTuple):
    record: Record
    wanted: Settings | None
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


_Decide = t.Callable[[Gpu, Record, Settings, str], _Decision]


def _held(layers: dict[str, Layer]) -> dict[str, t.Any]:
    """What a person would call a change of the record: priors and who holds them."""
    return {name: (layer.prior, layer.holders) for name, layer in layers.items()}


def _lost(report: SmiReport) -> list[dict[str, str]]:
    """GPUs that are there and do not answer; not what the driver complains about in general."""
    return [item for item in report.unknown if item["what"].startswith("gpu") and item["what"] != "gpus"]


def _bus_id(name: str) -> str:
    """A PCI address as the kernel spells it; empty where the name is none."""
    try:
        return normalize_bus_id(name)
    except ValueError:
        return ""


def _selected(gpus: list[Gpu], wanted: t.Sequence[str]) -> tuple[list[Gpu], list[str]]:
    """The GPUs that were named, and names that none answers to. Refuses where that is all of them."""
    if not wanted:
        return gpus, []
    chosen: list[Gpu] = []
    missing: list[str] = []
    for name in wanted:
        bus_id = _bus_id(name)
        found = [gpu for gpu in gpus if name in (str(gpu.index), gpu.uuid) or gpu.bus_id == bus_id]
        chosen += [gpu for gpu in found if gpu not in chosen]
        missing += [] if found else [name]
    if not chosen:
        there = ", ".join(f"{gpu.index} ({gpu.bus_id})" for gpu in gpus) or "none"
        raise ClusterError(
            "no_such_gpu",
            f"GPU {', '.join(missing)} does not answer. These do: {there}. No clock was changed.",
            _NAMES_REMEDY,
        )
    return chosen, missing


def _unanswered(names: t.Sequence[str], report: SmiReport) -> list[dict[str, str]]:
    """What to say of GPUs that were named and do not answer."""
    found = []
    for name in names:
        item = {"reason": "nvidia-smi does not list it", "remedy": _NAMES_REMEDY}
        for known in _lost(report):
            # "gpu 3 (0004:00:00.0)", or as much of it as is known.
            label, _space, place = known["what"].partition(" (")
            if label == f"gpu {name}" or (place and place.rstrip(")") == _bus_id(name)):
                item = known
        found.append({**item, "what": f"GPU {name} does not answer"})
    return found


def _check_wish(wish: Wish) -> None:
    asked = [clock for clock in (wish.graphics_mhz, wish.memory_mhz) if clock is not None]
    if any(clock <= 0 for clock in asked):
        raise ClusterError("bad_value", f"{min(asked)} MHz is no clock.", "Give a positive number, or leave it out.")
    if wish.policy == "values" and not asked:
        raise ClusterError(
            "bad_value",
            "The policy is values, and no value is given.",
            "Set `graphics_mhz`, `memory_mhz`, or both.",
        )


class Clocks:
    """The clocks of this node's GPUs."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._store = Store(options.state_path)
        self._commands: list[list[str]] = []

    # What can be asked for

    def apply(self, wish: Wish, layer: str = "node", holder: str = "node", *, check: bool = False) -> dict[str, t.Any]:
        """Give every GPU what was wished for, and remember what it had."""
        _check_wish(wish)

        def decide(gpu: Gpu, record: Record, now: Settings, session: str) -> _Decision:
            goal = clocks.target(gpu, wish, clocks.base_of(record, layer, now), record)
            # What one clock cannot do does not keep the other from what it can.
            if any(problem.kind != "unsupported" for problem in goal.problems):
                return _Decision(record, None, goal.problems, goal.notes)
            changed, wanted = clocks.settle(*clocks.set_layer(record, layer, holder, session, now, goal.settings))
            notes = goal.notes
            if wanted is None:
                notes = (*notes, f"the {record.above(layer)} holds the clocks: this takes effect when it ends")
            return _Decision(changed, wanted, goal.problems, notes)

        return self._run(decide, check=check)

    def restore(self, layer: str = "node", holder: str | None = None, *, check: bool = False) -> dict[str, t.Any]:
        """Give back what was there before the layer; ``all`` ends every job and the node's own."""

        def decide(gpu: Gpu, record: Record, now: Settings, session: str) -> _Decision:
            if layer == "all":
                record, during = clocks.drop_layer(record, "job", None)
                record, wanted = clocks.drop_layer(record, "node", None)
                return _Decision(record, wanted or during)
            return _Decision(*clocks.settle(*clocks.drop_layer(record, layer, holder)))

        leaving = holder if layer == "job" else None
        return self._run(decide, check=check, restoring=True, forget=layer != "job", leaving=leaving)

    def verify(self, wish: Wish, layer: str = "node") -> dict[str, t.Any]:
        """Change nothing; fail where something would have to be changed."""
        result = self.apply(wish, layer, check=True)
        wrong = [gpu for gpu in result["gpus"] if gpu["status"] == "changed"]
        if wrong:
            said = "; ".join(f"GPU {gpu['index']} ({gpu['bus_id']}): {_difference(gpu)}" for gpu in wrong)
            raise ClusterError(
                "not_applied",
                f"{len(wrong)} of {len(result['gpus'])} GPUs do not have the wanted clocks: {said}.",
                "Run the role gpu_clocks (entry point configure), or gpu-clocks apply on the node.",
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
                for name in clocks.LAYERS
                if name in record.layers
            }
            found.append({**_describe(gpu), **clocks.current(gpu, record, session).show(), "layers": layers})
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
        return not _lost(report) and not read_pci_gpus(self._options.root)

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
                chosen, missing = _selected(gpus, self._options.gpus)
            except ClusterError:
                if leaving is not None and not check:
                    self._save([], _left(saved, gpus, leaving), set())
                raise
            # A job ends once. It must not hold for ever a GPU that does not answer just now.
            left = leaving is not None and (missing or not self._options.gpus)
            records = _left(saved, gpus, leaving or "") if left else saved
            plans = [self._plan(gpu, records.get(gpu.uuid, Record()), decide, session) for gpu in chosen]
            gone = set()
            if forget and not self._options.gpus and not _lost(report):
                # Taken out of the node: nobody is left to give anything back to.
                gone = {uuid for uuid in records if uuid not in {gpu.uuid for gpu in gpus}}
            if not check:
                self._act(plans, records, decide, session, restoring=restoring)
                self._save(plans, records, gone)
        lost = _unanswered(missing, report) if self._options.gpus else _lost(report)
        return self._result(plans, report, lost, check=check, forgotten=bool(gone) or records != saved)

    def _plan(self, gpu: Gpu, old: Record, decide: _Decide, session: str) -> _Plan:
        record = clocks.forget_dead_jobs(old, session)
        now = clocks.current(gpu, record, session)
        decision = decide(gpu, record, now, session)
        todo = clocks.steps(gpu, decision.record, now, decision.wanted) if decision.wanted else []
        problems, notes = list(decision.problems), list(decision.notes)
        layers = decision.record.layers
        return _Plan(gpu, old, decision.record, now, todo, decision.wanted, problems, notes, layers)

    def _act(
        self, plans: list[_Plan], records: dict[str, Record], decide: _Decide, session: str, *, restoring: bool
    ) -> None:
        """Apply; where a GPU turns out not to support something, plan that GPU again without it."""
        todo = [plan for plan in plans if plan.steps]
        for left in range(0 if restoring else _ROUNDS - 1, -1, -1):
            for plan in todo:
                _announce(plan, restoring=restoring)
            self._save(plans, records, set())
            outcomes = smi.perform(self._call, [(plan.gpu, plan.steps) for plan in todo])
            for plan in todo:
                _book(plan, outcomes[plan.gpu.uuid], session, again=left > 0)
            todo = self._again(todo, decide, session)
            if not todo:
                break
        self._read_back([plan for plan in plans if plan.done], session)
        for plan in plans if restoring else []:
            if plan.problems:
                plan.layers = clocks.owed(plan.old.layers, plan.layers)  # to be tried again
            else:
                plan.record = dataclasses.replace(plan.record, layers=plan.layers)

    def _again(self, plans: list[_Plan], decide: _Decide, session: str) -> list[_Plan]:
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

    def _read_back(self, plans: list[_Plan], session: str) -> None:
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
            _compare(plan, fresh.get(plan.gpu.uuid), session)

    def _save(self, plans: list[_Plan], records: dict[str, Record], gone: set[str]) -> None:
        merged = {**records, **{plan.gpu.uuid: plan.record for plan in plans}}
        # What nobody will give back need not be remembered.
        kept = {uuid: record for uuid, record in merged.items() if record.layers and uuid not in gone}
        if kept != self._store.load():
            self._store.save(kept)

    def _result(
        self, plans: list[_Plan], report: SmiReport, lost: list[dict[str, str]], *, check: bool, forgotten: bool
    ) -> dict[str, t.Any]:
        for plan in plans if self._options.allow_unsupported else []:
            plan.notes += [problem.message for problem in plan.problems if problem.kind == "unsupported"]
            plan.problems = [problem for problem in plan.problems if problem.kind != "unsupported"]
        gpus = [_outcome(plan, check=check) for plan in plans]
        planned = [[self._options.nvidia_smi, *arguments] for arguments in _grouped(plans)] if check else self._commands
        result: dict[str, t.Any] = {
            "changed": forgotten or any(plan.changed for plan in plans),
            "gpus": gpus,
            "commands": planned,
            "unknown": report.unknown,
            "diff": {
                "before": {plan.gpu.label: plan.before.show() for plan in plans},
                "after": {plan.gpu.label: _final(plan, check=check).show() for plan in plans},
            },
        }
        if not plans:
            result["reason"] = "This node has no GPU, and `required` is false."
        bad = [(plan.gpu.label, problem) for plan in plans for problem in plan.problems]
        if bad or (lost and plans):
            raise _failure(bad, lost, len(plans), result)
        return result


def _left(records: dict[str, Record], gpus: list[Gpu], holder: str) -> dict[str, Record]:
    """The records after a job has ended, of the GPUs that do not answer."""
    there = {gpu.uuid for gpu in gpus}
    return {uuid: record if uuid in there else clocks.leave(record, holder) for uuid, record in records.items()}


def _announce(plan: _Plan, *, restoring: bool) -> None:
    """Prepare the record for an interruption: locks about to be set are unknown, and what is to be restored is kept."""
    stepped = [step.setting for step in plan.steps]
    sessions = {name: life for name, life in plan.record.sessions.items() if name not in stepped}
    layers = clocks.owed(plan.old.layers, plan.layers) if restoring else plan.record.layers
    plan.record = clocks.touch(dataclasses.replace(plan.record, sessions=sessions, layers=layers), stepped)


def _book(plan: _Plan, outcomes: list[tuple[Step, smi.Outcome]], session: str, *, again: bool) -> None:
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


def _compare(plan: _Plan, gpu: Gpu | None, session: str) -> None:
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


def _final(plan: _Plan, *, check: bool) -> Settings:
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


def _grouped(plans: list[_Plan]) -> list[list[str]]:
    """The calls that a real run would make, if every GPU does as it is told."""
    argv: list[list[str]] = []

    def call(arguments: t.Sequence[str]) -> node_smi.SmiRun:
        argv.append(list(arguments))
        return node_smi.SmiRun(rc=0)

    smi.perform(call, [(plan.gpu, plan.steps) for plan in plans])
    return argv


def _describe(gpu: Gpu) -> dict[str, t.Any]:
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


def _outcome(plan: _Plan, *, check: bool) -> dict[str, t.Any]:
    status = "failed" if plan.problems else "changed" if plan.changed else "ok"
    return {
        **_describe(plan.gpu),
        "status": status,
        "before": plan.before.show(),
        "after": _final(plan, check=check).show(),
        "problems": [
            {**dataclasses.asdict(problem), "remedy": smi.REMEDIES.get(problem.kind, "")} for problem in plan.problems
        ],
        "notes": plan.notes,
    }


def _difference(gpu: dict[str, t.Any]) -> str:
    parts = [
        f"{name.replace('_', ' ')} {gpu['before'][name]} instead of {gpu['after'][name]}"
        for name in gpu["before"]
        if gpu["before"][name] != gpu["after"][name]
    ]
    return ", ".join(parts) or "nothing was saved of what it had before"


def _failure(
    bad: list[tuple[str, Problem]], lost: list[dict[str, str]], handled: int, result: dict[str, t.Any]
) -> ClusterError:
    said = [f"{label}: {problem.message}" for label, problem in bad]
    said += [f"{item['what']}: {item['reason']}" for item in lost]
    first = smi.REMEDIES.get(bad[0][1].kind, "") if bad else lost[0]["remedy"]
    kind = bad[0][1].kind if bad else "lost"
    failed = len({label for label, _problem in bad})
    rest = f" {handled - failed} of {handled} answering GPUs are as wanted." if handled else ""
    return ClusterError(kind, f"Clocks could not be set everywhere. {'; '.join(said)}.{rest}", first, **result)


__all__ = ["STATE_PATH", "Clocks", "Options"]
