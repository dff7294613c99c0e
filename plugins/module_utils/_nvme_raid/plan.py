# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Which disks may be used, and what has to be done with them: the safety rules of ``nvme_raid``, as pure functions.

The module and the unit that runs at boot both decide here, and only here.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import (
    Array,
    Disk,
    Mount,
    Node,
    Signature,
    Wanted,
    bad_input,
    matches,
    means,
)

# Where a mount means that the machine runs from this disk.
_SYSTEM_MOUNTS = frozenset({"/", "/boot", "/boot/efi", "/usr", "/var", "/etc", "/home", "/nix", "/sysroot"})
_KINDS = {
    "linux_raid_member": "is a member of the md array {label}",
    "LVM2_member": "is an LVM physical volume",
    "zfs_member": "is a member of the ZFS pool {label}",
    "crypto_LUKS": "holds an encrypted volume",
    "swap": "is a swap area",
    "gpt": "holds a partition table (gpt)",
    "dos": "holds a partition table (dos)",
    "PMBR": "holds a partition table (gpt)",
}
# Mount options that can be compared with what the kernel shows and changed while mounted.
_FLAGS = ("noatime", "relatime", "strictatime", "nodiratime", "nosuid", "nodev", "noexec", "ro")
_DISKS_MIN = {"raid0": 1, "raid1": 2, "raid10": 2, "single": 1}


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What may be done with one disk.

    ``ours``: carries what is wanted. ``free``: empty, may be used. ``data``: holds something, which consent may give up.
    ``excluded``: never touched, whatever was consented to. ``unselected``: not asked for.
    """

    disk: Disk
    use: str
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Step:
    """One change. ``what`` says it in words; the rest is for the half that carries it out."""

    kind: str
    what: str
    device: str = ""
    disks: tuple[str, ...] = ()
    value: str = ""


@dataclasses.dataclass(frozen=True)
class Found:
    """What is there already of what is wanted."""

    kind: str  # array: the kernel has it. members: only the disks tell of it. single: a file system on one disk
    device: str = ""
    uuid: str = ""
    level: str = ""
    disks: int = 0
    members: tuple[str, ...] = ()
    active: bool = False
    array: Array | None = None
    signatures: tuple[Signature, ...] | None = ()
    blank: bool = True

    @property
    def complete(self) -> bool:
        return len(self.members) >= self.disks and not (self.array and (self.array.failed or self.array.degraded))


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to do, in order, and what is worth knowing besides: ``warnings`` tell what was probably not meant."""

    verdicts: tuple[Verdict, ...]
    found: Found | None
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    degraded: str = ""
    warnings: tuple[str, ...] = ()


def describe(signature: Signature) -> str:
    """A signature in words, as a predicate of its disk."""
    named = f" labeled {signature.label}" if signature.label else ""
    text = _KINDS.get(signature.type, f"holds {signature.type}{named}")
    return text.format(label=signature.label or "of unknown name")


def _names(disks: t.Iterable[Disk]) -> str:
    return ", ".join(disk.stable for disk in disks)


def _origin(disk: Disk) -> str:
    """Why a disk is none to be used, whoever made what is on it."""
    if disk.contained:
        return "belongs to the machine that this container runs on"
    if not disk.local:
        return "is network storage, not a disk of this machine"
    return "is removable" if disk.removable else ""


def _hard_reason(disk: Disk, ours: t.Collection[str], node: Node) -> str:
    """Why the disk must never be touched; ``ours`` are devices that belong to what is wanted."""
    if disk.contained:
        return _origin(disk)
    system = sorted({*disk.mounts, *disk.stacked_mounts} & _SYSTEM_MOUNTS)
    if system:
        return f"carries the operating system (mounted on {system[0]})"
    if disk.mounts and disk.name not in ours:
        return f"is mounted on {', '.join(disk.mounts)}"
    if disk.swap:
        return "is in use as swap"
    foreign = [holder for holder in disk.holders if holder not in ours]
    if foreign:
        names = {array.device: f"the md array {array.name or array.device}" for array in node.arrays}
        return f"is in use by {', '.join(names.get(holder, holder) for holder in foreign)}"
    if _origin(disk):
        return _origin(disk)
    if disk.read_only:
        return "is read-only"
    if disk.signatures is None:
        return "cannot be read"
    if disk.busy and disk.name not in ours and not disk.holders:
        return "is in use: the kernel refuses exclusive access"
    return ""


