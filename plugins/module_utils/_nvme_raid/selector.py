# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Which disks the request means."""

from __future__ import annotations

import fnmatch
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import Disk
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import Wanted

# Slashes in /dev/disk/by-id/NAME.
_LINK_DEPTH = 4


def means(pattern: str, disk: Disk) -> bool:
    """Whether a pattern of names below ``/dev/disk`` means this disk.

    Names in folders of folders are meant only by a pattern as deep: ``/dev/disk/azure/*`` is not every disk of a cloud.
    """
    return any(
        fnmatch.fnmatchcase(link, pattern) and (link.count("/") <= _LINK_DEPTH or link.count("/") == pattern.count("/"))
        for link in disk.links
    )


def matches(disk: Disk, wanted: Wanted) -> str:
    """Why the selector does not take the disk; empty when it does. What could not be read speaks for the disk."""
    if disk.transport not in wanted.transports:
        return f"its transport is {disk.transport}"
    if (
        wanted.models
        and "model" not in disk.unread
        and not any(fnmatch.fnmatchcase(disk.model, pattern) for pattern in wanted.models)
    ):
        return f"its model is {disk.model or 'unknown'}"
    if wanted.by_id and not any(means(pattern, disk) for pattern in wanted.by_id):
        return "no name of it below /dev/disk matches"
    if "size" in disk.unread:
        return ""
    if disk.bytes < wanted.min_mib << 20:
        return f"it has only {disk.bytes >> 20} MiB"
    if wanted.max_mib and disk.bytes > wanted.max_mib << 20:
        return f"it has {disk.bytes >> 20} MiB"
    return ""


def unknown_names(wanted: Wanted, disks: t.Sequence[Disk]) -> tuple[str, ...]:
    """Names in the request that no disk has: misspelled, or of another node."""
    told = []
    if wanted.by_id and not any(means(pattern, disk) for disk in disks for pattern in wanted.by_id):
        told.append(f"`by_id` matches no disk of this node: {', '.join(wanted.by_id)}.")
    there = {name for disk in disks for name in (disk.path, *disk.links)}
    unknown = [name for name in wanted.format_devices if name not in there]
    if wanted.allow_format and unknown:
        told.append(f"`format_devices` names no disk of this node: {', '.join(unknown)}.")
    return tuple(told)


__all__ = ["matches", "means", "unknown_names"]
