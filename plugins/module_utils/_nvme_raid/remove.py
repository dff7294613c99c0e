# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What must be done to give the disks back empty. Files are lost only with consent."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.compare import foreign_content
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.find import Found, is_wanted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.judge import Verdict, may_be_taken, why_not
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import Node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.reasons import (
    CANNOT_BE_READ,
    describe,
    not_yet,
    unread_reason,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import Wanted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.steps import Plan, Step, release


def plan_absent(wanted: Wanted, node: Node, found: Found | None, verdicts: tuple[Verdict, ...]) -> Plan:
    """Take the array away. Files on it, or content that cannot be looked at, are lost only with consent."""
    released = _release(wanted, node)
    if found is None:
        return Plan(verdicts, None, (*_remains(wanted, node, verdicts), *released))
    strange = [
        entry for entry in verdicts if entry.disk.name in found.members and (entry.use != "ours" or entry.reason)
    ]
    late = [entry.disk for entry in strange if entry.disk.unread or entry.disk.signatures is None]
    if late:
        raise not_yet(f"{'; '.join(f'{disk.stable} {unread_reason(disk) or CANNOT_BE_READ}' for disk in late)}.")
    if strange:
        raise ClusterError(
            "in_use", f"{why_not(strange)}. Nothing was changed.", "End what uses it, or widen the selector."
        )
    if found.active and found.signatures and not is_wanted(wanted, found.signatures):
        told = " and ".join(describe(signature) for signature in found.signatures or ())
        raise foreign_content(wanted, f"something else: it {told}")
    mounts = node.mounted(found.device) if found.device else []
    others = [mount.point for mount in mounts if mount.point != wanted.mount_point.rstrip("/") or mount.root != "/"]
    if others or (found.array and found.array.holders):
        users = others or list(found.array.holders if found.array else ())
        raise ClusterError("in_use", f"{wanted.name} is also in use at {', '.join(users)}.", "End that first.")
    empty = (bool(mounts) and not node.directory.holds_files) or (
        found.active and found.signatures == () and found.blank
    )
    if not empty and not wanted.allow_data_loss:
        what = "holds files" if mounts else "is not mounted, so that its files cannot be looked at"
        raise ClusterError(
            "consent_missing",
            f"{wanted.name} {what}. Nothing was changed.",
            "Set `allow_data_loss: true` to remove it with everything on it.",
        )
    steps = [Step("unmount", f"unmount {mount.point}", value=mount.point) for mount in mounts]
    if found.kind == "array":
        steps.append(Step("stop", f"stop {wanted.name}", f"/dev/{found.device}", value="clear" if found.active else ""))
    members = tuple(sorted(found.members))
    marked = "marked" if found.kind == "single" else ""
    steps.append(Step("erase", f"remove {wanted.name} from {', '.join(members)}", disks=members, value=marked))
    return Plan(verdicts, found, (*steps, *released))


def _remains(wanted: Wanted, node: Node, verdicts: tuple[Verdict, ...]) -> tuple[Step, ...]:
    """What making it or removing it left on its one disk when the power failed: no file system, and none of somebody else's."""
    disks = tuple(
        entry.disk.name
        for entry in verdicts
        if entry.use == "free" and not entry.disk.blank and may_be_taken(entry.disk, node.begun)
    )
    if not disks:
        return ()
    return (
        Step("erase", f"remove what is left of {wanted.name} from {', '.join(disks)}", disks=disks, value="marked"),
    )


def _release(wanted: Wanted, node: Node) -> tuple[Step, ...]:
    """The bare mount point was kept from being written to; unmounting ends that by itself."""
    if not node.directory.immutable:
        return ()
    return (release(wanted.mount_point.rstrip("/")),)


__all__ = ["plan_absent"]