def _data_reason(disk: Disk, wanted: Wanted) -> str:
    """What is on a disk that nothing uses; empty when it is empty."""
    told = list(dict.fromkeys(describe(signature) for signature in disk.signatures or ()))
    if disk.partitions and not any("partition table" in text for text in told):
        told.insert(0, f"has partitions ({', '.join(disk.partitions)})")
    if told:
        return " and ".join(told)
    if not disk.blank and wanted.blank_check == "zeros":
        return "holds data that is not recognized at its start or end"
    return ""


def judge(wanted: Wanted, node: Node, found: Found | None) -> tuple[Verdict, ...]:
    """The verdict on every disk of the node."""
    devices = {found.device} if found and found.device else set()
    members = set(found.members) if found else set()
    verdicts = []
    for disk in node.disks:
        mine = disk.name in members
        unselected = matches(disk, wanted)
        hard = _hard_reason(disk, devices, node)
        if mine and not hard:
            verdicts.append(Verdict(disk, "ours", unselected and f"does not match: {unselected}"))
        elif unselected:
            verdicts.append(Verdict(disk, "unselected", unselected))
        elif hard:
            verdicts.append(Verdict(disk, "excluded", hard))
        else:
            data = _data_reason(disk, wanted)
            verdicts.append(Verdict(disk, "data" if data else "free", data))
    return tuple(verdicts)


def find(wanted: Wanted, node: Node) -> Found | None:
    """What is there already: by the array's name or UUID, or by the label of a file system on one disk."""

    def ours(name: str, uuid: str) -> bool:
        return uuid == wanted.uuid if wanted.uuid else name == wanted.name

    arrays = [array for array in node.arrays if ours(array.name, array.uuid)]
    waiting = [disk for disk in node.disks if disk.member and ours(disk.member.name, disk.member.uuid)]
    uuids = {array.uuid for array in arrays} | {disk.member.uuid for disk in waiting if disk.member}
    if len(uuids) > 1:
        raise ClusterError(
            "ambiguous",
            f"There are {len(uuids)} arrays named {wanted.name}: {', '.join(sorted(uuids))}.",
            "Say which one with `uuid`, or remove the other from its disks with `mdadm --zero-superblock`.",
        )
    if arrays:
        array = arrays[0]
        # A disk that lost its place in the array is named by its own superblock only.
        named = next((disk.member for disk in waiting if disk.member), None)
        disks = array.disks or (named.disks if named else 0)
        level = array.level or (named.level if named else "")
        members = array.members if array.active else tuple(disk.name for disk in waiting) or array.members
        return Found(
            "array", array.device, array.uuid, level, disks, members, array.active and not array.failed, array,
            array.signatures, array.blank,
        )  # fmt: skip
    if waiting:
        member = max((disk.member for disk in waiting if disk.member), key=lambda entry: entry.events)
        return Found(
            "members", "", member.uuid, member.level, member.disks, tuple(disk.name for disk in waiting), False
        )
    return _find_single(wanted, node)


def _labeled(wanted: Wanted, node: Node) -> list[tuple[Disk, str]]:
    """Whole disks with a file system of the wanted type and label, and why one of them is none of ours."""
    if wanted.level not in ("single", "raid0"):
        return []
    candidates = [
        disk
        for disk in node.disks
        if not matches(disk, wanted)
        and not disk.partitions
        and [(signature.type, signature.label) for signature in disk.signatures or ()]
        == [(wanted.filesystem, wanted.label)]
    ]
    return [(disk, _not_ours(disk, wanted, node)) for disk in candidates]


def _not_ours(disk: Disk, wanted: Wanted, node: Node) -> str:
    """Why a file system with our label is somebody else's.

    Not because it is mounted where we mount it, and its folders elsewhere, nor because its disk became read-only.
    """
    if wanted.mount_point.rstrip("/") in disk.mounts:
        return _origin(disk)
    return _hard_reason(dataclasses.replace(disk, read_only=False), {disk.name}, node)


def _find_single(wanted: Wanted, node: Node) -> Found | None:
    """A file system of the wanted type and label that lies on a whole disk."""
    candidates = [disk for disk, reason in _labeled(wanted, node) if not reason]
    if len(candidates) > 1:
        raise ClusterError(
            "ambiguous",
            f"{_names(candidates)} all hold {wanted.filesystem} labeled {wanted.label}.",
            "Narrow the selector so that one is left, or set another `label`.",
        )
    if not candidates:
        return None
    disk = candidates[0]
    return Found("single", disk.name, "", "single", 1, (disk.name,), True, None, disk.signatures, False)


