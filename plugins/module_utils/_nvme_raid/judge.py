# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What may be done with each disk of a node."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.find import Found
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import Begun, Disk, Node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.reasons import (
    data_reason,
    hard_reason,
    unread_reason,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import Wanted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.selector import matches


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What may be done with one disk.

    ``ours``: carries what is wanted. ``free``: empty, may be used. ``data``: holds something, which consent may give up.
    ``excluded``: never touched, whatever was consented to. ``unselected``: not asked for. ``unread``: does not tell yet what it
    is, and counts as not there.
    """

    disk: Disk
    use: str
    reason: str = ""


def judge(wanted: Wanted, node: Node, found: Found | None) -> tuple[Verdict, ...]:
    """The verdict on every disk of the node."""
    devices = {found.device} if found and found.device else set()
    members = set(found.members) if found else set()
    verdicts = []
    for disk in node.disks:
        mine = disk.name in members
        unselected = matches(disk, wanted)
        hard = hard_reason(disk, devices, node)
        unread = unread_reason(disk)
        if mine and not hard and not unread:
            verdicts.append(Verdict(disk, "ours", unselected and f"does not match: {unselected}"))
        elif unselected:
            verdicts.append(Verdict(disk, "unselected", unselected))
        elif hard:
            verdicts.append(Verdict(disk, "excluded", hard))
        elif unread:
            verdicts.append(Verdict(disk, "unread", unread))
        else:
            remains = may_be_taken(disk, node.begun) and not disk.signatures
            data = "" if remains else data_reason(disk, wanted)
            verdicts.append(Verdict(disk, "data" if data else "free", data))
    return tuple(verdicts)


def may_tell_more(verdicts: t.Iterable[Verdict]) -> bool:
    """Whether one of the disks that were asked for could not be read, as just after the kernel has found it."""
    return any(
        verdict.use == "unread" or (verdict.use == "excluded" and verdict.disk.signatures is None)
        for verdict in verdicts
    )


def consented(disk: Disk, wanted: Wanted) -> bool:
    """Whether the data of this very disk was given up."""
    return wanted.allow_format and bool({disk.path, *disk.links} & set(wanted.format_devices))


def may_be_taken(disk: Disk, begun: Begun | None) -> bool:
    """Whether all that is on the disk is what was left of a creation of ours that has not ended."""
    return begun is not None and begun.left(disk)


def given_up(disk: Disk, wanted: Wanted, node: Node) -> bool:
    """Whether what is on the disk may be lost: by consent, or because it is what is left of a creation that has not ended."""
    return consented(disk, wanted) or may_be_taken(disk, node.begun)


def why_not(verdicts: t.Iterable[Verdict]) -> str:
    return "; ".join(f"{verdict.disk.stable} {verdict.reason}" for verdict in verdicts)


__all__ = ["Verdict", "consented", "given_up", "judge", "may_be_taken", "may_tell_more", "why_not"]
