# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Looks at a node's disks and arrays for ``nvme_raid``. Reads only: sysfs, two processes where nothing is to be done.

Every reader takes the directory that stands for ``/``.
"""

from __future__ import annotations

import dataclasses
import os
import re
import stat
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Runner
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import entry_names, read_int, read_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.mounts import MountEntry, read_mounts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.sysfs import is_network_disk, nvme_controller
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.bare import is_immutable
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.begun import read_begun
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.content import (
    read_signatures,
    with_content,
    with_name,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import (
    Array,
    Directory,
    Disk,
    Mount,
    Node,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.points import left_behind
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import Wanted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.selector import matches

# Whole disks by the names that the kernel gives them.
_DISK = re.compile(r"^(?:nvme\d+n\d+|sd[a-z]+|vd[a-z]+|xvd[a-z]+|loop\d+)$")
# Folders of links below /dev/disk that name what is on a disk and not the disk.
_CONTENT_LINKS = {"by-uuid", "by-label", "by-partuuid", "by-partlabel", "by-diskseq"}
# How many files that are in the way are named.
_NAMES = 3
# What systemd and podman leave for those inside a container. Not /.dockerenv: machines made from container images have it.
_CONTAINER_MARKS = ("run/systemd/container", "run/.containerenv")


def _order(name: str) -> list[t.Any]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def device_mounts(entries: t.Iterable[MountEntry], names: t.Mapping[str, str]) -> tuple[Mount, ...]:
    """The mounts with the kernel's names of their devices. ``names``: these by number (``259:3``)."""
    # btrfs and overlays have no device number of their own, a mounted /dev/root has no usable name.
    return tuple(
        Mount(entry.point, entry.filesystem, names.get(entry.number, entry.device), entry.options, entry.root)
        for entry in entries
    )


def stable_links(root: Path) -> dict[str, tuple[str, ...]]:
    """The names below ``/dev/disk`` of every disk, those that tell model and serial number first."""
    found: dict[str, list[str]] = {}
    # Folders have folders: /dev/disk/azure/local/by-serial (azure-vm-utils). A link to a folder is not followed.
    for base, folders, files in os.walk(root / "dev/disk"):
        for name in [*folders, *files]:
            path = Path(base, name)
            if path.is_symlink():
                link = f"/{path.relative_to(root)}"
                found.setdefault(os.path.basename(os.readlink(path)), []).append(link)
        folders[:] = [name for name in folders if name not in _CONTENT_LINKS]

    def rank(link: str) -> tuple[bool, bool, bool, int, str]:
        name = os.path.basename(link)
        number = name.startswith(("nvme-eui.", "nvme-uuid.", "nvme-nvme.", "wwn-"))
        return not link.startswith("/dev/disk/by-id/"), "/by-serial/" not in link, number, len(name), link

    return {disk: tuple(sorted(links, key=rank)) for disk, links in found.items()}


def unprobed(root: Path = Path("/")) -> list[str]:
    """NVMe controllers on the PCI bus that have no disk yet.

    The kernel looks at them in the background, and udev's queue is empty meanwhile.
    """
    base = root / "sys/bus/pci/devices"
    found = []
    for function in entry_names(base):
        # Class 0x0108: non-volatile memory controller.
        if not read_text(base / function / "class").startswith("0x0108"):
            continue
        controllers = entry_names(base / function / "nvme")
        names = [name for controller in controllers for name in entry_names(base / function / "nvme" / controller)]
        if not any(re.match(r"nvme\d+(?:c\d+)?n\d+$", name) for name in names):
            found.append(function)
    return found


def _transport(name: str) -> str:
    if name.startswith("nvme"):
        return "nvme"
    if name.startswith("sd"):
        return "scsi"
    return "loop" if name.startswith("loop") else "virtio"


def _nvme_identity(base: Path) -> tuple[str, bool, tuple[str, ...]]:
    """A disk's model, whether it is local, and what must be read to know that and could not be."""
    device = base / "device"
    controller = nvme_controller(device)
    transport = read_text(controller / "transport")
    model = read_text(device / "model") or read_text(controller / "model")
    if is_network_disk(transport or "pcie", model):
        return model, False, ()
    # A model may be blank, a transport never is.
    named = model or (device / "model").exists() or (controller / "model").exists()
    return model, True, (() if transport else ("transport",)) + (() if named else ("model",))


