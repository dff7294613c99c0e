# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What ``nvme_raid`` knows of a node and what it is asked for, as plain data, and the parsers that make it from text.

Only the standard library is used: these files are also installed on nodes, where they run at boot without Ansible.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.mounts import MountEntry

LEVELS = ("raid0", "raid1", "raid10", "single")
FILESYSTEMS = ("xfs", "ext4")
# Limits of the formats: XFS_LABEL max 12 bytes (mkfs.xfs(8)), ext4 16 bytes (mke2fs(8)), md's name 32 bytes (md(4)).
_LABEL_BYTES = {"xfs": 12, "ext4": 16}
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,30}$")
# Kernel names are given in the order in which disks answer at boot. Nothing lasting may be tied to them.
_KERNEL_NAME = re.compile(r"^(?:/dev/)?(?:nvme\d+n\d+|sd[a-z]+|vd[a-z]+|xvd[a-z]+)$")
# Slashes in /dev/disk/by-id/NAME.
_LINK_DEPTH = 4
# md tells mkfs its geometry; passing it again makes mkfs disagree with the array or shrink its log stripes.
_GEOMETRY = re.compile(r"(?:^|[,=\s])(?:su|sw|sunit|swidth|stride|stripe[_-]width)=")


@dataclasses.dataclass(frozen=True)
class Signature:
    """Something that libblkid recognizes on a device."""

    type: str
    label: str = ""
    uuid: str = ""


@dataclasses.dataclass(frozen=True)
class Member:
    """What a disk says of the md array that it belongs to."""

    uuid: str
    name: str
    level: str
    disks: int
    events: int = 0


@dataclasses.dataclass(frozen=True)
class Disk:
    """A whole disk, without the arrays that were made of it."""

    name: str
    links: tuple[str, ...] = ()  # stable names below /dev/disk
    model: str = ""
    serial: str = ""
    bytes: int = 0
    transport: str = "nvme"
    local: bool = True
    contained: bool = False  # this is a container, and the disk belongs to its host
    read_only: bool = False
    removable: bool = False
    partitions: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()  # md and dm devices on the disk or its partitions
    mounts: tuple[str, ...] = ()  # of the disk and its partitions
    stacked_mounts: tuple[str, ...] = ()  # of all that is built on the disk
    swap: bool = False
    signatures: tuple[Signature, ...] | None = ()  # None: could not be read
    busy: bool = False  # the kernel refuses exclusive use
    blank: bool = True  # its first and last MiB hold zeros only
    member: Member | None = None

    @property
    def path(self) -> str:
        return f"/dev/{self.name}"

    @property
    def stable(self) -> str:
        """The name to show and to write down: it means the same disk after the next boot."""
        return self.links[0] if self.links else self.path


@dataclasses.dataclass(frozen=True)
class Array:
    """An md array that the kernel has, whether it runs or only waits for its members."""

    device: str
    name: str
    uuid: str
    level: str
    disks: int
    members: tuple[str, ...]
    active: bool = True
    failed: bool = False
    degraded: int = 0
    chunk_kib: int = 0
    action: str = "idle"
    holders: tuple[str, ...] = ()
    signatures: tuple[Signature, ...] | None = ()
    blank: bool = True

    @property
    def path(self) -> str:
        return f"/dev/{self.device}"


@dataclasses.dataclass(frozen=True)
class Mount:
    """What is mounted where, with the kernel's name of the device."""

    point: str
    filesystem: str
    device: str
    options: tuple[str, ...] = ()
    root: str = "/"


@dataclasses.dataclass(frozen=True)
class Directory:
    """What is at the mount point."""

    exists: bool = False
    empty: bool = True
    kind: str = "directory"
    mode: int = 0
    owner: int = 0
    group: int = 0
    holds_files: bool = False


