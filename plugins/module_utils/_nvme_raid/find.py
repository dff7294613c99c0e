# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is there already of what is wanted."""

from __future__ import annotations

import dataclasses

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import Array, Disk, Node, Signature
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.reasons import (
    hard_reason,
    names_of,
    not_yet,
    origin,
    unread_reason,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import Wanted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.selector import matches


@dataclasses.dataclass(frozen=True)
class Found:
    """What is there already of what is wanted."""

    kind: str  # array: the kernel has it. members: only the disks tell of it. single: a file system on one disk
    device: str
    uuid: str
    level: str
    disks: int
    members: tuple[str, ...]
    active: bool
    array: Array | None = None
    signatures: tuple[Signature, ...] | None = ()
    blank: bool = True
    begun: bool = False  # its creation has not ended: it never held a file
    half_made: bool = False  # mkfs has not ended, by its own word


def find(wanted: Wanted, node: Node) -> Found | None:
    """What is there already, and whether its creation has ended: what is mounted may hold files, whatever mark is left."""
    found = _find(wanted, node)
    begun = node.begun
    if not found or not begun or node.mounted(found.device):
        return found
    if found.uuid or begun.uuid:
        return dataclasses.replace(found, begun=found.uuid == begun.uuid)
    disks = [disk for disk in node.disks if disk.name in found.members]
    return dataclasses.replace(found, begun=any(map(begun.names, disks)))


def _find(wanted: Wanted, node: Node) -> Found | None:
    """What is there already: by the array's name or UUID, or by the label of a file system on one disk."""

    def ours(name: str, uuid: str) -> bool:
        return uuid == wanted.uuid if wanted.uuid else name == wanted.name

    arrays = [array for array in node.arrays if ours(array.name, array.uuid)]
    waiting = [disk for disk in node.disks if disk.member and ours(disk.member.name, disk.member.uuid)]
    uuids = {array.uuid for array in arrays} | {disk.member.uuid for disk in waiting if disk.member}
    if len(uuids) > 1:
        raise ClusterError(
            "ambiguous",
            f"There are {len(uuids)} arrays named {wanted.name}: {', '.join(sorted(uuids))}.",
            "Say which one with `uuid`, or remove the other from its disks with `mdadm --zero-superblock`.",
        )
    if arrays:
        array = arrays[0]
        # A disk that lost its place in the array is named by its own superblock only.
        named = next((disk.member for disk in waiting if disk.member), None)
        disks = array.disks or (named.disks if named else 0)
        level = array.level or (named.level if named else "")
        members = array.members if array.active else tuple(disk.name for disk in waiting) or array.members
        return Found(
            "array", array.device, array.uuid, level, disks, members, array.active and not array.failed, array,
            array.signatures, array.blank, half_made=array.half_made,
        )  # fmt: skip
    if waiting:
        member = max((disk.member for disk in waiting if disk.member), key=lambda entry: entry.events)
        return Found(
            "members", "", member.uuid, member.level, member.disks, tuple(disk.name for disk in waiting), False
        )
    return _find_single(wanted, node)


def labeled(wanted: Wanted, node: Node) -> list[tuple[Disk, str]]:
    """Whole disks with a file system of the wanted type and label, and why one of them is none of ours."""
    if wanted.level not in ("single", "raid0"):
        return []
    candidates = [
        disk
        for disk in node.disks
        if not matches(disk, wanted)
        and not disk.partitions
        and len(disk.signatures or ()) == 1
        and is_wanted(wanted, disk.signatures)
    ]
    return [(disk, _not_ours(disk, wanted, node)) for disk in candidates]


def is_wanted(wanted: Wanted, signatures: tuple[Signature, ...] | None) -> bool:
    """Whether a device holds the file system that is wanted, and nothing else."""
    return {(entry.type, entry.label, entry.offset) for entry in signatures or ()} == {
        (wanted.filesystem, wanted.label, 0)
    }


def _not_ours(disk: Disk, wanted: Wanted, node: Node) -> str:
    """Why a file system with our label is somebody else's.

    Not because it is mounted where we mount it, and its folders elsewhere, nor because its disk became read-only.
    """
    if wanted.mount_point.rstrip("/") in disk.mounts:
        return origin(disk) or unread_reason(disk)
    return hard_reason(dataclasses.replace(disk, read_only=False), {disk.name}, node) or unread_reason(disk)


def _find_single(wanted: Wanted, node: Node) -> Found | None:
    """A file system of the wanted type and label that lies on a whole disk."""
    holders = labeled(wanted, node)
    for disk, reason in holders:
        if reason and reason == unread_reason(disk):
            raise not_yet(f"{disk.stable} holds {wanted.filesystem} labeled {wanted.label}, but it {reason}.")
    candidates = [disk for disk, reason in holders if not reason]
    if len(candidates) > 1:
        raise ClusterError(
            "ambiguous",
            f"{names_of(candidates)} all hold {wanted.filesystem} labeled {wanted.label}.",
            "Narrow the selector so that one is left, or set another `label`.",
        )
    if not candidates:
        return None
    disk = candidates[0]
    return Found(
        "single", disk.name, "", "single", 1, (disk.name,), True, None, disk.signatures, False, half_made=disk.half_made
    )


__all__ = ["Found", "find", "is_wanted", "labeled"]