class Reader:
    """Reads one node. ``wanted`` says which disks need a closer look: the others are not opened."""

    def __init__(self, runner: Runner, wanted: Wanted, root: Path = Path("/")) -> None:
        self.runner, self.wanted, self.root = runner, wanted, root
        self.block = root / "sys/block"
        self.loops: dict[str, list[str]] = {}

    def node(self) -> Node:
        """Everything that decisions are made from."""
        self.loops = self._loops()
        names = self._numbers()
        mounts = device_mounts(read_mounts(self.root), names)
        swaps = {line.split()[0].rpartition("/")[2] for line in read_text(self.root / "proc/swaps").splitlines()[1:]}
        disks = self._disks(mounts, swaps)
        arrays = [self._array(name) for name in entry_names(self.block) if (self.block / name / "md").is_dir()]
        members = {member for array in arrays for member in array.members}
        look = [d.name for d in disks if (not matches(d, self.wanted) or d.name in members) and not d.contained]
        signatures = read_signatures(self.runner, [*look, *(array.device for array in arrays if array.active)])
        disks = [
            with_content(self.runner, self.root, disk, signatures, arrays) if disk.name in look else disk
            for disk in disks
        ]
        arrays = [with_name(self.runner, self.root, array, disks, signatures) for array in arrays]
        begun = read_begun(self.root, self.wanted.name)
        point = self.wanted.mount_point.rstrip("/")
        old = left_behind(self.root, self.wanted.name, point, {mount.point for mount in mounts})
        return Node(tuple(disks), tuple(arrays), mounts, self._directory(mounts), begun, old)

    def _numbers(self) -> dict[str, str]:
        """Names of block devices and partitions by their numbers."""
        numbers = {}
        for name in entry_names(self.block):
            numbers[read_text(self.block / name / "dev")] = name
            for part in self._partitions(name):
                numbers[read_text(self.block / name / part / "dev")] = part
        return numbers

    def _partitions(self, disk: str) -> tuple[str, ...]:
        base = self.block / disk
        return tuple(
            name for name in entry_names(base) if name.startswith(disk) and (base / name / "partition").exists()
        )

    def _disks(self, mounts: t.Sequence[Mount], swaps: set[str]) -> list[Disk]:
        links = stable_links(self.root)
        contained = any((self.root / mark).exists() for mark in _CONTAINER_MARKS)
        disks = []
        for name in sorted(filter(_DISK.match, entry_names(self.block)), key=_order):
            base = self.block / name
            size = read_int(base / "size")
            # A namespace path of NVMe multipath is not a disk of its own; an unused loop device has no size.
            if read_text(base / "hidden") == "1" or size == 0:
                continue
            transport = _transport(name)
            model, local, unread = (
                _nvme_identity(base) if transport == "nvme" else (read_text(base / "device/model"), True, ())
            )
            parts = self._partitions(name)
            holders = self._holders(name)
            stacked = {top for holder in holders for top in self._above(holder)}
            disks.append(
                Disk(
                    name,
                    links.get(name, ()),
                    model,
                    (size or 0) * 512,  # always 512-byte units, whatever the disk's own block size
                    transport,
                    local,
                    contained,
                    read_text(base / "ro") == "1",
                    read_text(base / "removable") == "1",
                    parts,
                    tuple(dict.fromkeys(holders)),
                    tuple(dict.fromkeys(mount.point for mount in mounts if mount.device in {name, *parts})),
                    tuple(dict.fromkeys(mount.point for mount in mounts if mount.device in stacked)),
                    bool(swaps & {name, *parts, *stacked}),
                    unread=(("size",) if size is None else ()) + unread,
                )
            )
        return disks

    def _above(self, device: str) -> t.Iterator[str]:
        """A device and all that is built on it."""
        yield device
        for holder in self._holders(device):
            yield from self._above(holder)

    def _holders(self, device: str) -> list[str]:
        """The md, dm and loop devices that were made of a device or its partitions."""
        base, parts = self.block / device, self._partitions(device)
        inner = [holder for part in parts for holder in entry_names(base / part / "holders")]
        loops = [loop for name in (device, *parts) for loop in self.loops.get(name, [])]
        return [*entry_names(base / "holders"), *inner, *loops]

    def _loops(self) -> dict[str, list[str]]:
        """Loop devices by the device that their data lies on: the kernel neither names them as holders nor refuses exclusive use."""
        found: dict[str, list[str]] = {}
        for name in entry_names(self.block):
            # No other device has this attribute.
            path = read_text(self.block / name / "loop/backing_file") if name.startswith("loop") else ""
            if path.startswith("/dev/"):
                found.setdefault(os.path.basename(path), []).append(name)
        return found

    def _array(self, device: str) -> Array:
        """What sysfs tells of an md array; its name and UUID are written on its members."""
        base = self.block / device / "md"
        state = read_text(base / "array_state")
        active = state not in ("inactive", "clear", "")
        level = read_text(base / "level")
        disks = read_int(base / "raid_disks") or 0
        members = tuple(sorted(entry_names(self.block / device / "slaves"), key=_order))
        # RAID0 knows no degraded state: without a disk it is lost ("broken" since kernel 5.5).
        failed = state == "broken" or (active and level == "raid0" and len(members) < disks)
        return Array(
            device,
            "",
            "",
            level,
            disks,
            members,
            active,
            failed,
            read_int(base / "degraded") or 0,
            (read_int(base / "chunk_size") or 0) // 1024,
            read_text(base / "sync_action") or "idle",
            tuple(self._holders(device)),
        )

    def _directory(self, mounts: t.Sequence[Mount]) -> Directory:
        """The mount point, and whether files would be lost with what is mounted there."""
        path = self.wanted.mount_point.rstrip("/")
        try:
            found = os.lstat(self.root / path.lstrip("/"))
        except FileNotFoundError:
            return Directory()
        except NotADirectoryError:
            return Directory(False, "path below a file")
        if not stat.S_ISDIR(found.st_mode):
            return Directory(False, "link" if stat.S_ISLNK(found.st_mode) else "file")
        mounted = any(mount.point == path for mount in mounts)
        try:
            entries = os.listdir(self.root / path.lstrip("/"))
        except OSError:
            # A file system in trouble: what cannot be looked at counts as full.
            entries = ["?"]
        # mke2fs makes lost+found itself; fsck puts into it what it has saved.
        saved = entry_names(self.root / path.lstrip("/") / "lost+found")
        files = mounted and bool(set(entries) - {"lost+found"} or saved)
        bare = Directory() if mounted else self._bare(path, entries)
        mode = stat.S_IMODE(found.st_mode)
        return dataclasses.replace(
            bare, empty=not entries, mode=mode, owner=found.st_uid, group=found.st_gid, holds_files=files
        )

    def _bare(self, path: str, entries: t.Sequence[str]) -> Directory:
        """What there is to know of the mount point only while nothing is mounted on it."""
        try:
            immutable = is_immutable(str(self.root / path.lstrip("/")))
        except OSError:
            immutable = False
        return Directory(names=tuple(sorted(entries)[:_NAMES]), immutable=immutable)


__all__ = ["Reader", "device_mounts", "stable_links", "unprobed"]
