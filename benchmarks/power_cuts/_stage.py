# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings a machine to where a cut is to fall, cuts, boots, and looks: everything around a cut but the judgement."""

from __future__ import annotations

import json
import pathlib
import random
import shlex
import subprocess
import threading
import time
import typing as t

import _guest
from _cuts import GROWTH_S, Cut
from _judge import AFTER, Outcome, Seen, judge, where_it_fell
from _machine import FOREIGN, LabOfCuts, Machine
from lab.vm import state

_MODULE = "hpcai.gpu_cluster.nvme_raid"
_LOOK_S = 0.005
# A play needs half a minute until its module begins, a boot a minute until the unit does.
_BEGIN_S = 300.0
_FIRST_RECORDS = 5
_MANY = 1_000_000
#: What each phase begins and ends with, in words of the machine.
_SPANS = {
    "create": ("mdadm --create begin", "mkfs begin"),
    "mkfs": ("mkfs begin", "mount end"),
    "removal": ("umount begin", ""),
}


class NothingToCutError(Exception):
    """The phase did not come: what should have begun it ended before."""


def settings_of(shape: str, members: t.Sequence[str]) -> dict[str, t.Any]:
    """What the role is told for a shape. Foreign disks always match its selector."""
    count = {"raid0": len(members), "raid10": 4, "single": 1}[shape]
    chosen = [f"/dev/disk/by-id/virtio-{serial}" for serial in (*members[:count], *FOREIGN)]
    filesystem = "ext4" if shape == "raid10" else "xfs"
    return {
        "level": shape,
        "expected_disks": count,
        "by_id": chosen,
        "filesystem": filesystem,
        "models": [],
        "transports": ["virtio"],
    }