@dataclasses.dataclass(frozen=True)
class Node:
    """All that decisions are made from."""

    disks: tuple[Disk, ...] = ()
    arrays: tuple[Array, ...] = ()
    mounts: tuple[Mount, ...] = ()
    directory: Directory = Directory()

    def disk(self, name: str) -> Disk | None:
        return next((disk for disk in self.disks if disk.name == name), None)

    def mounted(self, device: str) -> list[Mount]:
        return [mount for mount in self.mounts if mount.device == device]


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The request. The names are those of the module's options."""

    name: str = "scratch"
    state: str = "present"
    level: str = "raid0"
    chunk_kib: int = 512
    models: tuple[str, ...] = ()
    by_id: tuple[str, ...] = ()
    transports: tuple[str, ...] = ("nvme",)
    min_mib: int = 0
    max_mib: int = 0
    expected_disks: int = 0
    uuid: str = ""
    filesystem: str = "xfs"
    label: str = ""
    mkfs_options: tuple[str, ...] = ()
    mount_point: str = "/mnt/resource_nvme"
    mount_options: tuple[str, ...] = ()
    owner: int = 0
    group: int = 0
    mode: str = "01777"
    blank_check: str = "zeros"
    allow_format: bool = False
    format_devices: tuple[str, ...] = ()
    allow_data_loss: bool = False


def bad_input(message: str, remedy: str) -> ClusterError:
    return ClusterError("bad_input", message, remedy)


