# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Carries out what ``nvme_raid`` planned, and looks whether it came true.

Besides it, only ``bare`` and ``begun`` change anything on a node, and ``device``, which writes zeros.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import grp
import os
import pwd
import shutil
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Runner
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.bare import protect, release
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.begun import begin, end
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.device import (
    claim,
    clear,
    flush,
    require_empty,
    require_left,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.find import find
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.geometry import (
    Geometry,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import Begun, Node, Signature
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.outputs import parse_mdstat
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.plan import plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.read import Reader
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import Wanted, bad_input, wanted_from
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.steps import Plan, Step
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.verify import prove_geometry

_ROOT = Path("/")
# Mounted where the kernel enforces a policy, or would tell what it forbade.
_SELINUX = "/sys/fs/selinux"
_LOCK = "/run/lock/nvme_raid.lock"
_COMMAND_S = "600"
# Observing again after a step that brings something to light: assembling shows what an array holds.
_ROUNDS = 4
_PACKAGES = {"mdadm": "mdadm", "mkfs.xfs": "xfsprogs", "mkfs.ext4": "e2fsprogs", "wipefs": "util-linux"}


@dataclasses.dataclass
class Outcome:
    """What was done, or would be, and the plan that was found at the end."""

    plan: Plan
    steps: list[Step] = dataclasses.field(default_factory=list)
    geometry: Geometry | None = None


def _identity(name: str, kind: str) -> int:
    if str(name).isdigit():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid if kind == "user" else grp.getgrnam(name).gr_gid
    except KeyError:
        raise bad_input(
            f"There is no {kind} {name} on this node.", f"Create the {kind} first, or name another."
        ) from None


def wanted_here(settings: t.Mapping[str, t.Any]) -> Wanted:
    """The request with users as numbers and the mount point without links, which is how the kernel tells them."""
    values = dict(settings)
    values["owner"] = _identity(settings.get("owner") or "root", "user")
    values["group"] = _identity(settings.get("group") or "root", "group")
    wanted = wanted_from(values)
    parent, name = os.path.split(wanted.mount_point.rstrip("/"))
    return dataclasses.replace(wanted, mount_point=os.path.join(os.path.realpath(parent), name))


def settle(runner: Runner, timeout_s: int = 30) -> None:
    """Let udev, where there is one, finish with what changed, so that it neither holds devices nor misses their names."""
    if shutil.which("udevadm"):
        runner.run_command(["udevadm", "settle", f"--timeout={timeout_s}"])


class Keeper:
    """Brings the disks of this node to the wanted state."""

    def __init__(self, runner: Runner, wanted: Wanted) -> None:
        self.runner, self.wanted = runner, wanted
        self.created = ""
        self.seen: Plan | None = None
        self.unplanned: list[Step] = []
        self.only_look = False

    def run(self, *, check: bool) -> Outcome:
        """Plan, and carry it out unless in check mode, or asked for nothing but a look."""
        check = self.only_look = check or self.wanted.state == "inspected"
        for program in ("wipefs",):
            self._need(program)
        with _locked(check):
            outcome = Outcome(self._look())
            for _round in range(_ROUNDS):
                if check or not outcome.plan.steps:
                    break
                self._need_all(outcome.plan.steps)
                for step in outcome.plan.steps:
                    getattr(self, f"_{step.kind}")(step)
                    outcome.steps += [*self.unplanned, step]
                    self.unplanned = []
                    if step.kind == "assemble":
                        break
                # What a step answered, such as files that the mount hides, is not seen any more.
                told = outcome.plan.warnings
                outcome.plan = self._look()
                kept = tuple(dict.fromkeys((*told, *outcome.plan.warnings)))
                outcome.plan = dataclasses.replace(outcome.plan, warnings=kept)
            outcome.steps += outcome.plan.steps if check else []
            if not check and not outcome.plan.steps and (outcome.plan.found or self.wanted.state == "absent"):
                end(_ROOT, self.wanted.name)
            if not check and outcome.plan.steps:
                raise ClusterError(
                    "not_stable",
                    f"After all was done, this is still to be done: {'; '.join(s.what for s in outcome.plan.steps)}.",
                    "Something else changes the disks at the same time. See `journalctl -b`.",
                )
            outcome.geometry = prove_geometry(self._command, self.wanted, outcome.plan)
        return outcome

    def _look(self) -> Plan:
        node = Reader(self.runner, self.wanted).node()
        self.seen = plan(self.wanted, node if self.only_look else self._without_old_mark(node))
        return self.seen

    def _without_old_mark(self, node: Node) -> Node:
        """What is mounted may hold files, whoever mounted it: from now on it is none to be made again."""
        found = find(self.wanted, node) if node.begun else None
        if not found or not node.mounted(found.device):
            return node
        end(_ROOT, self.wanted.name)
        return dataclasses.replace(node, begun=None)

    def _begin(self, uuid: str, names: t.Collection[str] = (), *, bare: bool = False) -> None:
        """Mark what a power cut would leave half made as ours: an array by its UUID, a disk by all its identity.

        A disk without one has no mark, nor that of what was here before.
        """
        verdicts = self.seen.verdicts if self.seen else ()
        links = tuple(link for verdict in verdicts if verdict.disk.name in names for link in verdict.disk.identity)
        if uuid or links:
            begin(_ROOT, self.wanted.name, Begun(uuid, () if uuid else links, bare))
        else:
            end(_ROOT, self.wanted.name)

    # -- commands --------------------------------------------------------------------------------------------------

    def _command(self, *argv: str, what: str) -> str:
        rc, out, err = self.runner.run_command(["timeout", "-k", "10", _COMMAND_S, *argv])
        if rc != 0:
            told = " ".join((err.strip() or out.strip()).split())[-400:].rstrip(".")
            raise ClusterError(
                "command_failed",
                f"{what} failed: `{' '.join(argv)}`: {told}.",
                "See `journalctl -k` for errors of disks.",
            )
        return out

    def _need(self, program: str) -> None:
        if not shutil.which(program):
            raise ClusterError(
                "program_missing",
                f"{program} is not installed.",
                f"Install {_PACKAGES[program]}.",
            )

    def _need_all(self, steps: t.Sequence[Step]) -> None:
        """Before the first change: a missing program must not leave half of the work behind."""
        kinds = {step.kind for step in steps}
        if kinds & {"create", "assemble", "stop", "add"}:
            self._need("mdadm")
        if kinds & {"mkfs", "assemble"}:
            self._need(f"mkfs.{self.wanted.filesystem}")

    # -- one method per kind of step ---------------------------------------------------------------------------------

    def _create(self, step: Step) -> None:
        require_empty(self.runner, self.wanted, step.disks)
        wanted, level, uuid = self.wanted, step.value, os.urandom(16).hex()
        self._begin(uuid, bare=True)
        argv = ["mdadm", "--create", f"/dev/md/{wanted.name}", "--run", "--metadata=1.2", f"--name={wanted.name}"]
        argv += [f"--uuid={_grouped(uuid)}"]
        # Without a home host the array keeps its name on whatever machine, under whatever host name.
        argv += ["--homehost=any", f"--level={level[4:]}", f"--raid-devices={len(step.disks)}"]
        argv += [] if level == "raid1" else [f"--chunk={wanted.chunk_kib}"]
        argv += [] if level == "raid0" else ["--bitmap=internal"]
        self._command(*argv, *(f"/dev/{name}" for name in step.disks), what="Creating the array")
        settle(self.runner)
        self.created = self._running(f"/dev/md/{wanted.name}", step.disks)
        claim(self.created)
        self._wipe(self.created)
        self._begin(uuid)

    def _wipe(self, device: str) -> None:
        """Nothing that was there before may be taken for what mkfs made, after a power cut in it."""
        self._command("wipefs", "--all", "--quiet", device, what=f"Clearing {device}")
        flush(device)

    def _running(self, path: str, disks: t.Collection[str]) -> str:
        """The device of an array that really runs: mdadm has reported success without one."""
        device = os.path.basename(os.path.realpath(path))
        arrays = parse_mdstat(Path("/proc/mdstat").read_text(encoding="utf-8"))
        active, members = arrays.get(device, (False, frozenset()))
        if not active or not set(disks) <= members:
            raise ClusterError(
                "array_not_running",
                f"mdadm reported success, but in /proc/mdstat {self.wanted.name} does not run with {', '.join(disks)}.",
                "See `cat /proc/mdstat` and `journalctl -k`.",
            )
        return f"/dev/{device}"

    def _assemble(self, step: Step) -> None:
        if step.device:
            # What udev began and could not finish.
            self._command("mdadm", "--stop", f"/dev/{step.device}", what="Stopping the incomplete array")
        members = [f"/dev/{name}" for name in step.disks]
        argv = ["mdadm", "--assemble", f"/dev/md/{self.wanted.name}", f"--uuid={_grouped(step.value)}", "--run"]
        self._command(*argv, *members, what="Assembling the array")
        settle(self.runner)
        self._running(f"/dev/md/{self.wanted.name}", ())

    def _add(self, step: Step) -> None:
        require_empty(self.runner, self.wanted, step.disks)
        self._command(
            "mdadm", "--manage", f"/dev/{step.device}", "--add", f"/dev/{step.disks[0]}", what="Adding a disk"
        )
        settle(self.runner)

    def _mkfs(self, step: Step) -> None:
        device = step.device or self.created
        wanted = self.wanted
        # Forcing is safe: what the disks held was looked at before, and an array that was made a moment ago shows old data
        # again. Discarding first would only cost time: on terabytes up to minutes.
        if wanted.filesystem == "xfs":
            argv = ["mkfs.xfs", "-f", "-K", "-L", wanted.label]
        else:
            argv = ["mkfs.ext4", "-F", "-q", "-m", "0", "-E", "nodiscard", "-L", wanted.label]
        found = self.seen.found if self.seen else None
        if not step.device:
            claim(device)
        elif step.value == "again":
            # A file system that cannot be mounted, or one that mkfs has not ended. On a disk that counts as empty, nothing.
            known: tuple[Signature, ...] = (found.signatures or ()) if found and found.active else ()
            require_left(self.runner, os.path.basename(device), known)
            self._wipe(device)
        else:
            require_empty(self.runner, wanted, [os.path.basename(device)])
        if step.device:
            # Disks are named where the file system lies on one itself: what is left of an array is none of it any more.
            self._begin("" if step.disks or not found else found.uuid, step.disks)
        self._command(*argv, *wanted.mkfs_options, device, what="Making the file system")
        flush(device)
        end(_ROOT, wanted.name)
        settle(self.runner)
        self.created = device

    def _mount(self, step: Step) -> None:
        device = step.device or self.created
        point = self.wanted.mount_point
        protect(point)
        options = ",".join(self.wanted.mount_options) or "defaults"
        argv = ["mount", "-t", self.wanted.filesystem, "-o", options, device, point]
        try:
            self._command(*argv, what=f"Mounting {self.wanted.name}")
        except ClusterError as exc:
            if step.value != "begun":
                raise _not_mountable(exc) from exc
            again = f"make {self.wanted.filesystem} on {self.wanted.name} again: mkfs was interrupted"
            self._mkfs(dataclasses.replace(step, value="again"))
            self.unplanned.append(Step("mkfs", again, device))
            self._command(*argv, what=f"Mounting {self.wanted.name}")
        # From here on it may hold files, whatever becomes of the rest of this run.
        end(_ROOT, self.wanted.name)
        self._own(step)

    def _remount(self, step: Step) -> None:
        self._command("mount", "-o", f"remount,{step.value}", self.wanted.mount_point, what="Mounting again")

    def _own(self, _step: Step) -> None:
        """The root of the file system, never the directory below it."""
        if not os.path.ismount(self.wanted.mount_point):
            raise ClusterError(
                "not_mounted", f"Nothing is mounted at {self.wanted.mount_point}.", "See `journalctl -b`."
            )
        self._label()
        os.chown(self.wanted.mount_point, self.wanted.owner, self.wanted.group)
        os.chmod(self.wanted.mount_point, int(self.wanted.mode, 8))

    def _label(self) -> None:
        """A new root has no label of SELinux, and confined services may not enter it. What lies below it is its owners' own."""
        if os.path.isdir(_SELINUX) and shutil.which("restorecon"):
            self._command("restorecon", self.wanted.mount_point, what="Labeling the root of the file system")

    def _unmount(self, step: Step) -> None:
        rc, _out, err = self.runner.run_command(["timeout", "-k", "5", "60", "umount", step.value])
        if rc != 0:
            raise ClusterError(
                "in_use",
                f"{step.value} cannot be unmounted: {err.strip().rstrip('.')}.",
                f"End what uses it: `fuser -vm {step.value}`.",
            )

        self._release(step)

    def _release(self, step: Step) -> None:
        release(step.value)

    def _stop(self, step: Step) -> None:
        if step.value == "clear":
            # Otherwise the next array on these disks would show the old file system again.
            claim(step.device)
            self._command("wipefs", "--all", "--quiet", step.device, what="Clearing the array")
            clear(step.device)
        self._command("mdadm", "--stop", step.device, what="Stopping the array")
        settle(self.runner)

    def _erase(self, step: Step) -> None:
        for name in step.disks:
            path = f"/dev/{name}"
            claim(path)
            partitions = sorted(part for part in os.listdir(f"/sys/block/{name}") if part.startswith(name))
            # Signatures inside partitions first: they would come back with a partition at the same place.
            for device in [*(f"/dev/{part}" for part in partitions), path]:
                self._command("wipefs", "--all", "--force", "--quiet", device, what=f"Erasing {device}")
            clear(path)
            if partitions:
                self._command("blockdev", "--rereadpt", path, what=f"Reading the partitions of {path} again")
        settle(self.runner)


def _grouped(uuid: str) -> str:
    """A UUID as mdadm writes it."""
    return ":".join(uuid[start : start + 8] for start in range(0, 32, 8))


def _not_mountable(exc: ClusterError) -> ClusterError:
    return ClusterError(
        exc.kind,
        exc.message,
        "See `journalctl -k`. A file system that cannot be repaired is given up with `allow_data_loss: true` (entry point remove of "
        "the role, state absent of the module); the next run makes a new one.",
    )


@contextlib.contextmanager
def _locked(check: bool) -> t.Iterator[None]:
    """One at a time: the unit at boot and a play may meet."""
    if check or not os.path.isdir(os.path.dirname(_LOCK)):
        yield
        return
    with open(_LOCK, "w", encoding="utf-8") as handle:
        until = time.monotonic() + 120
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as exc:
                if time.monotonic() > until:
                    raise ClusterError(
                        "locked", "Another nvme_raid works on this node.", "Wait for it, and run again."
                    ) from exc
                time.sleep(0.5)
        yield


__all__ = ["Keeper", "Outcome", "settle", "wanted_here"]
