# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What must be done with an array, or a file system on one disk, that is there."""

from __future__ import annotations

import dataclasses

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.compare import (
    check_shape,
    conflict,
    foreign_content,
    missing,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.create import start_anew
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.find import Found, is_wanted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.judge import Verdict, given_up
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import Node, plain_uuid
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.mount import plan_mount
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.reasons import describe, names_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import Wanted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.steps import Plan, Step


def plan_existing(wanted: Wanted, node: Node, found: Found, verdicts: tuple[Verdict, ...]) -> Plan:
    if not found.active and not can_run(found):
        members = [verdict for verdict in verdicts if verdict.disk.name in found.members]
        if wanted.state == "present" and members and all(given_up(entry.disk, wanted, node) for entry in members):
            return start_anew(wanted, node, found, verdicts)
        raise missing(wanted, found, node, verdicts)
    if found.array and found.array.failed:
        raise missing(wanted, found, node, verdicts)
    check_shape(wanted, found, verdicts)
    steps: list[Step] = []
    if found.active:
        steps += _plan_filesystem(wanted, node, found)
    else:
        stop = found.device
        what = f"assemble {wanted.name} from {', '.join(sorted(found.members))}"
        steps.append(Step("assemble", what, stop, found.members, found.uuid))
        steps.append(Step("mount", f"mount {wanted.name} at {wanted.mount_point}"))
    notes, degraded = _look_at_redundancy(wanted, found, verdicts, steps)
    return Plan(verdicts, found, tuple(steps), notes, degraded)


def can_run(found: Found) -> bool:
    """Whether the disks that are there suffice to start the array; which ones are copies only md knows exactly."""
    if len(found.members) >= found.disks:
        return True
    if found.level == "raid1":
        return bool(found.members)
    return found.level == "raid10" and 2 * len(found.members) >= found.disks


def _look_at_redundancy(
    wanted: Wanted, found: Found, verdicts: tuple[Verdict, ...], steps: list[Step]
) -> tuple[tuple[str, ...], str]:
    """Notes, and what is wrong with an array that runs with fewer disks than it should have."""
    free = [verdict.disk for verdict in verdicts if verdict.use == "free"]
    lost = found.disks - len(found.members)
    if found.array and found.array.degraded:
        lost = max(lost, found.array.degraded)
    if found.kind != "single" and lost > 0:
        rebuilding = bool(found.array and found.array.action in ("recover", "resync"))
        if free and found.active and not rebuilding and wanted.state == "present":
            for disk in free[:lost]:
                steps.insert(0, Step("add", f"add {disk.name} to {wanted.name}", found.device, (disk.name,)))
        text = f"{wanted.name} is degraded: {found.disks - lost} of its {found.disks} disks work"
        return (), (f"{text}, it is being rebuilt" if rebuilding else text) + _thrown_out(found, verdicts)
    if free and wanted.level != "single":
        return (f"{names_of(free)} matches, but {wanted.name} was made without it",), ""
    return (), ""


def _thrown_out(found: Found, verdicts: tuple[Verdict, ...]) -> str:
    """Disks that were members of the running array, as they say themselves, and that md does not use any more."""
    gone = [
        verdict.disk
        for verdict in verdicts
        if found.active
        and verdict.disk.name not in found.members
        and any(
            sign.type == "linux_raid_member" and plain_uuid(sign.uuid) == found.uuid
            for sign in verdict.disk.signatures or ()
        )
    ]
    if not gone:
        return ""
    paths = " ".join(disk.path for disk in gone)
    return (
        f". {names_of(gone)} was a disk of it and is not used any more: see `journalctl -k` for the reason; `mdadm /dev/{found.device} "
        f"--re-add {paths}` takes it back, or empty it (`blkdiscard --zeroout`), and it is added"
    )


def _plan_filesystem(wanted: Wanted, node: Node, found: Found) -> list[Step]:
    """What is missing between a running array and a directory that can be used."""
    device = f"/dev/{found.device}"
    steps: list[Step] = []
    if found.signatures is None:
        raise ClusterError("unreadable", f"{device} cannot be read.", "See the kernel log: `journalctl -k`.")
    if found.array and found.array.holders:
        raise conflict(f"{wanted.name} is in use by {', '.join(found.array.holders)}.")
    again = found.half_made and is_wanted(wanted, found.signatures) and not node.mounted(found.device)
    if again and not found.begun:
        raise foreign_content(wanted, "an xfs that mkfs.xfs has not ended, and no mark says that it was begun here")
    # The data of an array begins behind that of its disks: what begins there may look like a file system of ours.
    again = again or bool(found.begun and node.begun and node.begun.bare)
    if not found.signatures or again:
        if not (found.blank or found.begun or again) and wanted.blank_check == "zeros":
            raise foreign_content(wanted, "data that is not recognized")
        if wanted.state == "assembled":
            raise ClusterError(
                "no_filesystem",
                f"{wanted.name} holds no file system, and state assembled makes none.",
                "Use state present.",
            )
        what = f"make {wanted.filesystem} on {wanted.name}"
        # Of an array the disks stay what they are.
        disks = found.members if found.kind == "single" else ()
        if again or found.begun:
            steps.append(Step("mkfs", f"{what} again: mkfs was interrupted", device, disks, "again"))
        else:
            steps.append(Step("mkfs", what, device, disks))
    elif not is_wanted(wanted, found.signatures):
        told = " and ".join(describe(signature) for signature in found.signatures)
        raise foreign_content(wanted, f"something else: it {told}")
    mount = plan_mount(wanted, node, found.device)
    if found.begun and wanted.state == "present" and not steps:
        # mkfs ended, and what it wrote may still not have reached the disks.
        mount = [dataclasses.replace(step, value="begun") if step.kind == "mount" else step for step in mount]
    return steps + mount


__all__ = ["can_run", "plan_existing"]
