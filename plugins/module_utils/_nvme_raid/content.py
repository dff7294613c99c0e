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
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.outputs import (
    parse_blkid,
    parse_examine,
    parse_wipefs,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.places import first_data

# Where partitions begin: at 1 MiB, and at sector 63 as in the days of cylinders.
_PARTITIONS = (63 * 512, 63 * 4096, 1 << 20)
_SECTORS = (512, 4096)
_LIMIT = ("timeout", "-k", "5", "60")

#: By the kernel's name of the device; None for a device that cannot be read.
Signatures = t.Mapping[str, t.Optional[tuple[Signature, ...]]]


@dataclasses.dataclass(frozen=True)
class _Content:
    """What is on a device without a signature of its own. ``busy``: the kernel refuses exclusive use, and nothing was looked at."""

    busy: bool
    data_at: int | None = None
    inside: tuple[Signature, ...] = ()


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
    found = _open(runner, root, disk.path, look=not seen)
    blank = not (seen or found.busy) and found.data_at is None
    return dataclasses.replace(
        disk,
        busy=found.busy,
        blank=blank,
        data_at=found.data_at,
        signatures=seen or found.inside,
        half_made=_is_half_made(root, disk.path, seen),
    )


def with_name(runner: Runner, root: Path, array: Array, disks: t.Sequence[Disk], signatures: Signatures) -> Array:
    """An array with the name and UUID that its members carry, and what it holds."""
    for disk in disks:
        for signature in disk.signatures or ():
            if disk.name in array.members and signature.type == "linux_raid_member":
                name, uuid = array_name(signature.label), plain_uuid(signature.uuid)
                array = dataclasses.replace(array, name=name, uuid=uuid)
    if not array.active:
        return array
    seen = signatures.get(array.device)
    if seen != () or array.failed:
        return dataclasses.replace(
            array, signatures=seen, blank=False, half_made=_is_half_made(root, array.path, seen or ())
        )
    found = _open(runner, root, array.path, look=True)
    blank = not found.busy and found.data_at is None
    return dataclasses.replace(array, signatures=found.inside, blank=blank)


def _open(runner: Runner, root: Path, path: str, *, look: bool) -> _Content:
    """Whether the kernel refuses exclusive use (the most certain sign that something uses a disk), and what it holds."""
    try:
        handle = os.open(str(root / path.lstrip("/")), os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC)
    except OSError as exc:
        if exc.errno == errno.EBUSY:
            return _Content(True)
        raise ClusterError(
            "unreadable", f"{path} cannot be opened: {exc.strerror}.", "See `journalctl -k`, and run as root."
        ) from exc
    try:
        data_at = first_data(handle) if look else None
        tables = () if data_at is None else _tables(handle)
    except OSError as exc:
        raise ClusterError(
            "unreadable",
            f"{path} cannot be read: {exc.strerror}.",
            "See `journalctl -k`, and replace the disk, or leave it out: `by_id`, `models`.",
        ) from exc
    finally:
        os.close(handle)
    # Zeros hold no signature: processes are started only for a disk that holds something.
    return _Content(False, data_at, () if data_at is None else (*tables, *_inside(runner, path)))


def _is_half_made(root: Path, path: str, signatures: tuple[Signature, ...]) -> bool:
    """Whether mkfs.xfs has begun a file system and not ended: ``sb_inprogress`` (byte 126) is 1 until the last thing it does."""
    if [entry.type for entry in signatures] != ["xfs"]:
        return False
    with (root / path.lstrip("/")).open("rb", buffering=0) as handle:
        superblock = handle.read(512)
    return superblock[:4] == b"XFSB" and superblock[126:127] != b"\0"


def _tables(handle: int) -> tuple[Signature, ...]:
    """A GPT or its backup, for whatever size of sectors: libblkid looks only where those of today would put it."""
    size = os.lseek(handle, 0, os.SEEK_END)
    offsets = [offset for sector in _SECTORS for offset in (sector, size - sector) if offset > 0]
    return tuple(Signature("gpt", offset=at) for at in offsets if os.pread(handle, 8, at) == b"EFI PART")


def _inside(runner: Runner, path: str) -> tuple[Signature, ...]:
    """Signatures where partitions begin that no table tells of."""
    found = []
    for offset in _PARTITIONS:
        argv = [*_LIMIT, "blkid", "--probe", "--offset", str(offset), "--output", "export", path]
        rc, out, _err = runner.run_command(argv)
        # 2: nothing is there, or it cannot be read; 8: several that contradict each other (blkid(8)).
        if rc in (0, 8):
            found.append(parse_blkid(out, offset))
    return tuple(found)


__all__ = ["read_signatures", "with_content", "with_name"]