def _number(value: t.Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise bad_input(f"{what} is {value!r}, not a number from 0 on.", f"Correct nvme_raid_{what}.")
    return value


def wanted_from(settings: t.Mapping[str, t.Any]) -> Wanted:
    """The request, checked, from a module's parameters or from the settings file of the boot unit.

    Owner and group must be numbers already: who they are is known on the node only.
    """
    known = {field.name for field in dataclasses.fields(Wanted)}
    values = {key: value for key, value in settings.items() if key in known and value is not None}
    for key, value in values.items():
        if isinstance(value, list):
            values[key] = tuple(str(entry) for entry in value)
    wanted = Wanted(**values)
    wanted = dataclasses.replace(wanted, label=wanted.label or wanted.name[:12], uuid=plain_uuid(wanted.uuid))
    _check(wanted)
    return wanted


def _check(wanted: Wanted) -> None:
    """Refuse what cannot be done before anything is looked at."""
    for key in ("chunk_kib", "min_mib", "max_mib", "expected_disks"):
        _number(getattr(wanted, key), key)
    if not _NAME.match(wanted.name):
        raise bad_input(
            f"{wanted.name!r} is not a name for an array.", "Use up to 31 letters, digits, hyphens and underscores."
        )
    for value, allowed, key in (
        (wanted.level, LEVELS, "level"),
        (wanted.filesystem, FILESYSTEMS, "filesystem"),
        (wanted.state, ("present", "absent", "assembled"), "state"),
        (wanted.blank_check, ("zeros", "signatures"), "blank_check"),
    ):
        if value not in allowed:
            raise bad_input(f"{key} is {value!r}.", f"Use one of {', '.join(allowed)}.")
    limit = _LABEL_BYTES[wanted.filesystem]
    if len(wanted.label.encode()) > limit or not re.match(r"^[!-~]+$", wanted.label):
        raise bad_input(
            f"{wanted.label!r} cannot be the label of an {wanted.filesystem} file system.",
            f"Use at most {limit} printable characters without spaces.",
        )
    if wanted.level in ("raid0", "raid10") and (wanted.chunk_kib < 4 or wanted.chunk_kib & (wanted.chunk_kib - 1)):
        raise bad_input(f"A chunk of {wanted.chunk_kib} KiB is not possible.", "Use a power of two, at least 4.")
    if not re.match(r"^/[^/\s]", wanted.mount_point) or ".." in wanted.mount_point.split("/"):
        raise bad_input(f"{wanted.mount_point!r} cannot be a mount point.", "Use an absolute path below the root.")
    if not re.match(r"^[0-7]{3,5}$", wanted.mode):
        raise bad_input(f"{wanted.mode!r} is not a mode.", 'Write it in octal and quoted, as in "01777".')
    _check_devices(wanted)
    if "nobarrier" in wanted.mount_options:
        raise bad_input(
            "The mount option nobarrier does not exist any more; the mount would fail.", "Take it out of the options."
        )
    if any(_GEOMETRY.search(option) for option in wanted.mkfs_options):
        raise bad_input(
            "The mkfs options give a stripe geometry.",
            "Leave it out: mkfs reads it from the array, and what it read is verified.",
        )


def _check_devices(wanted: Wanted) -> None:
    fixed = [pattern for pattern in wanted.by_id if _KERNEL_NAME.match(pattern) or not pattern.startswith("/dev/disk/")]
    if fixed:
        raise bad_input(
            f"{fixed[0]} does not name the same disk after every boot.",
            "Select by model, size or transport, or by names below /dev/disk, such as /dev/disk/by-id/nvme-….",
        )
    patterns = [entry for entry in wanted.format_devices if re.search(r"[*?\[]", entry)]
    if patterns:
        raise bad_input(f"{patterns[0]} is a pattern.", "Name every disk that may be formatted.")


def plain_uuid(text: str) -> str:
    """blkid and mdadm group the same digits differently."""
    return re.sub(r"[^0-9a-f]", "", text.lower())


def array_name(text: str) -> str:
    """The name of an array without the host that md puts in front of it."""
    return text.rpartition(":")[2]


def parse_wipefs(text: str) -> dict[str, tuple[Signature, ...]]:
    """Signatures by device from ``wipefs --no-act --json``; a device without any is not in it."""
    if not text.strip():
        return {}
    found: dict[str, list[Signature]] = {}
    for entry in json.loads(text)["signatures"]:
        signature = Signature(entry["type"] or "unknown", entry.get("label") or "", entry.get("uuid") or "")
        known = found.setdefault(entry["device"], [])
        # A GPT and its backup, ext4's and a RAID's copies: once is enough.
        if signature not in known:
            known.append(signature)
    return {device: tuple(signatures) for device, signatures in found.items()}


def parse_examine(text: str) -> Member | None:
    """What ``mdadm --examine --export`` says of one disk; None for a disk that belongs to no array."""
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    if "MD_UUID" not in values:
        return None
    return Member(
        plain_uuid(values["MD_UUID"]),
        array_name(values.get("MD_NAME", "")),
        values.get("MD_LEVEL", ""),
        int(values.get("MD_DEVICES", "0")),
        int(values.get("MD_EVENTS", "0")),
    )


def device_mounts(entries: t.Iterable[MountEntry], names: t.Mapping[str, str]) -> tuple[Mount, ...]:
    """The mounts with the kernel's names of their devices. ``names``: these by number (``259:3``)."""
    # btrfs and overlays have no device number of their own, a mounted /dev/root has no usable name.
    return tuple(
        Mount(entry.point, entry.filesystem, names.get(entry.number, entry.device), entry.options, entry.root)
        for entry in entries
    )


def parse_mdstat(text: str) -> dict[str, tuple[bool, frozenset[str]]]:
    """Every array of ``/proc/mdstat``: whether it is active, and its members that did not fail."""
    arrays = {}
    for line in text.splitlines():
        match = re.match(r"^(md\S*) : (active|inactive)\b(.*)$", line)
        if match:
            members = re.findall(r"(\S+?)\[\d+\](?!\(F\))", match.group(3))
            arrays[match.group(1)] = (match.group(2) == "active", frozenset(members))
    return arrays


@dataclasses.dataclass(frozen=True)
class Geometry:
    """How a file system lies on its stripes, in bytes; zeros where it does not know of any."""

    unit_bytes: int
    width_bytes: int
    # Of the file system. Two geometries are the same whatever their size.
    size_bytes: int = dataclasses.field(default=0, compare=False)


def parse_xfs_info(text: str) -> Geometry | None:
    """The data section's stripe unit and width. xfs_info counts both in blocks."""
    block = re.search(r"^data\s+=\s+bsize=(\d+)\s+blocks=(\d+)", text, flags=re.MULTILINE)
    stripe = re.search(r"^\s+=\s+sunit=(\d+)\s+swidth=(\d+) blks", text, flags=re.MULTILINE)
    if not block or not stripe:
        return None
    size = int(block.group(1))
    return Geometry(int(stripe.group(1)) * size, int(stripe.group(2)) * size, int(block.group(2)) * size)


def parse_dumpe2fs(text: str) -> Geometry | None:
    """The same of ``dumpe2fs -h``, which leaves the lines out where there is no stripe."""
    block = re.search(r"^Block size:\s+(\d+)", text, flags=re.MULTILINE)
    if not block:
        return None
    size = int(block.group(1))
    stride = re.search(r"^RAID stride:\s+(\d+)", text, flags=re.MULTILINE)
    width = re.search(r"^RAID stripe width:\s+(\d+)", text, flags=re.MULTILINE)
    return Geometry(int(stride.group(1)) * size if stride else 0, int(width.group(1)) * size if width else 0)


def expected_geometry(level: str, disks: int, chunk_kib: int) -> Geometry | None:
    """What mkfs must have read from the array; None where there are no stripes.

    RAID10 keeps two near copies (mdadm(8)), so half of the disks make a stripe; with an odd number of disks the pattern
    repeats after all of them (raid10_nr_stripes in the kernel).
    """
    if level not in ("raid0", "raid10") or disks < 2:
        return None
    across = disks if level == "raid0" or disks % 2 else disks // 2
    return Geometry(chunk_kib * 1024, chunk_kib * 1024 * across)


def geometry_fits(have: Geometry | None, want: Geometry | None) -> bool:
    """Whether a file system lies on its stripes as it should.

    mkfs.xfs leaves stripes out on less than 1 GiB ("small data volume, ignoring data volume stripe unit").
    """
    if want is None or have == want:
        return True
    return have == Geometry(0, 0) and have.size_bytes < 1 << 30 and have.size_bytes > 0


def means(pattern: str, disk: Disk) -> bool:
    """Whether a pattern of names below ``/dev/disk`` means this disk.

    Names in folders of folders are meant only by a pattern as deep: ``/dev/disk/azure/*`` is not every disk of a cloud.
    """
    return any(
        fnmatch.fnmatchcase(link, pattern) and (link.count("/") <= _LINK_DEPTH or link.count("/") == pattern.count("/"))
        for link in disk.links
    )


def matches(disk: Disk, wanted: Wanted) -> str:
    """Why the selector does not take the disk; empty when it does."""
    if disk.transport not in wanted.transports:
        return f"its transport is {disk.transport}"
    if wanted.models and not any(fnmatch.fnmatchcase(disk.model, pattern) for pattern in wanted.models):
        return f"its model is {disk.model or 'unknown'}"
    if wanted.by_id and not any(means(pattern, disk) for pattern in wanted.by_id):
        return "no name of it below /dev/disk matches"
    if disk.bytes < wanted.min_mib << 20:
        return f"it has only {disk.bytes >> 20} MiB"
    if wanted.max_mib and disk.bytes > wanted.max_mib << 20:
        return f"it has {disk.bytes >> 20} MiB"
    return ""


__all__ = [
    "FILESYSTEMS",
    "LEVELS",
    "Array",
    "Directory",
    "Disk",
    "Geometry",
    "Member",
    "Mount",
    "Node",
    "Signature",
    "Wanted",
    "array_name",
    "bad_input",
    "device_mounts",
    "expected_geometry",
    "geometry_fits",
    "matches",
    "means",
    "parse_dumpe2fs",
    "parse_examine",
    "parse_mdstat",
    "parse_wipefs",
    "parse_xfs_info",
    "plain_uuid",
    "wanted_from",
]