def consented(disk: Disk, wanted: Wanted) -> bool:
    """Whether the data of this very disk was given up."""
    return wanted.allow_format and bool({disk.path, *disk.links} & set(wanted.format_devices))


def _check_listing(wanted: Wanted, usable: t.Iterable[Verdict]) -> None:
    """Consent must name disks in a way that still means them after a reboot."""
    listed = set(wanted.format_devices)
    for disk in (verdict.disk for verdict in usable if verdict.use == "data"):
        if disk.links and not listed & set(disk.links):
            raise bad_input(
                f"`format_devices` names {disk.path}, which may be another disk after a reboot.",
                f"Write {disk.stable} instead.",
            )


def plan(wanted: Wanted, node: Node) -> Plan:
    """What must be done. Raises ClusterError where nothing may be done."""
    found = find(wanted, node)
    verdicts = judge(wanted, node, found)
    if wanted.state == "absent":
        made = plan_absent(wanted, node, found, verdicts)
    elif found is None:
        made = _plan_new(wanted, node, verdicts)
    else:
        made = _plan_existing(wanted, node, found, verdicts)
    foreign = [] if found else [(disk, reason) for disk, reason in _labeled(wanted, node) if reason]
    left = tuple(
        f"{disk.stable} holds {wanted.filesystem} labeled {wanted.label}, but it {reason}. It is left alone."
        for disk, reason in foreign
    )
    return dataclasses.replace(made, warnings=(*_unknown_names(wanted, node.disks), *left))


def _unknown_names(wanted: Wanted, disks: t.Sequence[Disk]) -> tuple[str, ...]:
    """Names in the request that no disk has: misspelled, or of another node."""
    told = []
    if wanted.by_id and not any(means(pattern, disk) for disk in disks for pattern in wanted.by_id):
        told.append(f"`by_id` matches no disk of this node: {', '.join(wanted.by_id)}.")
    there = {name for disk in disks for name in (disk.path, *disk.links)}
    unknown = [name for name in wanted.format_devices if name not in there]
    if wanted.allow_format and unknown:
        told.append(f"`format_devices` names no disk of this node: {', '.join(unknown)}.")
    return tuple(told)


# -- something is there ------------------------------------------------------------------------------------------------


def _conflict(message: str) -> ClusterError:
    return ClusterError(
        "array_conflict",
        message,
        "Ask for what is there, or remove it first (state absent; entry point remove of the role).",
    )


def _check_shape(wanted: Wanted, found: Found, verdicts: t.Sequence[Verdict]) -> None:
    """The array must be the one that is wanted: it is never changed into another."""
    strange = [verdict for verdict in verdicts if verdict.use == "ours" and verdict.reason]
    if strange:
        raise _conflict(f"{wanted.name} has the disk {strange[0].disk.stable}, but it {strange[0].reason}.")
    _check_members(wanted, found, [verdict.disk for verdict in verdicts if verdict.disk.name in found.members])
    if found.kind == "single":
        blank = [verdict.disk for verdict in verdicts if verdict.use == "free"]
        if wanted.expected_disks > 1 or (wanted.level != "single" and blank):
            raise _conflict(f"{wanted.label} is a file system on the single disk {found.device}, not an array.")
        return
    if found.level and found.level != wanted.level:
        raise _conflict(f"{wanted.name} is a {found.level}, not a {wanted.level}.")
    if wanted.expected_disks and found.disks and found.disks != wanted.expected_disks:
        raise _conflict(f"{wanted.name} was made of {found.disks} disks, not of {wanted.expected_disks}.")
    chunk = found.array.chunk_kib if found.array else 0
    if chunk and wanted.level != "raid1" and chunk != wanted.chunk_kib:
        raise _conflict(f"{wanted.name} has chunks of {chunk} KiB, not of {wanted.chunk_kib} KiB.")


def _check_members(wanted: Wanted, found: Found, disks: t.Iterable[Disk]) -> None:
    """What is there is not used on a disk that never may be. How it is in use is no matter: by itself, as a rule."""
    copies = found.level in ("raid1", "raid10")
    for disk in disks:
        reason = _origin(disk) or ("is read-only" if disk.read_only and not copies else "")
        if reason:
            raise ClusterError(
                "array_conflict",
                f"{wanted.name} lies on {disk.stable}, which {reason}. Nothing was changed.",
                "Set another `name` to leave it alone. A disk that became read-only has failed: see "
                "`journalctl -k`, and replace it.",
            )


