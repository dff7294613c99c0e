# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What lies on disks and arrays: signatures, superblocks, zeros. Opens devices, and only to read."""

from __future__ import annotations

import dataclasses
import errno
import os
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Runner
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import (
    Array,
    Disk,
    Signature,
    array_name,
    plain_uuid,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.outputs import parse_examine, parse_wipefs

_MIB = 1 << 20
_LIMIT = ("timeout", "-k", "5", "60")

#: By the kernel's name of the device; None for a device that cannot be read.
Signatures = t.Mapping[str, t.Optional[tuple[Signature, ...]]]


def read_signatures(runner: Runner, names: t.Sequence[str]) -> Signatures:
    """Signatures of devices, in one process where all can be read."""
    if not names:
        return {}
    rc, out = _wipefs(runner, names)
    if rc == 0:
        found = parse_wipefs(out)
        return {name: found.get(name, ()) for name in names}
    # wipefs ends at the first device that it cannot read: ask one by one.
    result: dict[str, tuple[Signature, ...] | None] = {}
    for name in names:
        rc, out = _wipefs(runner, [name])
        result[name] = parse_wipefs(out).get(name, ()) if rc == 0 else None
    return result


def _wipefs(runner: Runner, names: t.Iterable[str]) -> tuple[int, str]:
    argv = [*_LIMIT, "wipefs", "--no-act", "--json", *(f"/dev/{name}" for name in names)]
    rc, out, _err = runner.run_command(argv)
    return rc, out


def with_content(runner: Runner, root: Path, disk: Disk, signatures: Signatures, arrays: t.Sequence[Array]) -> Disk:
    """A disk with what is on it. It is opened only where nothing uses it."""
    seen = signatures.get(disk.name)
    disk = dataclasses.replace(disk, signatures=seen)
    waiting = {array.device for array in arrays if not array.active}
    if any(signature.type == "linux_raid_member" for signature in seen or ()) and set(disk.holders) <= waiting:
        _rc, out, _err = runner.run_command([*_LIMIT, "mdadm", "--examine", "--export", disk.path])
        disk = dataclasses.replace(disk, member=parse_examine(out))
    if disk.holders or disk.mounts or disk.swap or seen is None:
        return disk
    busy, blank = _open(root, disk.path, look=not seen)
    return dataclasses.replace(disk, busy=busy, blank=blank if not seen else False)


def with_name(root: Path, array: Array, disks: t.Sequence[Disk], signatures: Signatures) -> Array:
    """An array with the name and UUID that its members carry, and what it holds."""
    for disk in disks:
        for signature in disk.signatures or ():
            if disk.name in array.members and signature.type == "linux_raid_member":
                name, uuid = array_name(signature.label), plain_uuid(signature.uuid)
                array = dataclasses.replace(array, name=name, uuid=uuid)
    if not array.active:
        return array
    seen = signatures.get(array.device)
    blank = False
    if seen == () and not array.failed:
        _busy, blank = _open(root, array.path, look=True)
    return dataclasses.replace(array, signatures=seen, blank=blank)


def _open(root: Path, path: str, *, look: bool) -> tuple[bool, bool]:
    """Whether the kernel refuses exclusive use (the most certain sign that something uses a disk), and blankness."""
    try:
        handle = os.open(str(root / path.lstrip("/")), os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC)
    except OSError as exc:
        if exc.errno == errno.EBUSY:
            return True, False
        raise ClusterError(
            "unreadable", f"{path} cannot be opened: {exc.strerror}.", "See `journalctl -k`, and run as root."
        ) from exc
    try:
        return False, look and _ends_are_zero(handle)
    finally:
        os.close(handle)


def _ends_are_zero(handle: int) -> bool:
    """Whether the first and the last MiB hold only zeros: raw users write their headers there."""
    size = os.lseek(handle, 0, os.SEEK_END)
    for offset in (0, max(0, size - _MIB)):
        data = os.pread(handle, min(_MIB, size), offset)
        if data.count(0) != len(data):
            return False
    return True


__all__ = ["read_signatures", "with_content", "with_name"]
