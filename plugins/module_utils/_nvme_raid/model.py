# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What ``nvme_raid`` knows of a node, as plain data.

Only the standard library is used: these files also run on nodes at boot, without Ansible.
"""

from __future__ import annotations

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Signature:
    """Something that libblkid recognizes on a device."""

    type: str
    label: str = ""
    uuid: str = ""
    offset: int = 0  # in bytes, where it lies inside of the device: in a partition whose table is gone


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
    blank: bool = True  # it holds zeros only, wherever it was looked at
    member: Member | None = None
    unread: tuple[str, ...] = ()  # of size, transport and model, what could not be read: it may have appeared just now
    data_at: int | None = None  # the first byte that is known not to be zero
    half_made: bool = False  # mkfs.xfs has not ended: its superblock says so, and no kernel mounts it

    @property
    def path(self) -> str:
        return f"/dev/{self.name}"

    @property
    def stable(self) -> str:
        """The name to show and to write down: it means the same disk after the next boot."""
        return self.links[0] if self.links else self.path

    @property
    def identity(self) -> tuple[str, ...]:
        """Names that go with the disk: those of a slot mean whatever disk is in it."""
        return tuple(link for link in self.links if link.startswith("/dev/disk/by-id/"))


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
    half_made: bool = False

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

    empty: bool = True
    kind: str = "directory"
    mode: int = 0
    owner: int = 0
    group: int = 0
    holds_files: bool = False
    names: tuple[str, ...] = ()  # of what is in it while nothing is mounted there: the first few
    immutable: bool = False  # and nothing may write into it


@dataclasses.dataclass(frozen=True)
class Begun:
    """A creation that has begun and not ended: of the array with this UUID, or without one of a file system on a disk itself.

    ``disks``: the identity of that disk. Where it has none, nothing tells it from others after a boot.
    ``bare``: mkfs has not begun either, so that what the array shows is what its disks held before it.
    """

    uuid: str
    disks: tuple[str, ...] = ()
    bare: bool = False

    def names(self, disk: Disk) -> bool:
        """Whether this is the disk that the file system was to lie on itself."""
        return not self.uuid and bool(self.disks) and set(self.disks) <= set(disk.identity)

    def left(self, disk: Disk) -> bool:
        """Whether all that is on the disk is what was left of the creation."""
        if self.uuid:
            return disk.member is not None and disk.member.uuid == self.uuid
        return self.names(disk) and not disk.signatures and not disk.partitions


@dataclasses.dataclass(frozen=True)
class Node:
    """All that decisions are made from."""

    disks: tuple[Disk, ...] = ()
    arrays: tuple[Array, ...] = ()
    mounts: tuple[Mount, ...] = ()
    directory: Directory = Directory()
    begun: Begun | None = None
    left_behind: tuple[str, ...] = ()  # directories that it was mounted on, and that still take nothing new

    def mounted(self, device: str) -> list[Mount]:
        return [mount for mount in self.mounts if mount.device == device]


def plain_uuid(text: str) -> str:
    """blkid and mdadm group the same digits differently."""
    return re.sub(r"[^0-9a-f]", "", text.lower())


def array_name(text: str) -> str:
    """The name of an array without the host that md puts in front of it."""
    return text.rpartition(":")[2]


__all__ = ["Array", "Begun", "Directory", "Disk", "Member", "Mount", "Node", "Signature", "array_name", "plain_uuid"]