def _missing(wanted: Wanted, found: Found, node: Node) -> ClusterError:
    """The array lost disks that it cannot do without."""
    have = [disk for disk in node.disks if disk.name in found.members]
    why = "stopped working" if found.array and found.array.failed else f"only {len(have)} of them are there"
    return ClusterError(
        "disk_missing",
        f"{wanted.name} ({found.level}) was made of {found.disks} disks, and {why}: {_names(have)}. Nothing was changed.",
        "Bring the missing disk back, or take the node out of service. To give the rest up and start anew, set "
        "`allow_format` and list these disks in `format_devices`.",
        disks_missing=max(found.disks - len(have), 0),
    )


def _plan_existing(wanted: Wanted, node: Node, found: Found, verdicts: tuple[Verdict, ...]) -> Plan:
    if not found.active and not _can_run(found):
        members = [verdict for verdict in verdicts if verdict.disk.name in found.members]
        if wanted.state == "present" and members and all(consented(entry.disk, wanted) for entry in members):
            return _start_anew(wanted, node, found, verdicts)
        raise _missing(wanted, found, node)
    if found.array and found.array.failed:
        raise _missing(wanted, found, node)
    _check_shape(wanted, found, verdicts)
    steps: list[Step] = []
    if found.active:
        steps += _plan_filesystem(wanted, node, found)
    else:
        stop = found.device
        what = f"assemble {wanted.name} from {', '.join(sorted(found.members))}"
        steps.append(Step("assemble", what, stop, found.members, found.uuid))
        steps.append(Step("mount", f"mount {wanted.name} at {wanted.mount_point}"))
    notes, degraded = _look_at_redundancy(wanted, found, verdicts, steps)
    return Plan(verdicts, found, tuple(steps), notes, degraded)


def _can_run(found: Found) -> bool:
    """Whether the disks that are there suffice to start the array; which ones are copies only md knows exactly."""
    if len(found.members) >= found.disks:
        return True
    if found.level == "raid1":
        return bool(found.members)
    return found.level == "raid10" and 2 * len(found.members) >= found.disks


def _look_at_redundancy(
    wanted: Wanted, found: Found, verdicts: tuple[Verdict, ...], steps: list[Step]
) -> tuple[tuple[str, ...], str]:
    """Notes, and what is wrong with an array that runs with fewer disks than it should have."""
    free = [verdict.disk for verdict in verdicts if verdict.use == "free"]
    lost = found.disks - len(found.members)
    if found.array and found.array.degraded:
        lost = max(lost, found.array.degraded)
    if found.kind != "single" and lost > 0:
        rebuilding = bool(found.array and found.array.action in ("recover", "resync"))
        if free and found.active and not rebuilding and wanted.state == "present":
            for disk in free[:lost]:
                steps.insert(0, Step("add", f"add {disk.name} to {wanted.name}", found.device, (disk.name,)))
        text = f"{wanted.name} is degraded: {found.disks - lost} of its {found.disks} disks work"
        return (), f"{text}, it is being rebuilt" if rebuilding else text
    if free and wanted.level != "single":
        return (f"{_names(free)} matches, but {wanted.name} was made without it",), ""
    return (), ""


def _plan_filesystem(wanted: Wanted, node: Node, found: Found) -> list[Step]:
    """What is missing between a running array and a directory that can be used."""
    device = f"/dev/{found.device}"
    steps: list[Step] = []
    if found.signatures is None:
        raise ClusterError("unreadable", f"{device} cannot be read.", "See the kernel log: `journalctl -k`.")
    if found.array and found.array.holders:
        raise _conflict(f"{wanted.name} is in use by {', '.join(found.array.holders)}.")
    kinds = {(signature.type, signature.label) for signature in found.signatures}
    if not kinds:
        if not found.blank and wanted.blank_check == "zeros":
            raise _foreign_content(wanted, "data that is not recognized")
        if wanted.state == "assembled":
            raise ClusterError(
                "no_filesystem",
                f"{wanted.name} holds no file system, and state assembled makes none.",
                "Use state present.",
            )
        steps.append(Step("mkfs", f"make {wanted.filesystem} on {wanted.name}", device))
    elif kinds != {(wanted.filesystem, wanted.label)}:
        told = " and ".join(describe(signature) for signature in found.signatures)
        raise _foreign_content(wanted, f"something else: it {told}")
    return steps + plan_mount(wanted, node, found.device)


