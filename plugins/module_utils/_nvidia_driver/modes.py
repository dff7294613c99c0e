# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""ECC and MIG modes of all GPUs: what has to change, what that takes, and doing it GPU by GPU.

* ECC changes with a reboot (nvidia-smi manual, ``--ecc-config``), and in practice with a reset of the GPU, too.
* MIG changes with a reset as well up to Ampere, which the driver tries by itself, and at once from Hopper on, which forget
  it with their driver (MIG User Guide, "Enable MIG Mode").
* Whoever has a GPU open prevents its reset, NVIDIA's own services included, and some hypervisors allow none (the same).
* ``nvidia-smi`` exits with 0 when it refuses a mode or leaves it pending, so that only reading it back tells; so does a reset.
"""

from __future__ import annotations

import dataclasses
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node import nvidia_smi as smi
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.nvidia_smi import Query, SmiReport, call, parse
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import kernel
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import read as node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.request import Request

#: What is asked: all that is known of GPUs, and their generation.
FIELDS = (*smi.FIELDS, "compute_cap")
#: How long nvidia-smi may take to change a mode or to reset GPUs, in seconds: it sets up every GPU on the way.
SETTING_TIMEOUT_S = 120.0
# Hopper. Ada, between Ampere and Hopper, has no MIG.
_LIVE_MIG = 9.0
_OPTIONS = {"ecc": "-e", "mig": "-mig"}
_CONSENT = "Set `allow_unload: true` to have the GPUs reset when nothing uses them, or `allow_reboot: true`"
_SHOWN = 300

Finding = dict[str, str]
Note = t.Callable[[str, str, str, str, str], None]


def _word(value: bool) -> str:
    return "on" if value else "off"


@dataclasses.dataclass(frozen=True)
class Change:
    """A GPU's mode that is not as declared, now or after the next reset. ``live``: another one takes effect at once."""

    index: int
    uuid: str
    mode: str
    value: bool
    current: bool
    pending: bool | None
    live: bool = False

    @property
    def keeps(self) -> bool:
        """Whether the mode is right, and only another one that is pending has to be taken back."""
        return self.current == self.value

    @property
    def disruptive(self) -> bool:
        """Whether a reset or a reboot has to come."""
        return not self.live and not self.keeps

    @property
    def waits(self) -> bool:
        """Whether it was set already, and only the reset or the reboot is missing."""
        return self.disruptive and self.pending == self.value

    def text(self) -> str:
        """For people: what it is to become."""
        return f"GPU {self.index}: {self.mode.upper()} {_word(self.value)}"

    def told(self) -> str:
        """The same, with what was done for it already."""
        return self.text() + (", which is pending" if self.waits else "")

    def finding(self) -> Finding:
        """For verify, which changes nothing."""
        name, remedy = self.mode.upper(), f"Run the role. {_CONSENT}."
        if self.keeps:
            message = f"GPU {self.index} will have {name} {_word(not self.value)} after a reset or a reboot."
            return _finding(self.mode, message, "Run the role, which takes that back.")
        until = " until a reset or a reboot" if self.pending == self.value else ""
        if self.live:
            remedy = "Run the role: GPUs of this generation forget the mode with their driver, and change it at once."
        return _finding(self.mode, f"GPU {self.index} has {name} {_word(self.current)}{until}.", remedy)


def _finding(what: str, message: str, remedy: str) -> Finding:
    return {"verdict": "fail", "what": what, "message": message, "remedy": remedy}


def _number(text: str | None) -> float:
    try:
        return float(text or "")
    except ValueError:
        return 0.0


def plan(report: SmiReport, ecc: str, mig: str) -> tuple[list[Change], list[Finding]]:
    """What has to change, and the GPUs that do not have a mode that is to be on. One without it has it off."""
    changes, unsupported = [], []
    for mode, wanted in (("ecc", ecc), ("mig", mig)):
        for gpu in report.gpus if wanted != "keep" else []:
            value, have = wanted == "enabled", gpu[mode]
            cells = report.cells.get(gpu["uuid"], {})
            if have["enabled"] is None:
                if value:
                    message = f"GPU {gpu['index']} ({gpu['name']}) has no {mode.upper()} mode."
                    remedy = f"Set `{mode}: keep` for this node."
                    unsupported.append(_finding(f"gpu {gpu['index']}", message, remedy))
            elif have["enabled"] != value or have["pending"] not in (None, value):
                live = mode == "mig" and _number(cells.get("compute_cap")) >= _LIVE_MIG
                about = (gpu["index"], gpu["uuid"], mode, value)
                changes.append(Change(*about, have["enabled"], have["pending"], live))
    return changes, unsupported


