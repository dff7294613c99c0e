# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Whether what is there is what is wanted. It is refused where it is not: nothing is ever changed into something else."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.find import Found
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.judge import Verdict
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import Disk, Node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.reasons import (
    names_of,
    not_yet,
    origin,
    unread_reason,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import Wanted


def conflict(message: str) -> ClusterError:
    return ClusterError(
        "array_conflict",
        message,
        "Ask for what is there, or remove it first (state absent; entry point remove of the role).",
    )


def foreign_content(wanted: Wanted, what: str) -> ClusterError:
    return ClusterError(
        "foreign_data",
        f"{wanted.name} does not hold {wanted.filesystem} labeled {wanted.label}, but {what}. Nothing was changed.",
        "Set `filesystem` and `label` to what is there, or give it up: remove it with `allow_data_loss: true` (entry point remove "
        "of the role, state absent of the module), and run again.",
    )


def missing(wanted: Wanted, found: Found, node: Node, verdicts: t.Iterable[Verdict]) -> ClusterError:
    """The array lost disks that it cannot do without. One that was exchanged is there, and empty."""
    have = [disk for disk in node.disks if disk.name in found.members]
    why = "stopped working" if found.array and found.array.failed else f"only {len(have)} of them are there"
    empty = names_of(verdict.disk for verdict in verdicts if verdict.use == "free")
    new = f" Empty, and not one of them: {empty}." if empty else ""
    return ClusterError(
        "disk_missing",
        f"{wanted.name} ({found.level}) was made of {found.disks} disks, and {why}: {names_of(have)}.{new} Nothing was changed.",
        "Bring the missing disk back, or take the node out of service. To give the rest up and start anew, set "
        "`allow_format` and list these disks in `format_devices`.",
        disks_missing=max(found.disks - len(have), 0),
    )


def check_shape(wanted: Wanted, found: Found, verdicts: t.Sequence[Verdict]) -> None:
    """The array must be the one that is wanted: it is never changed into another."""
    strange = [verdict for verdict in verdicts if verdict.use == "ours" and verdict.reason]
    if strange:
        raise conflict(f"{wanted.name} has the disk {strange[0].disk.stable}, but it {strange[0].reason}.")
    _check_members(wanted, found, [verdict.disk for verdict in verdicts if verdict.disk.name in found.members])
    if found.kind == "single":
        blank = [verdict.disk for verdict in verdicts if verdict.use == "free"]
        if wanted.expected_disks > 1 or (wanted.level != "single" and blank):
            raise conflict(f"{wanted.label} is a file system on the single disk {found.device}, not an array.")
        return
    if found.level and found.level != wanted.level:
        raise conflict(f"{wanted.name} is a {found.level}, not a {wanted.level}.")
    if wanted.expected_disks and found.disks and found.disks != wanted.expected_disks:
        raise conflict(f"{wanted.name} was made of {found.disks} disks, not of {wanted.expected_disks}.")
    chunk = found.array.chunk_kib if found.array else 0
    if chunk and wanted.level != "raid1" and chunk != wanted.chunk_kib:
        raise conflict(f"{wanted.name} has chunks of {chunk} KiB, not of {wanted.chunk_kib} KiB.")


def _check_members(wanted: Wanted, found: Found, disks: t.Iterable[Disk]) -> None:
    """What is there is not used on a disk that never may be. How it is in use is no matter: by itself, as a rule."""
    copies = found.level in ("raid1", "raid10")
    for disk in disks:
        if disk.unread:
            raise not_yet(f"{wanted.name} has the disk {disk.stable}, which {unread_reason(disk)}.")
        reason = origin(disk) or ("is read-only" if disk.read_only and not copies else "")
        if reason:
            raise ClusterError(
                "array_conflict",
                f"{wanted.name} lies on {disk.stable}, which {reason}. Nothing was changed.",
                "Set another `name` to leave it alone. A disk that became read-only has failed: see "
                "`journalctl -k`, and replace it.",
            )


__all__ = ["check_shape", "conflict", "foreign_content", "missing"]