def of_role(settings: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The same as variables of the role."""
    return {f"nvme_raid_{name}": value for name, value in {**settings, "wait_s": 5}.items()}


class _Work(threading.Thread):
    """Something that is under way on a machine until its power is cut. How it ends is nobody's business then."""

    def __init__(self, work: t.Callable[[], t.Any]) -> None:
        super().__init__(daemon=True)
        self._work: t.Callable[[], t.Any] = work
        self.answer: t.Any = None
        self.ended = False  # before the cut
        self.start()

    def run(self) -> None:
        try:
            self.answer = self._work()
        except (AssertionError, subprocess.SubprocessError, OSError, ValueError) as exc:
            self.answer = exc

    def look(self) -> None:
        """Note whether it has ended."""
        self.ended = not self.is_alive()


class Stage:
    """A machine with the role installed, and what is known of the file system on it."""

    def __init__(self, lab: LabOfCuts, node: str, evidence: pathlib.Path) -> None:
        self.machine, self.lab, self.node, self.evidence = Machine(lab, node), lab, node, evidence
        self.shape = ""
        self.settings: dict[str, t.Any] = {}
        self.made = False  # the file system is there
        self.run = ""  # of the writer whose records are on it
        self.acknowledged = 0
        self.length_s: dict[str, float] = {"growth": GROWTH_S}

    # -- before a cut ----------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """The role installs its unit, the programs of its steps tell of them, and one undisturbed run tells how long phases take."""
        self.machine.boot()
        done = self.lab.role(
            "nvme_raid", "install", limit=self.node, **of_role(settings_of("raid0", self.machine.members))
        )
        if done.rc:
            raise state.LabError(f"The role cannot be installed on {self.node}.\n{done.output}")
        self.lab.shell(self.node, _guest.announce())
        self.machine.off()
        self.machine.keep_system()
        self.machine.boot()
        self._shape("raid0")
        self._measure()

    def _measure(self) -> None:
        begun: dict[str, float] = {}
        before = len(self.machine.told())
        watch = threading.Event()

        def look() -> None:
            while not watch.is_set():
                for step in self.machine.told()[before:]:
                    begun.setdefault(step, time.monotonic())
                time.sleep(_LOOK_S)

        watcher = threading.Thread(target=look, daemon=True)
        watcher.start()
        try:
            self._create()
            self._write(_FIRST_RECORDS)
            self._remove()
            begun[""] = time.monotonic()
        finally:
            watch.set()
            watcher.join()
        for phase, (first, last) in _SPANS.items():
            self.length_s[phase] = begun[last] - begun[first]

    def anew(self) -> None:
        """After something went wrong: the machine as it was when the role had been installed, with empty disks."""
        self.machine.cut("none", random.Random(0))
        self.machine.restore_system()
        self.machine.empty_members()
        self.machine.boot()
        self.shape, self.made, self.run, self.acknowledged = "", False, "", 0

    def _shape(self, shape: str) -> None:
        """What the unit at boot is told from now on, as the role would have written it."""
        if shape == self.shape:
            return
        self._empty()
        self.shape, self.settings = shape, settings_of(shape, self.machine.members)
        told = json.loads(self.lab.run(self.node, "cat", _guest.SETTINGS))
        text = json.dumps({**told, **self.settings})
        self.lab.run(self.node, "sh", "-euc", f'printf %s "$1" > {_guest.SETTINGS}; sync', "settings", text)

    def _empty(self) -> None:
        self.lab.run(self.node, "sh", "-euc", _guest.WIPE, "wipe", *self.machine.members)
        self.made, self.run, self.acknowledged = False, "", 0

    def module(self, module_state: str, **consent: bool) -> dict[str, t.Any]:
        """The role's module, as the role calls it."""
        options = {"mount_point": _guest.POINT, **self.settings, "state": module_state, **consent}
        return self.lab.module(_MODULE, options, node=self.node)

    def _create(self) -> None:
        done = self.module("present")
        if done["failed"]:
            raise state.LabError(f"{self.node} cannot make {self.shape}: {done['msg']}")
        self.made = True

    def _remove(self) -> None:
        done = self.module("absent", allow_data_loss=True)
        if done["failed"]:
            raise state.LabError(f"{self.node} cannot remove {self.shape}: {done['msg']}")
        self.made, self.run, self.acknowledged = False, "", 0

    def _writer(self, records: int) -> subprocess.Popen[str]:
        words = ["python3", "-c", _guest.WRITER, f"{_guest.POINT}/{self.run}", self.run, str(records)]
        return subprocess.Popen(
            self.lab.ssh_argv(self.node, shlex.join(words)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )

    def _write(self, records: int) -> None:
        """Some records, undisturbed."""
        self.run = f"run-{random.Random().getrandbits(32):08x}"
        self._listen(self._writer(records))

    def _listen(self, writer: subprocess.Popen[str]) -> None:
        """Count what the writer says is safe, until it ends."""
        assert writer.stdout
        for line in writer.stdout:
            if line.endswith("\n"):
                self.acknowledged = int(line)
        writer.wait()

    # -- a cut -----------------------------------------------------------------------------------------------------

    def play(self, cut: Cut) -> Outcome:
        """Make one cut, and see what comes of it."""
        self._shape(cut.shape)
        if cut.phase in ("create", "mkfs"):
            if self.made:
                self._empty()
        else:
            if not self.made:
                self._create()
            if not self.acknowledged and cut.phase == "removal":
                self._write(_FIRST_RECORDS)
        self.lab.run(self.node, "sync")
        if cut.maker == "boot":
            self.machine.off()
        where, others = self._cut(cut)
        self.machine.keep(self.evidence / f"{self.node}-last")
        others += self.machine.changed_foreign()
        boot_s = self.machine.boot()
        seen = self._look(cut, others)
        verdict = judge(cut.phase, seen)
        return Outcome(cut, where, verdict, _note(seen, boot_s))

    def _members(self) -> list[str]:
        return self.machine.members[: self.settings["expected_disks"]]

    def _others(self) -> list[str]:
        return [*self.machine.members[self.settings["expected_disks"] :], *FOREIGN]

    def _cut(self, cut: Cut) -> tuple[str, list[str]]:
        """Begin the phase and cut the power in it. Returns where it fell, and the disks that it had no business with and changed."""
        rng = random.Random(cut.seed)
        before = {serial: 0 if cut.maker == "boot" else self.machine.said(serial) for serial in self._others()}
        work: _Work | None = None
        if cut.phase == "growth":
            self._grow(cut)
        else:
            work = self._step(cut)
        # Nothing comes between the moment and the cut.
        self.machine.cut(cut.loss, rng)
        ended = work is not None and work.ended
        steps = self.machine.told()[self._told :]
        changed = [serial for serial in before if self.machine.said(serial) != before[serial]]
        return AFTER if ended else where_it_fell(cut.phase, steps[-1] if steps else ""), changed

    def _grow(self, cut: Cut) -> None:
        """Let the writer begin, and wait for the moment."""
        self.run, self.acknowledged, self._told = f"run-{cut.number}", 0, 0
        writer = self._writer(_MANY)
        self._listener = threading.Thread(target=self._listen, args=(writer,), daemon=True)
        self._listener.start()
        until = time.monotonic() + _BEGIN_S
        while not self.acknowledged:
            if not self._listener.is_alive() or time.monotonic() > until:
                raise NothingToCutError("the writer wrote nothing")
            time.sleep(_LOOK_S)
        time.sleep(cut.fraction * self.length_s["growth"])

    def _step(self, cut: Cut) -> _Work | None:
        """Start what has the phase in it, wait for its first step, and then for the moment. Returns what is under way."""
        first, _last = _SPANS[cut.phase]
        self._told = 0 if cut.maker == "boot" else len(self.machine.told())
        work = self._start(cut)
        until = time.monotonic() + _BEGIN_S
        while first not in self.machine.told()[self._told :]:
            if (work and not work.is_alive()) or time.monotonic() > until:
                raise NothingToCutError(f"{first!r} never came: {work and work.answer}")
            time.sleep(_LOOK_S)
        time.sleep(cut.fraction * self.length_s[cut.phase])
        if work:
            work.look()
        return work

    def _start(self, cut: Cut) -> _Work | None:
        if cut.maker == "boot":
            self.machine.start()
            return None
        if cut.phase == "removal":
            return _Work(lambda: self.module("absent", allow_data_loss=True))
        if cut.maker == "play":
            return _Work(lambda: self.lab.role("nvme_raid", "configure", limit=self.node, **of_role(self.settings)))
        # What is remembered of an earlier start is forgotten: the disks are empty now.
        script = f"systemctl reset-failed {_guest.UNIT} || true; systemctl restart {_guest.UNIT}"
        return _Work(lambda: self.lab.shell(self.node, script, check=False))

    # -- after a cut -----------------------------------------------------------------------------------------------

    def _look(self, cut: Cut, changed: list[str]) -> Seen:
        if cut.phase == "growth":
            # What was on its way when the power went still counts.
            self._listener.join(30)
        found = self.machine.look()
        journal, refused = list(found["journal"]), ""
        if not found["mounted"] and cut.phase != "removal":
            done = self.module("present")
            refused = f"{done['msg']} {done.get('remedy', '')}" if done["failed"] else ""
            journal += [f"nvme_raid: {step}" for step in done.get("steps", [])]
            found = {**self.machine.look(), "failed": found["failed"]}
        readable = None
        if found["mounted"] and self.run:
            readable = int(self.machine.python(_guest.READER, f"{_guest.POINT}/{self.run}", self.run))
        elif found["mounted"]:
            readable = 0
        damage = self.lab.shell(self.node, _guest.CHECK) if found["mounted"] else ""
        unit = "the unit failed" if found["failed"] else ""
        given_back = self._given_back() if cut.phase == "removal" else ""
        self.made = True
        changed += [serial for serial in self._others() if self.machine.said(serial)]
        seen = Seen(
            members=tuple(self._members()),
            others=tuple(self._others()),
            acknowledged=self.acknowledged,
            readable=readable,
            mounted=tuple(found["mounted"]),
            journal=tuple(journal),
            damage=" ".join(damage.split()),
            written=tuple(dict.fromkeys(changed)),
            marked=bool(found["marked"]),
            play=refused or ("" if found["mounted"] else "; ".join(journal[-3:])),
            given_back=given_back,
            unit=unit,
        )
        if cut.phase == "removal" or seen.made:
            self.run, self.acknowledged = "", 0
        return seen

    def _given_back(self) -> str:
        """The removal is repeated with the consent that it had, and then all must be taken again without one."""
        for wanted, consent in (("absent", {"allow_data_loss": True}), ("present", {})):
            done = self.module(wanted, **consent)
            if done["failed"]:
                return f"state {wanted} after the removal was cut: {done['msg']} {done.get('remedy', '')}"
        return ""


def _note(seen: Seen, boot_s: float) -> str:
    acknowledged = f", {seen.acknowledged} records acknowledged and {seen.readable} there" if seen.acknowledged else ""
    last = [line.removeprefix("nvme_raid: ") for line in seen.journal if line.startswith("nvme_raid: ")]
    return f"booted in {boot_s:.0f} s{acknowledged}{seen.unit and f'; {seen.unit}'}: {'; '.join(last)}"


__all__ = ["NothingToCutError", "Stage"]