def _foreign_content(wanted: Wanted, what: str) -> ClusterError:
    return ClusterError(
        "foreign_data",
        f"{wanted.name} does not hold {wanted.filesystem} labeled {wanted.label}, but {what}. Nothing was changed.",
        "Set `filesystem` and `label` to what is there, or remove the array first.",
    )


def plan_mount(wanted: Wanted, node: Node, device: str) -> list[Step]:
    """Mount the device where it is wanted, with the wanted owner and mode. An empty device: what mkfs will make."""
    point = wanted.mount_point.rstrip("/")
    there = [mount for mount in node.mounts if mount.point == point]
    # The last line of mountinfo is the mount that one sees.
    if there and (there[-1].device != device or not device):
        raise ClusterError(
            "in_the_way",
            f"{there[-1].device or there[-1].filesystem} is mounted at {point}.",
            "Unmount it, or set another `mount_point`.",
        )
    if not there:
        elsewhere = [mount.point for mount in node.mounted(device)] if device else []
        if elsewhere:
            raise ClusterError(
                "in_the_way",
                f"{wanted.name} is mounted at {elsewhere[0]}, not at {point}.",
                "Unmount it there, or set `mount_point` to it.",
            )
        _check_directory(wanted, node)
        return [Step("mount", f"mount {wanted.name} at {point}", f"/dev/{device}" if device else "")]
    return [*_plan_flags(wanted, there[-1]), *_plan_owner(wanted, node)]


def _check_directory(wanted: Wanted, node: Node) -> None:
    if node.directory.kind != "directory":
        raise ClusterError(
            "in_the_way",
            f"{wanted.mount_point} is a {node.directory.kind}, not a directory.",
            "Move it away, or set another `mount_point`.",
        )
    if not node.directory.empty:
        raise ClusterError(
            "in_the_way",
            f"{wanted.mount_point} is not empty; the mount would hide its files.",
            "Move them away, or set another `mount_point`.",
        )


def _plan_flags(wanted: Wanted, mount: Mount) -> list[Step]:
    missing = [flag for flag in _FLAGS if flag in wanted.mount_options and flag not in mount.options]
    if not missing:
        return []
    return [Step("remount", f"mount {mount.point} again with {','.join(missing)}", value=",".join(missing))]


def _plan_owner(wanted: Wanted, node: Node) -> list[Step]:
    directory, mode = node.directory, int(wanted.mode, 8)
    if (directory.owner, directory.group, directory.mode) == (wanted.owner, wanted.group, mode):
        return []
    return [Step("own", f"set owner and mode of {wanted.mount_point} to {wanted.owner}:{wanted.group} {wanted.mode}")]


# -- nothing is there --------------------------------------------------------------------------------------------------


def _plan_new(wanted: Wanted, node: Node, verdicts: tuple[Verdict, ...]) -> Plan:
    """Choose the disks for a new array, or say why there are none."""
    selected = [verdict for verdict in verdicts if verdict.use != "unselected"]
    data = [verdict for verdict in selected if verdict.use == "data" and not consented(verdict.disk, wanted)]
    usable = [verdict for verdict in selected if verdict.use in ("free", "data") and verdict not in data]
    if not usable and not data and not wanted.expected_disks:
        return Plan(verdicts, None, (), ("no disk can be used, and none is expected",))
    unknown = "".join(f" {text}" for text in _unknown_names(wanted, node.disks))
    excluded = [verdict for verdict in selected if verdict.use == "excluded"]
    why = (f" Not usable: {_reasons(excluded)}." if excluded else "") + unknown
    if wanted.state == "assembled":
        raise ClusterError(
            "no_array",
            f"There is no array and no file system {wanted.name} on the disks of this node.{why}",
            "Use state present to make it.",
        )
    _check_data(wanted, usable, data, unknown)
    _check_count(wanted, usable, why)
    _check_listing(wanted, usable)
    level = "single" if len(usable) == 1 and wanted.level == "raid0" else wanted.level
    return Plan(verdicts, None, tuple(_build(wanted, node, level, usable)))


