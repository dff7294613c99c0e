# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Read clocks with nvidia-smi, change them with nvidia-smi, and find out from its sentences what it really did.

Its exit code does not tell: "... is not supported for GPU ...", "Treating as warning and moving on." and "All done." come
with 0. And one GPU without permission or support ends a call for all that come after it.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.model import Gpu, Pair, Step
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import read_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node import nvidia_smi
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.nvidia_smi import SmiReport, SmiRun
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.sysfs import normalize_bus_id

# Both spellings of the reasons: drivers before 535.54 know the second only. A refused field is dropped from the query.
FIELDS: tuple[str, ...] = (
    "index",
    "uuid",
    "name",
    "pci.bus_id",
    "driver_version",
    "persistence_mode",
    "mig.mode.current",
    "clocks.gr",
    "clocks.mem",
    "clocks.max.graphics",
    "clocks.max.mem",
    "clocks.applications.graphics",
    "clocks.applications.memory",
    "clocks.default_applications.graphics",
    "clocks.default_applications.memory",
    "clocks_event_reasons.active",
    "clocks_throttle_reasons.active",
    "compute_cap",
)
Call = t.Callable[[t.Sequence[str]], SmiRun]

_BUS_ID = re.compile(r"GPU:?\s+([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.IGNORECASE)
_ACKNOWLEDGED = re.compile(
    r"clocks set to \"?\(\w+ (\d+), \w+ (\d+)\)"
    r"|(?:Enabled|Disabled) persistence mode for GPU|Persistence mode is already",
    re.IGNORECASE,
)
# What a sentence about a GPU means, in this order. Recordings: tests/unit/gpu_clocks/fixtures/ORIGIN.md.
_REFUSALS: tuple[tuple[str, str], ...] = (
    ("permission", "no_permission"),
    ("deprecated", "unsupported"),
    ("clock combination", "bad_combination"),
    ("not supported", "unsupported"),
    ("is lost", "lost"),
    ("requires reset", "lost"),
    ("device handle", "lost"),
    ("unable to", "failed"),
    ("failed", "failed"),
    ("unknown error", "failed"),
)
# After one of these the GPU is not asked again: it would hang or refuse once more.
FINAL = frozenset({"no_permission", "lost", "timeout"})
REMEDIES = {
    "no_permission": "Run as root (become: true); in a container or virtual machine, on the host.",
    "unsupported": "Leave this clock out, use another `method`, or set `allow_unsupported: true`.",
    "bad_combination": "See the pairs that the GPU knows: nvidia-smi -q -d SUPPORTED_CLOCKS.",
    "out_of_range": "Ask for no more than clocks.max of the GPU.",
    "no_maximum": "Give the clocks in MHz with `policy: values`.",
    "lost": "Drain the node, read the XID in the kernel log, reset the GPU or reboot.",
    "timeout": "See dmesg for XIDs; reboot the node if the driver hangs.",
    "not_applied": "See clocks_event_reasons of the GPU and dmesg, and whether another tool sets clocks.",
    "failed": "Run the command by hand on the node and see dmesg.",
}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a step on one GPU: ``kind`` is empty when it was done."""

    kind: str = ""
    said: str = ""
    acknowledged: Pair | None = None


def session(root: Path, driver: str) -> str:
    """A name for this life of the driver: what was set before it began is gone.

    The inode of the module's directory tells a reload without a reboot, because sysfs hands out new numbers in turn.
    """
    boot = read_text(root / "proc/sys/kernel/random/boot_id") or "unknown"
    try:
        loaded = str((root / "sys/module/nvidia").stat().st_ino)
    except OSError:
        loaded = "-"
    return f"{boot}/{loaded}/{driver}"


def _mhz(text: str | None) -> int | None:
    match = re.match(r"^(\d+)( MHz)?$", text or "")
    return int(match.group(1)) if match else None


def _pair(cells: dict[str, str], prefix: str) -> Pair | None:
    memory, graphics = _mhz(cells.get(f"{prefix}.memory")), _mhz(cells.get(f"{prefix}.graphics"))
    return (memory, graphics) if memory and graphics else None


def _bits(text: str | None) -> int | None:
    return int(text, 16) if re.match(r"^0x[0-9a-fA-F]+$", text or "") else None  # type: ignore[arg-type]


def _gpu(known: dict[str, t.Any], cells: dict[str, str]) -> Gpu:
    capability = re.match(r"^\d+\.\d+$", cells.get("compute_cap", ""))
    reasons = _bits(cells.get("clocks_event_reasons.active"))
    if reasons is None:
        reasons = _bits(cells.get("clocks_throttle_reasons.active"))
    return Gpu(
        index=known["index"],
        uuid=known["uuid"],
        name=known["name"],
        bus_id=known["bus_id"],
        driver=known["driver"] or "",
        persistence=known["persistence"],
        mig=known["mig"]["enabled"],
        graphics_mhz=_mhz(cells.get("clocks.gr")),
        memory_mhz=_mhz(cells.get("clocks.mem")),
        max_graphics_mhz=_mhz(cells.get("clocks.max.graphics")),
        max_memory_mhz=_mhz(cells.get("clocks.max.mem")),
        applications=_pair(cells, "clocks.applications"),
        default_applications=_pair(cells, "clocks.default_applications"),
        applications_deprecated="deprecated" in cells.get("clocks.applications.graphics", ""),
        compute_capability=float(capability.group()) if capability else None,
        reasons=reasons,
    )


def read(report: SmiReport) -> list[Gpu]:
    """The GPUs of an answered query for ``FIELDS``."""
    return [_gpu(known, report.cells[known["uuid"]]) for known in report.gpus]


def observe(program: str, timeout_s: float) -> SmiReport:
    return nvidia_smi.parse(nvidia_smi.Query(program, timeout_s, FIELDS).result())


def _sentences(run: SmiRun) -> dict[str, list[str]]:
    """What was said about each GPU, by bus id."""
    found: dict[str, list[str]] = {}
    for line in (run.stdout + "\n" + run.stderr).splitlines():
        match = _BUS_ID.search(line)
        if match:
            found.setdefault(normalize_bus_id(match.group(1)), []).append(line.strip())
    return found


def _refusal(lines: list[str]) -> Outcome | None:
    for line in lines:
        if _ACKNOWLEDGED.search(line):
            continue
        for words, kind in _REFUSALS:
            if words in line.lower():
                return Outcome(kind, line)
    return None


def judge(run: SmiRun, gpus: t.Sequence[Gpu]) -> dict[str, Outcome | None]:
    """What became of a call, by UUID; None where the answer does not tell.

    A call that ended well did what it was asked for on every GPU that it did not complain about: resets say no more than
    "All done.".
    """
    said = _sentences(run)
    outcomes: dict[str, Outcome | None] = {}
    for gpu in gpus:
        lines = said.get(gpu.bus_id, [])
        refusal = _refusal(lines)
        acknowledged = next((match for match in map(_ACKNOWLEDGED.search, lines) if match), None)
        if refusal:
            outcomes[gpu.uuid] = refusal
        elif acknowledged or run.rc == 0:
            low, high = acknowledged.groups() if acknowledged else (None, None)
            outcomes[gpu.uuid] = Outcome(acknowledged=(int(low), int(high)) if low and high else None)
        else:
            outcomes[gpu.uuid] = None
    return outcomes


def _unresolved(run: SmiRun) -> Outcome:
    """The verdict on a call for one GPU that did not say what became of it."""
    if run.timed_out:
        return Outcome("timeout", "nvidia-smi did not answer in time and was killed")
    text = next((line.strip() for line in (run.stdout + run.stderr).splitlines() if line.strip()), "")
    meaning, _remedy = nvidia_smi.RETURN_CODES.get(run.rc or 0, ("it failed", ""))
    kind = {4: "no_permission", 15: "lost"}.get(run.rc or 0, "failed")
    return Outcome(kind, f"nvidia-smi exited with {run.rc}: {meaning}" + (f" ({text[:160]})" if text else ""))


def perform(call: Call, plans: t.Sequence[tuple[Gpu, t.Sequence[Step]]]) -> dict[str, list[tuple[Step, Outcome]]]:
    """Do every GPU's steps, in its order. GPUs that want the same share a call; where it leaves one in doubt, that one
    is asked alone. What one GPU refuses does not keep the others from theirs."""
    done: dict[str, list[tuple[Step, Outcome]]] = {gpu.uuid: [] for gpu, _steps in plans}
    waiting = [(gpu, list(steps)) for gpu, steps in plans if steps]
    while waiting:
        first = waiting[0][1][0]
        group = [gpu for gpu, steps in waiting if steps[0].arguments == first.arguments]
        together = call(["-i", ",".join(gpu.uuid for gpu in group), *first.arguments])
        outcomes = judge(together, group)
        for gpu in group:
            outcome = outcomes[gpu.uuid]
            if outcome is None and len(group) == 1:
                outcome = _unresolved(together)
            elif outcome is None:
                run = call(["-i", gpu.uuid, *first.arguments])
                outcome = judge(run, [gpu])[gpu.uuid] or _unresolved(run)
            done[gpu.uuid].append((first, outcome))
        members = {gpu.uuid for gpu in group}
        waiting = [(gpu, steps[1:] if gpu.uuid in members else steps) for gpu, steps in waiting]
        given_up = {uuid for uuid, results in done.items() if results and results[-1][1].kind in FINAL}
        waiting = [(gpu, steps) for gpu, steps in waiting if steps and gpu.uuid not in given_up]
    return done


__all__ = ["FIELDS", "FINAL", "REMEDIES", "Call", "Outcome", "judge", "observe", "perform", "read", "session"]
