# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Which disks a new array is made of, or why it is not made."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.find import Found
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.judge import (
    Verdict,
    given_up,
    judge,
    may_be_taken,
    why_not,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import Node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.mount import plan_mount
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.reasons import names_of, not_yet
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import Wanted, bad_input
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.selector import unknown_names
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.steps import Plan, Step


def plan_new(wanted: Wanted, node: Node, verdicts: tuple[Verdict, ...]) -> Plan:
    """Choose the disks for a new array, or say why there are none."""
    selected = [verdict for verdict in verdicts if verdict.use != "unselected"]
    data = [verdict for verdict in selected if verdict.use == "data" and not given_up(verdict.disk, wanted, node)]
    usable = [verdict for verdict in selected if verdict.use in ("free", "data") and verdict not in data]
    unread = [verdict for verdict in selected if verdict.use == "unread"]
    if unread and not wanted.expected_disks:
        raise not_yet(f"{why_not(unread)}.")
    if not usable and not data and not wanted.expected_disks:
        return Plan(verdicts, None, (), ("no disk can be used, and none is expected",))
    unknown = "".join(f" {text}" for text in unknown_names(wanted, node.disks))
    excluded = [verdict for verdict in selected if verdict.use in ("excluded", "unread")]
    why = (f" Not usable: {why_not(excluded)}." if excluded else "") + unknown
    if wanted.state == "assembled":
        raise ClusterError(
            "no_array",
            f"There is no array and no file system {wanted.name} on the disks of this node.{why}",
            "Run the role nvme_raid (entry point configure), or the module with `state: present`, to make it.",
        )
    _check_data(wanted, usable, data, unknown)
    _check_count(wanted, usable, why)
    _check_named(wanted, usable)
    _check_listing(wanted, [verdict for verdict in usable if not may_be_taken(verdict.disk, node.begun)])
    level = "single" if len(usable) == 1 and wanted.level == "raid0" else wanted.level
    return Plan(verdicts, None, tuple(_build(wanted, node, level, usable)))


def _check_data(wanted: Wanted, usable: t.Sequence[Verdict], data: t.Sequence[Verdict], why: str) -> None:
    """Refuse where disks with data would be needed."""
    if data and (not wanted.expected_disks or len(usable) < wanted.expected_disks):
        raise ClusterError(
            "foreign_data",
            f"{why_not(data)}.{why} Nothing was changed.",
            "If that may be lost, set `allow_format: true` and list exactly these disks in "
            "`format_devices`. If not, narrow the selector or set `expected_disks`.",
            disks=[verdict.disk.stable for verdict in data],
        )


def _check_count(wanted: Wanted, usable: t.Sequence[Verdict], why: str) -> None:
    """Refuse unless exactly the right disks are left."""
    expected = wanted.expected_disks
    if expected and len(usable) < expected:
        raise ClusterError(
            "disk_missing",
            f"{expected} disks are expected for {wanted.name}, and {len(usable)} can be used"
            f"{': ' + names_of(verdict.disk for verdict in usable) if usable else ''}.{why} Nothing was changed.",
            "Look for disks that died (`dmesg | grep nvme`), or set `expected_disks` and the selector to what "
            "this node has.",
            disks_missing=expected - len(usable),
        )
    if (expected and len(usable) > expected) or (wanted.level == "single" and len(usable) > 1):
        raise ClusterError(
            "too_many_disks",
            f"{expected or 1} disks are wanted for {wanted.name}, but {len(usable)} could be used: "
            f"{names_of(verdict.disk for verdict in usable)}. Nothing was changed.",
            "Narrow the selector: `models`, `by_id`, `min_mib`, `max_mib`.",
        )
    if wanted.level in ("raid1", "raid10") and len(usable) < 2:
        raise ClusterError(
            "disk_missing",
            f"A {wanted.level} needs 2 disks, and {len(usable)} can be used.",
            "Choose another `level`, or widen the selector.",
        )


def _check_named(wanted: Wanted, usable: t.Sequence[Verdict]) -> None:
    """Refuse to take whatever is empty: a spare disk of the system may be, and one of eight may be dead."""
    if wanted.says_which:
        return
    disks = [verdict.disk for verdict in usable]
    told = ", ".join(f"{disk.stable} ({disk.model or 'no model'}, {disk.bytes >> 30} GiB)" for disk in disks)
    models = ", ".join(sorted({disk.model for disk in disks if disk.model}))
    raise ClusterError(
        "disks_not_named",
        f"Nothing says how many disks {wanted.name} is to be made of, or of which model. {len(disks)} disks could be used: {told}. "
        "Nothing was changed.",
        f"Set `expected_disks` ({len(disks)}, if these are all that the machine has), or `models`{f' (here: {models})' if models else ''}. "
        "A profile that node_profile finds for the machine says the number, too.",
    )


def disks_to_expect(wanted: Wanted, verdicts: t.Sequence[Verdict]) -> int:
    """How many disks would make the array once all that they hold is given up, for whoever has not said which disks are meant.

    0 where that was said, where the array is there, and where a disk does not tell yet what it is. Disks without a name that lasts
    cannot be listed, and so not be given up.
    """
    if wanted.says_which or any(verdict.use in ("ours", "unread") for verdict in verdicts):
        return 0
    return sum(verdict.use == "free" or (verdict.use == "data" and bool(verdict.disk.links)) for verdict in verdicts)


def _check_listing(wanted: Wanted, usable: t.Iterable[Verdict]) -> None:
    """Consent must name disks in a way that still means them after a reboot."""
    listed = set(wanted.format_devices)
    for disk in (verdict.disk for verdict in usable if verdict.use == "data"):
        if disk.links and not listed & set(disk.links):
            raise bad_input(
                f"`format_devices` names {disk.path}, which may be another disk after a reboot.",
                f"Write {disk.stable} instead.",
            )


def start_anew(wanted: Wanted, node: Node, found: Found, verdicts: tuple[Verdict, ...]) -> Plan:
    """Give up an array that cannot run: every disk that is left of it was listed, or its creation has never ended."""
    again = judge(wanted, node, dataclasses.replace(found, members=()))
    rest = plan_new(wanted, node, again)
    stop = [Step("stop", f"stop what is left of {wanted.name}", f"/dev/{found.device}")] if found.device else []
    return Plan(verdicts, found, (*stop, *rest.steps))


def _build(wanted: Wanted, node: Node, level: str, usable: t.Sequence[Verdict]) -> t.Iterator[Step]:
    plan_mount(wanted, node, "")
    for verdict in usable:
        if verdict.use == "data":
            what = f"erase {verdict.disk.name} ({verdict.disk.stable}), which {verdict.reason}"
            yield Step("erase", what, disks=(verdict.disk.name,))
    names = tuple(verdict.disk.name for verdict in usable)
    device = f"/dev/{names[0]}" if level == "single" else ""
    if level != "single":
        what = f"create {wanted.name}, a {level} of {len(names)} disks: {', '.join(names)}"
        yield Step("create", what, "", names, level)
    again = "again" if level == "single" and may_be_taken(usable[0].disk, node.begun) else ""
    yield Step("mkfs", f"make {wanted.filesystem} on {device or wanted.name}", device, names, again)
    yield Step("mount", f"mount {wanted.name} at {wanted.mount_point.rstrip('/')}", device)


__all__ = ["disks_to_expect", "plan_new", "start_anew"]