def _reasons(verdicts: t.Iterable[Verdict]) -> str:
    return "; ".join(f"{verdict.disk.stable} {verdict.reason}" for verdict in verdicts)


def _check_data(wanted: Wanted, usable: t.Sequence[Verdict], data: t.Sequence[Verdict], why: str) -> None:
    """Refuse where disks with data would be needed."""
    if data and (not wanted.expected_disks or len(usable) < wanted.expected_disks):
        raise ClusterError(
            "foreign_data",
            f"{_reasons(data)}.{why} Nothing was changed.",
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
            f"{': ' + _names(verdict.disk for verdict in usable) if usable else ''}.{why} Nothing was changed.",
            "Look for disks that died (`dmesg | grep nvme`), or set `expected_disks` and the selector to what "
            "this node has.",
            disks_missing=expected - len(usable),
        )
    if (expected and len(usable) > expected) or (wanted.level == "single" and len(usable) > 1):
        raise ClusterError(
            "too_many_disks",
            f"{expected or 1} disks are wanted for {wanted.name}, but {len(usable)} could be used: "
            f"{_names(verdict.disk for verdict in usable)}. Nothing was changed.",
            "Narrow the selector: `models`, `by_id`, `min_mib`, `max_mib`.",
        )
    if len(usable) < _DISKS_MIN[wanted.level]:
        raise ClusterError(
            "disk_missing",
            f"A {wanted.level} needs {_DISKS_MIN[wanted.level]} disks, and {len(usable)} can be used.",
            "Choose another `level`, or widen the selector.",
        )


def _start_anew(wanted: Wanted, node: Node, found: Found, verdicts: tuple[Verdict, ...]) -> Plan:
    """Give up an array that cannot run any more: every disk that is left of it was listed."""
    again = judge(wanted, node, dataclasses.replace(found, members=()))
    rest = _plan_new(wanted, node, again)
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
    yield Step("mkfs", f"make {wanted.filesystem} on {device or wanted.name}", device, names)
    yield Step("mount", f"mount {wanted.name} at {wanted.mount_point.rstrip('/')}", device)


# -- removing ----------------------------------------------------------------------------------------------------------


def plan_absent(wanted: Wanted, node: Node, found: Found | None, verdicts: tuple[Verdict, ...]) -> Plan:
    """Take the array away. Files on it, or content that cannot be looked at, are lost only with consent."""
    if found is None:
        return Plan(verdicts, None)
    strange = [
        entry for entry in verdicts if entry.disk.name in found.members and (entry.use != "ours" or entry.reason)
    ]
    if strange:
        raise ClusterError(
            "in_use", f"{_reasons(strange)}. Nothing was changed.", "End what uses it, or widen the selector."
        )
    kinds = {(signature.type, signature.label) for signature in found.signatures or ()}
    if found.active and kinds and kinds != {(wanted.filesystem, wanted.label)}:
        told = " and ".join(describe(signature) for signature in found.signatures or ())
        raise _foreign_content(wanted, f"something else: it {told}")
    mounts = node.mounted(found.device) if found.device else []
    others = [mount.point for mount in mounts if mount.point != wanted.mount_point.rstrip("/") or mount.root != "/"]
    if others or (found.array and found.array.holders):
        users = others or list(found.array.holders if found.array else ())
        raise ClusterError("in_use", f"{wanted.name} is also in use at {', '.join(users)}.", "End that first.")
    empty = (bool(mounts) and not node.directory.holds_files) or (
        found.active and found.signatures == () and found.blank
    )
    if not empty and not wanted.allow_data_loss:
        what = "holds files" if mounts else "is not mounted, so that its files cannot be looked at"
        raise ClusterError(
            "consent_missing",
            f"{wanted.name} {what}. Nothing was changed.",
            "Set `allow_data_loss: true` to remove it with everything on it.",
        )
    steps = [Step("unmount", f"unmount {mount.point}", value=mount.point) for mount in mounts]
    if found.kind == "array":
        steps.append(Step("stop", f"stop {wanted.name}", f"/dev/{found.device}", value="clear" if found.active else ""))
    members = tuple(sorted(found.members))
    steps.append(Step("erase", f"remove {wanted.name} from {', '.join(members)}", disks=members))
    return Plan(verdicts, found, tuple(steps))


__all__ = [
    "Found",
    "Plan",
    "Step",
    "Verdict",
    "consented",
    "describe",
    "find",
    "judge",
    "plan",
    "plan_absent",
    "plan_mount",
]
