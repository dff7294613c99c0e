# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What ``nvme_raid`` is asked for: checked before anything is looked at, and frozen."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.mkfs_options import refused_word
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import plain_uuid

LEVELS = ("raid0", "raid1", "raid10", "single")
FILESYSTEMS = ("xfs", "ext4")
# Limits of the formats: XFS_LABEL max 12 bytes (mkfs.xfs(8)), ext4 16 bytes (mke2fs(8)), md's name 32 bytes (md(4)).
_LABEL_BYTES = {"xfs": 12, "ext4": 16}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,30}")
# Kernel names are given in the order in which disks answer at boot. Nothing lasting may be tied to them.
_KERNEL_NAME = re.compile(r"(?:/dev/)?(?:nvme\d+n\d+|sd[a-z]+|vd[a-z]+|xvd[a-z]+)")
# md tells mkfs its geometry; passing it again makes mkfs disagree with the array or shrink its log stripes.
_OTHER_MOUNTS = {"bind", "loop", "move", "offset", "rbind", "remount", "sizelimit"}
_GEOMETRY = re.compile(r"(?:^|[,=\s])(?:su|sw|sunit|swidth|stride|stripe[_-]width)=")


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
    mount_over_files: bool = False
    owner: int = 0
    group: int = 0
    mode: str = "01777"
    blank_check: str = "zeros"
    allow_format: bool = False
    format_devices: tuple[str, ...] = ()
    allow_data_loss: bool = False

    @property
    def says_which(self) -> bool:
        """Whether it says how many disks an array is to be made of, or which."""
        return bool(self.expected_disks or self.models or self.by_id or self.level == "single")


def bad_input(message: str, remedy: str) -> ClusterError:
    return ClusterError("bad_input", message, remedy)


def _number(value: t.Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise bad_input(f"`{what}` is {value!r}.", "Use a whole number, 0 or more.")
    return value


def wanted_from(settings: t.Mapping[str, t.Any]) -> Wanted:
    """The request of a module's parameters, or of the settings that the boot unit reads. Raises ClusterError where it cannot be met.

    Keys that are no field of it are left out. Owner and group must be numbers already: only the node knows who they are.
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
    if not _NAME.fullmatch(wanted.name):
        raise bad_input(
            f"`name`: {wanted.name!r} is not a name for an array.",
            "Use up to 31 letters, digits, hyphens and underscores.",
        )
    for value, allowed, key in (
        (wanted.level, LEVELS, "level"),
        (wanted.filesystem, FILESYSTEMS, "filesystem"),
        (wanted.state, ("present", "absent", "assembled", "inspected"), "state"),
        (wanted.blank_check, ("zeros", "signatures"), "blank_check"),
    ):
        if value not in allowed:
            raise bad_input(f"`{key}` is {value!r}.", f"Use one of {', '.join(allowed)}.")
    limit = _LABEL_BYTES[wanted.filesystem]
    if len(wanted.label.encode()) > limit or not re.fullmatch(r"[!-~]+", wanted.label):
        raise bad_input(
            f"`label`: {wanted.label!r} cannot be the label of an {wanted.filesystem} file system.",
            f"Use at most {limit} printable characters without spaces.",
        )
    if wanted.level in ("raid0", "raid10") and (wanted.chunk_kib < 4 or wanted.chunk_kib & (wanted.chunk_kib - 1)):
        raise bad_input(f"`chunk_kib`: chunks cannot have {wanted.chunk_kib} KiB.", "Use a power of two, at least 4.")
    if not re.fullmatch(r"/[^/\s].*", wanted.mount_point) or {".", ".."} & {*wanted.mount_point.split("/")}:
        raise bad_input(
            f"`mount_point`: {wanted.mount_point!r} cannot be a mount point.", "Use an absolute path below the root."
        )
    if not re.fullmatch(r"[0-7]{3,5}", wanted.mode):
        raise bad_input(f"`mode`: {wanted.mode!r} is not a mode.", 'Write it in octal and quoted, as in "01777".')
    _check_devices(wanted)
    _check_given_through(wanted)


def _check_given_through(wanted: Wanted) -> None:
    """Options of mount and mkfs."""
    options = ",".join(wanted.mount_options).split(",")
    other = sorted({option.partition("=")[0] for option in options} & _OTHER_MOUNTS)
    if other:
        raise bad_input(
            f"`mount_options` has {other[0]}: something else would be mounted than the file system that is made here.",
            "Take it out.",
        )
    if "ro" in options:
        raise bad_input("`mount_options` has ro: nobody could write to it, its owner could not be set.", "Take it out.")
    if "nobarrier" in wanted.mount_options:
        raise bad_input(
            "`mount_options` has nobarrier, which kernels do not know any more: the mount would fail.", "Take it out."
        )
    if any(_GEOMETRY.search(option) for option in wanted.mkfs_options):
        raise bad_input(
            "`mkfs_options` gives a stripe geometry.",
            "Leave it out: mkfs reads it from the array, and what it read is verified.",
        )
    word = refused_word(wanted.mkfs_options, wanted.filesystem)
    if word:
        raise bad_input(
            f"`mkfs_options`: {word} would mean another device, another label or type, or no file system at all.",
            "Take it out. The device is chosen here, the label is `label`, and the type is `filesystem`.",
        )


def _check_devices(wanted: Wanted) -> None:
    fixed = [
        pattern for pattern in wanted.by_id if _KERNEL_NAME.fullmatch(pattern) or not pattern.startswith("/dev/disk/")
    ]
    if fixed:
        raise bad_input(
            f"`by_id`: {fixed[0]} does not name the same disk after every boot.",
            "Select by `models`, `min_mib`, `max_mib` or `transports`, or by names below /dev/disk, such as /dev/disk/by-id/nvme-….",
        )
    patterns = [entry for entry in wanted.format_devices if re.search(r"[*?\[]", entry)]
    if patterns:
        raise bad_input(f"`format_devices`: {patterns[0]} is a pattern.", "Name every disk that may be formatted.")


__all__ = ["FILESYSTEMS", "LEVELS", "Wanted", "bad_input", "wanted_from"]
