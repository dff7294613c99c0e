# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""One device at the moment of a change: the last look before it, and zeros where it is looked at."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Runner
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.content import read_signatures, with_content
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import Disk, Signature
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.places import places
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.reasons import (
    CANNOT_BE_READ,
    data_reason,
    describe,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import Wanted

# File systems have their superblock in the first block of 4 KiB, md's (1.2) is in the second.
_FIRST = 8192


def claim(path: str) -> None:
    """Once more at the last moment: nothing may use the device."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as exc:
        raise ClusterError(
            "in_use",
            f"{path} came into use meanwhile ({exc.strerror}); it was not touched.",
            f"Find out what uses it (`lsblk`; a container: `grep {path} /proc/[0-9]*/mounts`), and run again.",
        ) from exc


def require_empty(runner: Runner, wanted: Wanted, names: t.Sequence[str]) -> None:
    """Once more at the last moment, and with the same eyes as the plan: nothing uses the devices, and they hold nothing."""
    signatures = read_signatures(runner, names)
    for name in names:
        claim(f"/dev/{name}")
        disk = with_content(runner, Path("/"), Disk(name), signatures, ())
        reason = CANNOT_BE_READ if disk.signatures is None else data_reason(disk, wanted)
        if reason or disk.busy:
            raise ClusterError(
                "in_use",
                f"{disk.path} was empty a moment ago, and {reason or 'is in use'} now; it was not touched.",
                "Find out what writes to it (`lsblk`), and run again.",
            )


def require_left(runner: Runner, name: str, known: t.Collection[Signature]) -> None:
    """Once more at the last moment, for what is made again: nothing uses the device, and no signature came to those ``known``."""
    claim(f"/dev/{name}")
    disk = with_content(runner, Path("/"), Disk(name), read_signatures(runner, [name]), ())
    now = disk.signatures
    new = [CANNOT_BE_READ] if now is None else [describe(entry) for entry in now if entry not in known]
    if new:
        raise ClusterError(
            "in_use",
            f"{disk.path} held only what was left of making it a moment ago, and {' and '.join(new)} now; it was not touched.",
            "Find out what writes to it (`lsblk`), and run again.",
        )


def clear(path: str) -> None:
    """Write zeros at all places where a disk is looked at, so that it is known to be empty.

    Its first blocks come last, when all else has reached it: a power cut leaves a disk that says what it is, or an empty one.
    """
    handle = os.open(path, os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC)
    try:
        for start, length in places(os.lseek(handle, 0, os.SEEK_END)):
            kept = min(_FIRST - start, length) if start < _FIRST else 0
            os.pwrite(handle, bytes(length - kept), start + kept)
        os.fsync(handle)
        os.pwrite(handle, bytes(min(_FIRST, os.lseek(handle, 0, os.SEEK_END))), 0)
        os.fsync(handle)
    finally:
        os.close(handle)


def flush(path: str) -> None:
    """Wait until all that was written to a device has reached it, also what the device holds in a cache of its own."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


__all__ = ["claim", "clear", "flush", "require_empty", "require_left"]
