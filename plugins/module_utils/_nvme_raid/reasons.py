# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Why a disk must not be used, in words: the safety rules of ``nvme_raid``.

The module and the unit that runs at boot both decide by them.
"""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import Disk, Node, Signature
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import Wanted

# Where a mount means that the machine runs from this disk.
_SYSTEM_MOUNTS = frozenset({"/", "/boot", "/boot/efi", "/usr", "/var", "/etc", "/home", "/nix", "/sysroot"})
CANNOT_BE_READ = "cannot be read"
_KINDS = {
    "linux_raid_member": "is a member of the md array {label}",
    "LVM2_member": "is an LVM physical volume",
    "zfs_member": "is a member of the ZFS pool {label}",
    "crypto_LUKS": "holds an encrypted volume",
    "swap": "is a swap area",
    "gpt": "holds a partition table (gpt)",
    "dos": "holds a partition table (dos)",
    "PMBR": "holds a partition table (gpt)",
}


def describe(signature: Signature) -> str:
    """A signature in words, as a predicate of its disk."""
    named = f" labeled {signature.label}" if signature.label else ""
    text = _KINDS.get(signature.type, f"holds {signature.type}{named}")
    where = f" (at byte {signature.offset})" if signature.offset else ""
    return text.format(label=signature.label or "of unknown name") + where


def names_of(disks: t.Iterable[Disk]) -> str:
    return ", ".join(disk.stable for disk in disks)


def origin(disk: Disk) -> str:
    """Why a disk is none to be used, whoever made what is on it."""
    if disk.contained:
        return "belongs to the machine that this container runs on"
    if not disk.local:
        return "is network storage, not a disk of this machine"
    return "is removable" if disk.removable else ""


def not_yet(message: str) -> ClusterError:
    """A disk that does not tell what it is counts as missing: whoever can wait for that, waits."""
    return ClusterError(
        "disk_missing",
        f"{message} Nothing was changed.",
        "Run again when the kernel has found all of it: see `journalctl -k` and `/sys/block`.",
        disks_missing=1,
    )


def unread_reason(disk: Disk) -> str:
    """Why it is not known whether the disk may be used; that may change in a moment."""
    return f"cannot be judged: its {' and '.join(disk.unread)} cannot be read" if disk.unread else ""


def hard_reason(disk: Disk, ours: t.Collection[str], node: Node) -> str:
    """Why the disk must never be touched; ``ours`` are devices that belong to what is wanted."""
    if disk.contained:
        return origin(disk)
    system = sorted({*disk.mounts, *disk.stacked_mounts} & _SYSTEM_MOUNTS)
    if system:
        return f"carries the operating system (mounted on {system[0]})"
    if disk.mounts and disk.name not in ours:
        return f"is mounted on {', '.join(disk.mounts)}"
    if disk.swap:
        return "is in use as swap"
    foreign = [holder for holder in disk.holders if holder not in ours]
    if foreign:
        names = {array.device: f"the md array {array.name or array.device}" for array in node.arrays}
        return f"is in use by {', '.join(names.get(holder, holder) for holder in foreign)}"
    if origin(disk):
        return origin(disk)
    if disk.read_only:
        return "is read-only"
    if disk.signatures is None:
        return CANNOT_BE_READ
    if disk.busy and disk.name not in ours and not disk.holders:
        return "is in use: the kernel refuses exclusive access"
    return ""


def data_reason(disk: Disk, wanted: Wanted) -> str:
    """What is on a disk that nothing uses; empty when it is empty."""
    told = list(dict.fromkeys(describe(signature) for signature in disk.signatures or ()))
    if disk.partitions and not any("partition table" in text for text in told):
        told.insert(0, f"has partitions ({', '.join(disk.partitions)})")
    if told:
        return " and ".join(told)
    if not disk.blank and wanted.blank_check == "zeros":
        where = "" if disk.data_at is None else f" (the first of it was found at byte {disk.data_at})"
        return f"holds data that is not recognized{where}"
    return ""


__all__ = ["CANNOT_BE_READ", "data_reason", "describe", "hard_reason", "names_of", "not_yet", "origin", "unread_reason"]
