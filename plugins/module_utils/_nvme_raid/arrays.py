# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Steps on md arrays and the disks that they are made of: create, assemble, add, stop, erase."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.device import claim, clear, require_empty
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.outputs import parse_mdstat
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.steps import Step
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.work import Work

_MEMBER = "linux_raid_member"


def create(work: Work, step: Step) -> None:
    """Make the array that is in ``step.value`` of empty disks; ``work.created`` is its device."""
    require_empty(work.runner, work.wanted, step.disks)
    wanted, level, uuid = work.wanted, step.value, os.urandom(16).hex()
    work.begin(uuid, bare=True)
    argv = ["mdadm", "--create", f"/dev/md/{wanted.name}", "--run", "--metadata=1.2", f"--name={wanted.name}"]
    argv += [f"--uuid={_grouped(uuid)}"]
    # Without a home host the array keeps its name on whatever machine, under whatever host name.
    argv += ["--homehost=any", f"--level={level[4:]}", f"--raid-devices={len(step.disks)}"]
    argv += [] if level == "raid1" else [f"--chunk={wanted.chunk_kib}"]
    argv += [] if level == "raid0" else ["--bitmap=internal"]
    work.command(*argv, *(f"/dev/{name}" for name in step.disks), what="Creating the array")
    work.settle()
    work.created = _running(work, f"/dev/md/{wanted.name}", step.disks)
    claim(work.created)
    work.wipe(work.created)
    work.begin(uuid)


def assemble(work: Work, step: Step) -> None:
    """Start the array whose UUID is in ``step.value``."""
    if step.device:
        # What udev began and could not finish.
        work.command("mdadm", "--stop", f"/dev/{step.device}", what="Stopping the incomplete array")
    members = [f"/dev/{name}" for name in step.disks]
    argv = ["mdadm", "--assemble", f"/dev/md/{work.wanted.name}", f"--uuid={_grouped(step.value)}", "--run"]
    work.command(*argv, *members, what="Assembling the array")
    work.settle()
    _running(work, f"/dev/md/{work.wanted.name}", ())


def add(work: Work, step: Step) -> None:
    """Give an empty disk to an array that lost one."""
    require_empty(work.runner, work.wanted, step.disks)
    work.command("mdadm", "--manage", f"/dev/{step.device}", "--add", f"/dev/{step.disks[0]}", what="Adding a disk")
    work.settle()


def stop(work: Work, step: Step) -> None:
    """Stop the array, and empty it first where ``step.value`` says so."""
    if step.value == "clear":
        # Otherwise the next array on these disks would show the old file system again.
        claim(step.device)
        work.wipe(step.device)
        clear(step.device)
    work.command("mdadm", "--stop", step.device, what="Stopping the array")
    work.settle()


def erase(work: Work, step: Step) -> None:
    """Make disks count as empty. After a power cut in it, what is left of ours is known as ours by what it says itself, or by the mark.

    A member of an array says so until it is empty. What holds files says nothing from the start: half of it must never be mounted.
    """
    verdicts = work.seen.verdicts if work.seen else ()
    members = {entry.disk.name for entry in verdicts if any(s.type == _MEMBER for s in entry.disk.signatures or ())}
    if step.value == "marked":
        work.begin("", step.disks)
    for name in step.disks:
        path = f"/dev/{name}"
        claim(path)
        partitions = sorted(part for part in os.listdir(f"/sys/block/{name}") if part.startswith(name))
        # Signatures inside partitions first: they would come back with a partition at the same place.
        for device in [*(f"/dev/{part}" for part in partitions), *([] if name in members else [path])]:
            work.wipe(device, "--force")
        clear(path)
        if name in members:
            # Such as a superblock of md that is not at the start.
            work.wipe(path, "--force")
        if partitions:
            work.command("blockdev", "--rereadpt", path, what=f"Reading the partitions of {path} again")
    work.settle()


def _running(work: Work, path: str, disks: t.Collection[str]) -> str:
    """The device of an array that really runs: mdadm has reported success without one."""
    device = os.path.basename(os.path.realpath(path))
    arrays = parse_mdstat(Path("/proc/mdstat").read_text(encoding="utf-8"))
    active, members = arrays.get(device, (False, frozenset()))
    if not active or not set(disks) <= members:
        raise ClusterError(
            "array_not_running",
            f"mdadm reported success, but in /proc/mdstat {work.wanted.name} does not run with {', '.join(disks)}.",
            "See `cat /proc/mdstat` and `journalctl -k`.",
        )
    return f"/dev/{device}"


def _grouped(uuid: str) -> str:
    """A UUID as mdadm writes it."""
    return ":".join(uuid[start : start + 8] for start in range(0, 32, 8))


__all__ = ["add", "assemble", "create", "erase", "stop"]