def silent(report: SmiReport) -> list[Finding]:
    """GPUs whose modes nobody knows, because they do not answer."""
    return [_finding(one["what"], f"{one['what']}: {one['reason']}.", one["remedy"]) for one in report.unknown]


class Modes:
    """One run on one node. ``problems`` and ``reboot`` tell what is left after it."""

    def __init__(self, request: Request, host: Host, root: Path, note: Note, drain: t.Callable[[], None]):
        self.request, self.host, self.root, self.note, self.drain = request, host, root, note, drain
        self.kind, self.found = "mode_failed", False
        self.problems: list[Finding] = []
        self.reboot: list[str] = []
        self._said: dict[tuple[str, str], str] = {}

    def ask(self) -> SmiReport:
        """What the GPUs have now."""
        return parse(Query(self.request.nvidia_smi, self.request.nvidia_smi_timeout_s, FIELDS).result())

    def run(self, *, check: bool, expected: bool) -> None:
        """Bring all GPUs to their modes, as far as they allow it and it was agreed to."""
        report = self.ask()
        # A driver that is still to come has no modes to tell; without GPUs there are none.
        if (check and report.state != "answered") or not (report.gpus or expected):
            return
        self.found = True
        changes, self.problems = plan(report, self.request.ecc, self.request.mig)
        if self.problems:
            self.kind = "unsupported_mode"
        self._check_consent(changes)
        lost = silent(report)
        if not all(change.keeps for change in changes):
            self.drain()
        if changes and check:
            self._foretell(changes)
        elif changes:
            self._apply(changes)
        if lost:
            self._problems("mode_failed", lost)

    def _problems(self, kind: str, found: list[Finding]) -> None:
        self.kind = kind if not self.problems or self.kind == kind else "mode_failed"
        self.problems += found

    def _check_consent(self, changes: t.Sequence[Change]) -> None:
        needs = [change.told() for change in changes if change.disruptive]
        if needs and not (self.request.allow_unload or self.request.allow_reboot):
            raise ClusterError(
                "consent_missing",
                f"Modes of the GPUs have to change, which takes a reset of the GPUs or a reboot: {'; '.join(needs)}. "
                "The modes were not changed.",
                f"{_CONSENT}, or `ecc` and `mig` to keep.",
            )

    def _foretell(self, changes: t.Sequence[Change]) -> None:
        first = [change for change in changes if not change.live]
        for change in first:
            self._note(change)
        if not self.request.allow_unload:
            self._boot([change for change in first if change.disruptive])
        for change in changes:
            if change.live:
                self._note(change)

    def _note(self, change: Change) -> None:
        word, new = _word(change.value), f"{int(change.value)}\n"
        if change.keeps:
            what, before, after = f"keep {word}", f"pending {int(not change.value)}\n", f"pending {new}"
        else:
            what, before, after = word, f"{int(change.current)}\n", new
        self.note("gpu", f"{change.index} {change.mode}", what, before, after)

    def _boot(self, waiting: t.Sequence[Change]) -> None:
        if waiting:
            self.reboot = ["; ".join(change.told() for change in waiting)]
            self.note("node", "reboot", self.reboot[0], "", "")

    def _apply(self, changes: list[Change]) -> None:
        first, last = [one for one in changes if not one.live], [one for one in changes if one.live]
        disruptive = any(change.disruptive for change in first)
        # Without consent to take the GPUs from anybody, what runs goes on, and the reboot does it.
        takes = disruptive and self.request.allow_unload
        stopped = kernel.stop_holders(self.host) if takes else []
        modules = kernel.set_aside(self.host, self.root) if takes else []
        # Set without the daemon it holds GPUs open as well.
        persistent = [gpu["uuid"] for gpu in self.ask().gpus if gpu["persistence"]] if takes else []
        try:
            self._persist(persistent, "0")
            taken, waiting = self._settle(first, self._set(first))
            if waiting and takes:
                waiting = self._reset(waiting)
        finally:
            kernel.bring_back(self.host, modules)
            self._persist(persistent, "1")
            kernel.start(self.host, stopped)
        left = {(change.uuid, change.mode) for change in waiting}
        for change in taken:
            # One that was pending before and is still was not changed.
            if not change.waits or self.request.allow_reboot or (change.uuid, change.mode) not in left:
                self._note(change)
        if waiting and self.request.allow_reboot:
            self._boot(waiting)
        elif waiting:
            self._problems("mode_pending", [self._waits(change) for change in waiting])
        # These would forget their mode again in a reboot: then they get it afterwards.
        if not self.reboot:
            for change in self._settle(last, self._set(last))[0]:
                self._note(change)

    def _persist(self, uuids: t.Sequence[str], value: str) -> None:
        if uuids:
            call(self.request.nvidia_smi, ["-i", ",".join(uuids), "-pm", value], SETTING_TIMEOUT_S)

    def _set(self, changes: t.Sequence[Change]) -> SmiReport | None:
        asked = [change for change in changes if not change.waits]
        for change in asked:
            self._tell(change.mode, [change], [_OPTIONS[change.mode], str(int(change.value))])
        return self.ask() if changes else None

    def _settle(self, changes: t.Sequence[Change], report: SmiReport | None) -> tuple[list[Change], list[Change]]:
        """Complain of what was not taken; return what was, and what of that is pending."""
        taken, waiting, refused = [], [], []
        now = {gpu["uuid"]: gpu for gpu in report.gpus} if report else {}
        for change in changes:
            have = now.get(change.uuid, {}).get(change.mode, {"enabled": None, "pending": None})
            effective = have["enabled"] == change.value
            if effective and have["pending"] in (None, change.value):
                taken.append(change)
            elif have["pending"] == change.value and not change.live:
                taken.append(change)
                waiting.append(dataclasses.replace(change, pending=change.value))
            else:
                refused.append(change)
        if refused:
            self._problems("mode_failed", [self._refused(change) for change in refused])
        return taken, waiting

    def _reset(self, waiting: list[Change]) -> list[Change]:
        """Reset the GPUs together, as those without Fabric Manager must be, and then one by one what is left."""
        for together in (True, False):
            uuids = list(dict.fromkeys(change.uuid for change in waiting))
            if not together and len(uuids) < 2:
                break
            for group in [uuids] if together else [[uuid] for uuid in uuids]:
                self._tell("reset", [change for change in waiting if change.uuid in group], ["--gpu-reset"])
            now = {gpu["uuid"]: gpu for gpu in self.ask().gpus}
            waiting = [one for one in waiting if now.get(one.uuid, {}).get(one.mode, {}).get("enabled") != one.value]
            if not waiting:
                break
        return waiting

    def _tell(self, about: str, changes: t.Sequence[Change], words: list[str]) -> None:
        uuids = ",".join(dict.fromkeys(change.uuid for change in changes))
        run = call(self.request.nvidia_smi, ["-i", uuids, *words], SETTING_TIMEOUT_S)
        said = " ".join((run.stdout + run.stderr).split())[:_SHOWN]
        if run.timed_out:
            said = f"it did not come back within {SETTING_TIMEOUT_S:g} s and was ended"
        for change in changes:
            self._said[change.uuid, about] = said or f"exit status {run.rc}"

    def _refused(self, change: Change) -> Finding:
        message = (
            f"{change.text()} was not taken (nvidia-smi: {self._said.get((change.uuid, change.mode), 'no answer')})."
        )
        return _finding(
            f"gpu {change.index}", message, "See what it says, end programs that use the GPU, and see dmesg."
        )

    def _waits(self, change: Change) -> Finding:
        users = node.gpu_users(self.root)
        used = f" GPUs are used by {', '.join(users[:8])}." if users else ""
        said = self._said.get((change.uuid, "reset"), "no answer")
        message = f"{change.text()} is pending: the GPU could not be reset (nvidia-smi: {said}).{used}"
        remedy = "End the programs that use the GPU, or set `allow_reboot: true`."
        return _finding(f"gpu {change.index}", message, remedy)


__all__ = ["FIELDS", "SETTING_TIMEOUT_S", "Change", "Modes", "plan", "silent"]
