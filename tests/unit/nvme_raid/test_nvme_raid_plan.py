# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which disks may be used and what is done with them: a table for every known case, and properties for all others."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.judge import judge, may_tell_more
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import (
    Array,
    Begun,
    Directory,
    Disk,
    Member,
    Mount,
    Node,
    Signature,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.plan import plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.reasons import describe
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import Wanted, wanted_from
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.steps import Plan
from hypothesis import given
from hypothesis import strategies as st

UUID = "bf2e5d29df0ae3c096d4c705ef68e771"
MEMBER = Signature("linux_raid_member", "any:scratch", "bf2e5d29-df0a-e3c0-96d4-c705ef68e771")
XFS = Signature("xfs", "scratch")
EXT4 = Signature("ext4", "data")


def disk(number: int, **changes: t.Any) -> Disk:
    basic = Disk(f"nvme{number}n1", (f"/dev/disk/by-id/nvme-Model_{number}",), "Model", 512 << 20)
    return dataclasses.replace(basic, **changes)


def ask(**changes: t.Any) -> Wanted:
    return wanted_from({"mount_point": "/mnt/scratch", "models": ["*"], **changes})


def kinds(found: Plan) -> list[str]:
    return [step.kind for step in found.steps]


def refused(wanted: Wanted, node: Node) -> ClusterError:
    with pytest.raises(ClusterError) as caught:
        plan(wanted, node)
    return caught.value


def built(level: str = "raid0", disks: int = 4, missing: int = 0, **changes: t.Any) -> Node:
    """A node whose array runs and is mounted as it is wanted."""
    names = [f"nvme{number}n1" for number in range(disks - missing)]
    array = Array(
        "md127", "scratch", UUID, level, disks, tuple(names), degraded=missing if level != "raid0" else 0,
        chunk_kib=0 if level == "raid1" else 512, signatures=(XFS,), blank=False,
    )  # fmt: skip
    return Node(
        tuple(disk(n, holders=("md127",), signatures=(MEMBER,), blank=False) for n in range(disks - missing)),
        (dataclasses.replace(array, **changes),),
        (Mount("/mnt/scratch", "xfs", "md127", ("rw", "noatime")),),
        Directory(True, "directory", 0o1777, 0, 0),
    )


def waiting(level: str, disks: int, there: int, **changes: t.Any) -> Node:
    """A node whose disks carry superblocks of an array that the kernel does not run."""
    member = Member(UUID, "scratch", level, disks)
    basic = [disk(n, signatures=(MEMBER,), blank=False, member=member) for n in range(there)]
    return Node(tuple(dataclasses.replace(entry, **changes) for entry in basic))


# -- nothing is there ----------------------------------------------------------------------------------------------------


def test_empty_disks_become_an_array() -> None:
    found = plan(ask(expected_disks=4), Node(tuple(disk(n) for n in range(4))))
    assert kinds(found) == ["create", "mkfs", "mount"]
    assert found.steps[0].disks == ("nvme0n1", "nvme1n1", "nvme2n1", "nvme3n1")
    assert found.steps[0].value == "raid0"


def test_one_disk_needs_no_array() -> None:
    for wanted in (ask(), ask(level="single")):
        found = plan(wanted, Node((disk(0),)))
        assert [(step.kind, step.device) for step in found.steps] == [
            ("mkfs", "/dev/nvme0n1"),
            ("mount", "/dev/nvme0n1"),
        ]


def test_a_node_without_disks_is_fine_where_none_are_expected() -> None:
    system = disk(0, mounts=("/", "/boot"))
    for node in (Node(), Node((system,)), Node((disk(0, transport="scsi"),))):
        found = plan(ask(), node)
        assert not found.steps
        assert found.notes == ("no disk can be used, and none is expected",)
    assert refused(ask(expected_disks=8), Node((system,))).kind == "disk_missing"


@pytest.mark.parametrize("state", ["present", "assembled"])
def test_nothing_is_made_of_disks_that_nobody_has_named(state: str) -> None:
    """A spare disk of the system, a disk of somebody else, seven of eight: what is empty is not meant by that alone."""
    node = Node(tuple(disk(n, bytes=3584 << 30) for n in range(7)))
    error = refused(ask(models=[], state=state), node)
    if state == "assembled":
        assert error.kind == "no_array"
        return
    assert error.kind == "disks_not_named"
    assert "7 disks could be used: /dev/disk/by-id/nvme-Model_0 (Model, 3584 GiB)" in error.message
    assert "`expected_disks`" in error.remedy
    assert "`models`" in error.remedy
    # Sizes alone do not name a disk, nor does consent.
    listed = [link for entry in node.disks for link in entry.links]
    for more in ({"min_mib": 1}, {"max_mib": 1 << 40}, {"allow_format": True, "format_devices": listed}):
        assert refused(ask(models=[], **more), node).kind == "disks_not_named"
    for named in ({"expected_disks": 7}, {"models": ["Model"]}, {"by_id": ["/dev/disk/by-id/*"]}):
        assert kinds(plan(ask(**{"models": [], **named}), node)) == ["create", "mkfs", "mount"]
    assert kinds(plan(ask(models=[], level="single"), Node((disk(0),)))) == ["mkfs", "mount"]


def test_what_is_there_is_used_without_naming_its_disks() -> None:
    for node in (built(), waiting("raid0", 4, 4), Node((disk(0, signatures=(XFS,), blank=False),))):
        plan(ask(models=[]), node)
    assert not plan(ask(models=[]), Node()).steps


def test_a_missing_disk_is_named_and_nothing_is_planned() -> None:
    error = refused(ask(expected_disks=4), Node(tuple(disk(n) for n in range(3))))
    assert error.kind == "disk_missing"
    assert error.details["disks_missing"] == 1
    assert "4 disks are expected for scratch, and 3 can be used" in error.message


def test_one_disk_too_many_is_not_chosen_among() -> None:
    assert refused(ask(expected_disks=2), Node(tuple(disk(n) for n in range(3)))).kind == "too_many_disks"
    error = refused(ask(level="single"), Node((disk(0), disk(1))))
    assert error.kind == "too_many_disks"
    assert error.message.startswith(
        "1 disks are wanted for scratch, but 2 could be used: /dev/disk/by-id/nvme-Model_0, "
    )


def test_levels_with_copies_need_two_disks() -> None:
    for level in ("raid1", "raid10"):
        assert refused(ask(level=level), Node((disk(0),))).kind == "disk_missing"


@pytest.mark.parametrize("level", ["raid1", "raid10"])
def test_two_empty_disks_are_enough_for_copies(level: str) -> None:
    found = plan(ask(level=level), Node((disk(0), disk(1))))
    assert (found.steps[0].kind, found.steps[0].disks, found.steps[0].value) == (
        "create",
        ("nvme0n1", "nvme1n1"),
        level,
    )


EXCLUDED = {
    "carries the operating system (mounted on /)": {"mounts": ("/boot", "/"), "partitions": ("nvme0n1p1",)},
    "carries the operating system (mounted on /var)": {"holders": ("dm-0",), "stacked_mounts": ("/var",)},
    "is mounted on /data": {"mounts": ("/data",)},
    "is in use as swap": {"swap": True},
    "is in use by dm-0": {"holders": ("dm-0",)},
    "is in use by the md array other": {"holders": ("md1",)},
    "is network storage, not a disk of this machine": {"local": False},
    "belongs to the machine that this container runs on": {"contained": True},
    "is removable": {"removable": True},
    "is read-only": {"read_only": True},
    "cannot be read": {"signatures": None},
    "is in use: the kernel refuses exclusive access": {"busy": True},
}


@pytest.mark.parametrize("reason", EXCLUDED)
def test_a_disk_in_use_is_never_touched(reason: str) -> None:
    other = Array("md1", "other", "1" * 32, "raid1", 2, ("nvme0n1",))
    used = disk(0, **EXCLUDED[reason])
    node = Node((used, disk(1), disk(2)), (other,))
    # Not even with consent for exactly this disk.
    wanted = ask(allow_format=True, format_devices=[*used.links])
    verdicts = {verdict.disk.name: (verdict.use, verdict.reason) for verdict in judge(wanted, node, None)}
    assert verdicts["nvme0n1"] == ("excluded", reason)
    assert not any("nvme0n1" in step.disks for step in plan(wanted, node).steps)


DATA = {
    "holds ext4 labeled data": {"signatures": (EXT4,)},
    "is an LVM physical volume": {"signatures": (Signature("LVM2_member"),)},
    "is a member of the ZFS pool tank": {"signatures": (Signature("zfs_member", "tank"),)},
    "is a member of the md array host:old": {"signatures": (Signature("linux_raid_member", "host:old"),)},
    "is a swap area": {"signatures": (Signature("swap"),)},
    "holds a partition table (gpt)": {"signatures": (Signature("gpt"), Signature("PMBR")), "partitions": ("nvme0n1p1",)},
    "has partitions (nvme0n1p1)": {"partitions": ("nvme0n1p1",)},
    "has partitions (nvme0n1p1) and holds ext4 labeled data": {"signatures": (EXT4,), "partitions": ("nvme0n1p1",)},
    "holds an encrypted volume": {"signatures": (Signature("crypto_LUKS"),)},
    "holds data that is not recognized (the first of it was found at byte 4096)": {"blank": False, "data_at": 4096},
    "holds ext4 labeled data (at byte 1048576)": {"signatures": (dataclasses.replace(EXT4, offset=1 << 20),)},
}  # fmt: skip


@pytest.mark.parametrize("reason", DATA)
def test_a_disk_with_data_is_refused_without_consent_and_listing(reason: str) -> None:
    full = disk(0, **DATA[reason])
    node = Node((full, disk(1)))
    for wanted in (
        ask(),
        ask(expected_disks=2),
        ask(allow_format=True),
        ask(format_devices=[*full.links]),
        ask(allow_format=True, format_devices=["/dev/disk/by-id/nvme-Model_1"]),
    ):
        error = refused(wanted, node)
        assert error.kind == "foreign_data"
        assert f"{full.stable} {reason}" in error.message
        assert "`allow_format: true`" in error.remedy
    found = plan(ask(allow_format=True, format_devices=[*full.links]), node)
    assert kinds(found) == ["erase", "create", "mkfs", "mount"]
    assert found.steps[0].disks == ("nvme0n1",)


def test_a_disk_with_data_is_left_alone_where_enough_others_are_empty() -> None:
    found = plan(ask(expected_disks=2), Node((disk(0, signatures=(EXT4,)), disk(1), disk(2))))
    assert found.steps[0].disks == ("nvme1n1", "nvme2n1")


def test_consent_by_a_name_that_changes_is_refused() -> None:
    error = refused(ask(allow_format=True, format_devices=["/dev/nvme0n1"]), Node((disk(0, signatures=(EXT4,)),)))
    assert error.kind == "bad_input"
    assert "/dev/disk/by-id/nvme-Model_0" in error.remedy


def test_noise_counts_as_empty_where_only_signatures_are_asked_for() -> None:
    node = Node((disk(0, blank=False), disk(1, blank=False)))
    assert kinds(plan(ask(blank_check="signatures"), node)) == ["create", "mkfs", "mount"]


def test_the_selector_decides_which_disks_count() -> None:
    node = Node(
        (disk(0, model="A"), disk(1, model="B"), disk(2, model="B", bytes=100 << 20), disk(3, transport="scsi"))
    )
    assert plan(ask(models=["B*"], min_mib=200), node).steps[0].device == "/dev/nvme1n1"
    assert plan(ask(models=["B*"], max_mib=200), node).steps[0].device == "/dev/nvme2n1"
    assert plan(ask(by_id=["/dev/disk/by-id/*_0"]), node).steps[0].device == "/dev/nvme0n1"
    assert plan(ask(transports=["scsi"]), node).steps[0].device == "/dev/nvme3n1"


@pytest.mark.parametrize(
    ("mib", "limits", "reason"),
    [
        (200, {"min_mib": 200, "max_mib": 200}, ""),
        (199, {"min_mib": 200}, "it has only 199 MiB"),
        (201, {"max_mib": 200}, "it has 201 MiB"),
        (100 << 20, {}, ""),
    ],
)
def test_sizes_are_limits_that_a_disk_may_just_have(mib: int, limits: dict[str, int], reason: str) -> None:
    (verdict,) = judge(ask(**limits), Node((disk(0, bytes=mib << 20),)), None)
    assert (verdict.use, verdict.reason) == ("unselected" if reason else "free", reason)


def test_a_mount_point_in_use_stops_it_before_a_disk_is_touched() -> None:
    disks = (disk(0), disk(1))
    other = Mount("/mnt/scratch", "ext4", "sdb1")
    for node in (
        Node(disks, (), (other,)),
        Node(disks, directory=Directory(False)),
        Node(disks, directory=Directory(False, "file")),
    ):
        assert refused(ask(), node).kind == "in_the_way"


# -- something is there --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["raid0", "raid1", "raid10"])
@pytest.mark.parametrize("device", ["md127", "md128", "md0"])
def test_what_is_as_wanted_needs_nothing_under_any_number(level: str, device: str) -> None:
    node = built(level, device=device)
    node = dataclasses.replace(
        node,
        disks=tuple(dataclasses.replace(entry, holders=(device,)) for entry in node.disks),
        mounts=(Mount("/mnt/scratch", "xfs", device, ("rw", "noatime")),),
    )
    found = plan(ask(level=level, expected_disks=4, mount_options=["noatime"]), node)
    assert not found.steps
    assert not found.degraded
    assert {verdict.use for verdict in found.verdicts} == {"ours"}


def test_consent_that_stayed_set_formats_nothing_again() -> None:
    listed = [f"/dev/disk/by-id/nvme-Model_{n}" for n in range(4)]
    assert not plan(ask(allow_format=True, format_devices=listed), built()).steps


def test_an_array_that_does_not_run_is_assembled() -> None:
    for level in ("raid0", "raid1", "raid10"):
        found = plan(ask(level=level), waiting(level, 4, 4))
        assert kinds(found) == ["assemble", "mount"]
        assert found.steps[0].value == UUID


def test_what_udev_began_is_stopped_first() -> None:
    node = waiting("raid0", 4, 4, holders=("md127",))
    array = Array("md127", "scratch", UUID, "", 0, tuple(entry.name for entry in node.disks), active=False)
    found = plan(ask(), dataclasses.replace(node, arrays=(array,)))
    assert (found.steps[0].kind, found.steps[0].device) == ("assemble", "md127")


@pytest.mark.parametrize("held", [False, True])
def test_raid0_without_one_of_its_disks_is_not_touched(held: bool) -> None:
    node = waiting("raid0", 4, 3, holders=("md127",) if held else ())
    if held:
        array = Array("md127", "scratch", UUID, "", 0, tuple(entry.name for entry in node.disks), active=False)
        node = dataclasses.replace(node, arrays=(array,))
    # An empty disk in place of the lost one changes nothing: the data of the others may still be wanted.
    for entry in (node, dataclasses.replace(node, disks=(*node.disks, disk(7)))):
        error = refused(ask(expected_disks=4), entry)
        assert error.kind == "disk_missing"
        assert "made of 4 disks, and only 3 of them are there" in error.message
        # Whoever has exchanged one of eight sees which.
        new = "Empty, and not one of them: /dev/disk/by-id/nvme-Model_7. Nothing was changed."
        assert (new in error.message) is (len(entry.disks) == 4)


def test_a_lost_raid0_is_given_up_only_when_every_disk_of_it_is_listed() -> None:
    node = waiting("raid0", 4, 3)
    node = dataclasses.replace(node, disks=(*node.disks, disk(7)))
    listed = [entry.links[0] for entry in node.disks[:3]]
    assert refused(ask(allow_format=True, format_devices=listed[:2]), node).kind == "disk_missing"
    found = plan(ask(allow_format=True, format_devices=listed, expected_disks=4), node)
    assert kinds(found) == ["erase", "erase", "erase", "create", "mkfs", "mount"]


def test_a_raid0_that_broke_while_running_is_reported() -> None:
    assert refused(ask(), built(missing=1, failed=True)).kind == "disk_missing"


@pytest.mark.parametrize("level", ["raid1", "raid10"])
def test_a_degraded_array_is_mounted_reported_and_filled_up(level: str) -> None:
    found = plan(ask(level=level), waiting(level, 4, 3))
    assert kinds(found) == ["assemble", "mount"]
    assert found.degraded == "scratch is degraded: 3 of its 4 disks work"
    node = built(level, missing=1)
    assert not plan(ask(level=level), node).steps
    assert plan(ask(level=level), node).degraded
    found = plan(ask(level=level), dataclasses.replace(node, disks=(*node.disks, disk(7))))
    assert [(step.kind, step.disks) for step in found.steps] == [("add", ("nvme7n1",))]
    # Never one with data, and none while it is being rebuilt.
    full = dataclasses.replace(node, disks=(*node.disks, disk(7, signatures=(EXT4,))))
    assert not plan(ask(level=level), full).steps
    busy = built(level, missing=1, action="recover")
    assert not plan(ask(level=level), dataclasses.replace(busy, disks=(*busy.disks, disk(7)))).steps


@pytest.mark.parametrize("level", ["raid1", "raid10"])
def test_a_disk_that_md_has_thrown_out_is_named_with_the_way_back(level: str) -> None:
    """Pulled and put back, it has its superblock: it is not empty, so nobody adds it, and nobody else's either."""
    own = disk(3, signatures=(MEMBER,), blank=False)
    found = plan(ask(level=level), add(built(level, missing=1), own))
    assert found.steps == ()
    assert found.degraded.startswith(
        "scratch is degraded: 3 of its 4 disks work. /dev/disk/by-id/nvme-Model_3 was a disk of it"
    )
    assert "`mdadm /dev/md127 --re-add /dev/nvme3n1`" in found.degraded
    theirs = dataclasses.replace(MEMBER, uuid="00000000-df0a-e3c0-96d4-c705ef68e771")
    for other in (disk(3, signatures=(theirs,), blank=False), disk(3, signatures=(EXT4,), blank=False)):
        found = plan(ask(level=level), add(built(level, missing=1), other))
        assert found.degraded == "scratch is degraded: 3 of its 4 disks work"


def add(node: Node, *disks: Disk) -> Node:
    return dataclasses.replace(node, disks=(*node.disks, *disks))


def test_state_assembled_takes_no_empty_disk_for_a_lost_one() -> None:
    node = add(built("raid1", missing=1), disk(7))
    found = plan(ask(level="raid1", state="assembled"), node)
    assert (found.steps, found.degraded) == ((), "scratch is degraded: 3 of its 4 disks work")


def test_no_more_empty_disks_are_taken_than_were_lost() -> None:
    for missing in (1, 2):
        found = plan(ask(level="raid1"), add(built("raid1", missing=missing), disk(7), disk(8), disk(9)))
        assert kinds(found) == ["add"] * missing
    # What is whole takes none.
    whole = plan(ask(level="raid1"), add(built("raid1"), disk(7)))
    assert (whole.steps, whole.degraded) == ((), "")
    assert whole.notes == ("/dev/disk/by-id/nvme-Model_7 matches, but scratch was made without it",)


@pytest.mark.parametrize("action", ["recover", "resync"])
def test_an_array_that_is_being_rebuilt_is_told_so_and_gets_no_further_disk(action: str) -> None:
    node = built("raid1", missing=1, action=action)
    # The disk that was added is a member again, but holds no copy yet.
    filled = built("raid1", degraded=1, action=action)
    for entry in (add(node, disk(7)), add(filled, disk(7))):
        found = plan(ask(level="raid1"), entry)
        assert found.steps == ()
        assert found.degraded == "scratch is degraded: 3 of its 4 disks work, it is being rebuilt"


@pytest.mark.parametrize(("level", "disks", "least"), [("raid10", 4, 2), ("raid10", 5, 3), ("raid1", 4, 1)])
def test_copies_are_assembled_from_as_few_disks_as_can_hold_everything(level: str, disks: int, least: int) -> None:
    found = plan(ask(level=level), waiting(level, disks, least))
    assert kinds(found) == ["assemble", "mount"]
    assert found.degraded == f"scratch is degraded: {least} of its {disks} disks work"
    if least > 1:
        assert refused(ask(level=level), waiting(level, disks, least - 1)).kind == "disk_missing"


def test_of_disks_that_disagree_the_one_that_was_written_last_is_believed() -> None:
    """A mirror of two disks grew to three while one of its disks was away."""
    node = waiting("raid1", 3, 3)
    old, new = Member(UUID, "scratch", "raid1", 2, events=17), Member(UUID, "scratch", "raid1", 3, events=42)
    for number in range(3):
        told = [old if number == other else new for other in range(3)]
        disks = tuple(dataclasses.replace(entry, member=member) for entry, member in zip(node.disks, told))
        found = plan(ask(level="raid1", expected_disks=3), Node(disks))
        assert (kinds(found), found.degraded) == (["assemble", "mount"], "")
        left = plan(ask(level="raid1"), Node(tuple(entry for entry in disks if entry.member == new)))
        assert left.degraded == "scratch is degraded: 2 of its 3 disks work"


@pytest.mark.parametrize(
    "changes",
    [{"level": "raid1"}, {"expected_disks": 8}, {"chunk_kib": 64}, {"models": ["Other"]}, {"level": "single"}],
)
def test_an_array_is_never_changed_into_another(changes: dict[str, t.Any]) -> None:
    assert refused(ask(**changes), built()).kind in ("array_conflict", "too_many_disks", "disk_missing")
    assert refused(ask(**changes, allow_format=True), built()).kind != "bad_input"


def test_the_disk_that_does_not_fit_is_named() -> None:
    node = built()
    disks = tuple(
        dataclasses.replace(entry, model="Other") if entry.name == "nvme2n1" else entry for entry in node.disks
    )
    error = refused(ask(models=["Model"]), dataclasses.replace(node, disks=disks))
    assert (
        error.message == "scratch has the disk /dev/disk/by-id/nvme-Model_2, but it does not match: its model is Other."
    )


def test_no_disk_is_missing_of_an_array_that_has_more_than_it_was_made_of() -> None:
    """A spare, of an array that stopped working."""
    assert refused(ask(), built(failed=True, disks=3)).details["disks_missing"] == 0


def test_an_array_that_was_asked_for_with_fewer_disks_is_a_conflict() -> None:
    assert refused(ask(expected_disks=2), built()).kind == "array_conflict"


def test_what_udev_left_half_assembled_is_known_by_what_its_disks_say() -> None:
    node = waiting("raid1", 4, 3, holders=("md127",))
    array = Array("md127", "scratch", UUID, "", 0, tuple(entry.name for entry in node.disks), active=False)
    node = dataclasses.replace(node, arrays=(array,))
    assert kinds(plan(ask(level="raid1"), node)) == ["assemble", "mount"]
    assert "is a raid1, not a raid10" in refused(ask(level="raid10"), node).message


def test_noise_on_an_array_may_be_overwritten_where_only_signatures_are_asked_for() -> None:
    node = dataclasses.replace(built(signatures=(), blank=False), mounts=())
    assert kinds(plan(ask(blank_check="signatures"), node)) == ["mkfs", "mount"]


def test_an_array_that_cannot_be_read_is_not_taken_for_an_empty_one() -> None:
    assert refused(ask(), dataclasses.replace(built(signatures=None), mounts=())).kind == "unreadable"


def test_an_array_below_something_else_is_not_mounted() -> None:
    """A volume group or an encrypted volume lies on it."""
    error = refused(ask(), dataclasses.replace(built(holders=("dm-0",)), mounts=()))
    assert (error.kind, "in use by dm-0" in error.message) == ("array_conflict", True)


def test_only_the_mount_on_top_counts() -> None:
    node, other = built(), Mount("/mnt/scratch", "ext4", "sdb1")
    assert not plan(ask(), dataclasses.replace(node, mounts=(other, *node.mounts))).steps
    # The flags are those of the mount on top, too.
    plain = Mount("/mnt/scratch", "xfs", "md127", ("rw",))
    for mounts, steps in (((plain, *node.mounts), []), ((*node.mounts, plain), ["remount"])):
        assert kinds(plan(ask(mount_options=["noatime"]), dataclasses.replace(node, mounts=mounts))) == steps
    error = refused(ask(), dataclasses.replace(node, mounts=(*node.mounts, other)))
    assert (error.kind, "sdb1 is mounted at /mnt/scratch" in error.message) == ("in_the_way", True)


def test_what_has_no_device_is_named_by_its_kind() -> None:
    mounts = (Mount("/mnt/scratch", "xfs", "md127"), Mount("/mnt/scratch", "tmpfs", ""))
    error = refused(ask(), dataclasses.replace(built(), mounts=mounts))
    assert (error.kind, error.message) == ("in_the_way", "tmpfs is mounted at /mnt/scratch.")


def test_an_array_mounted_elsewhere_is_not_mounted_twice() -> None:
    node = dataclasses.replace(built(), mounts=(Mount("/data", "xfs", "md127"),))
    error = refused(ask(), node)
    assert (error.kind, "/data" in error.message) == ("in_the_way", True)


def test_an_array_made_but_not_formatted_is_finished() -> None:
    node = dataclasses.replace(built(signatures=(), blank=True), mounts=())
    assert kinds(plan(ask(), node)) == ["mkfs", "mount"]
    assert refused(ask(state="assembled"), node).kind == "no_filesystem"
    unknown = dataclasses.replace(built(signatures=(), blank=False), mounts=())
    assert refused(ask(), unknown).kind == "foreign_data"


# -- a creation that has begun and not ended ---------------------------------------------------------------------------------

OURS, OTHER = Begun(UUID), Begun("2" * 32)


@pytest.mark.parametrize("blank", [False, True])
def test_an_array_of_which_mkfs_has_not_ended_is_formatted_again_without_consent(blank: bool) -> None:
    node = dataclasses.replace(built(signatures=(), blank=blank), mounts=(), begun=OURS)
    found = plan(ask(), node)
    assert [(step.kind, step.value) for step in found.steps] == [("mkfs", "again"), ("mount", "")]
    assert "mkfs was interrupted" in found.steps[0].what
    assert refused(ask(state="assembled"), node).kind == "no_filesystem"


@pytest.mark.parametrize("begun", [None, OTHER, Begun("", ("/dev/disk/by-id/nvme-Model_0",))])
def test_data_on_an_array_whose_creation_has_ended_is_left_alone(begun: Begun | None) -> None:
    node = dataclasses.replace(built(signatures=(), blank=False), mounts=(), begun=begun)
    error = refused(ask(), node)
    assert (error.kind, "`allow_data_loss: true`" in error.remedy) == ("foreign_data", True)


def test_a_file_system_that_mkfs_calls_unfinished_is_made_again() -> None:
    """xfs only: no kernel mounts it, so it never held a file. Without the mark anybody may have begun it."""
    for begun in (None, OURS, OTHER):
        node = dataclasses.replace(built(half_made=True), mounts=(), begun=begun)
        if begun is OURS:
            assert [step.kind for step in plan(ask(), node).steps] == ["mkfs", "mount"]
            assert refused(ask(state="assembled"), node).kind == "no_filesystem"
        else:
            error = refused(ask(), node)
            assert (error.kind, "`allow_data_loss: true`" in error.remedy) == ("foreign_data", True)
            assert "mkfs.xfs has not ended" in error.message
            assert plan(ask(state="absent", allow_data_loss=True), node).steps
        other = dataclasses.replace(
            built(half_made=True, signatures=(Signature("xfs", "other"),)), mounts=(), begun=begun
        )
        assert refused(ask(), other).kind == "foreign_data"
    single = disk(0, signatures=(XFS,), blank=False, half_made=True)
    assert refused(ask(level="single"), Node((single,))).kind == "foreign_data"
    assert kinds(plan(ask(level="single"), Node((single,), begun=Begun("", single.links)))) == ["mkfs", "mount"]


def test_a_file_system_that_mkfs_ended_is_mounted_and_tried_first() -> None:
    node = dataclasses.replace(built(), mounts=(), begun=OURS)
    assert [(step.kind, step.value) for step in plan(ask(), node).steps] == [("mount", "begun")]
    # Where nothing may be made, nothing is tried again either.
    assert [(step.kind, step.value) for step in plan(ask(state="assembled"), node).steps] == [("mount", "")]
    assert [(step.kind, step.value) for step in plan(ask(), dataclasses.replace(node, begun=OTHER)).steps] == [
        ("mount", "")
    ]
    # What is mounted is used, whatever mark is left, and counts as ended.
    mounted = plan(ask(), dataclasses.replace(built(half_made=True), begun=OURS))
    assert mounted.found is not None
    assert (mounted.found.begun, mounted.steps) == (False, ())


@pytest.mark.parametrize("level", ["raid0", "raid1", "raid10"])
def test_an_array_of_which_only_some_superblocks_were_written_is_made_anew(level: str) -> None:
    """The power was cut inside mdadm. The other disks are as empty as they were."""
    for there in range(4):
        node = waiting(level, 4, there)
        node = dataclasses.replace(node, disks=(*node.disks, *map(disk, range(there, 4))), begun=OURS)
        found = plan(ask(level=level, expected_disks=4), node)
        made = [step for step in found.steps if step.kind == "create"]
        if level == "raid0":
            assert kinds(found) == ["erase"] * there + ["create", "mkfs", "mount"]
        assert not made or set(made[0].disks) == {f"nvme{n}n1" for n in range(4)}
        # Not that of another creation, and not where nothing may be made.
        if there and level == "raid0":
            for begun in (None, OTHER):
                assert refused(ask(level=level), dataclasses.replace(node, begun=begun)).kind == "disk_missing"
            assert refused(ask(level=level, state="assembled"), node).kind == "disk_missing"


def test_a_disk_that_mkfs_has_not_ended_on_is_taken_again_and_no_other() -> None:
    begun = Begun("", ("/dev/disk/by-id/nvme-Model_0",))
    half = disk(0, blank=False, data_at=4096)
    found = plan(ask(level="single"), Node((half,), begun=begun))
    assert [(step.kind, step.value) for step in found.steps] == [("mkfs", "again"), ("mount", "")]
    # Nor that disk after somebody else has used it.
    for other in (disk(1, blank=False), disk(0, signatures=(EXT4,)), disk(0, partitions=("nvme0n1p1",), blank=False)):
        assert refused(ask(level="single"), Node((other,), begun=begun)).kind == "foreign_data"


@pytest.mark.parametrize("content", [(), (XFS,), (EXT4,), (Signature("LVM2_member"), XFS)])
def test_what_an_array_shows_before_mkfs_has_begun_is_what_its_disks_held(content: tuple[Signature, ...]) -> None:
    """The power was cut between mdadm and mkfs. What lies behind md's own data may even have our label."""
    bare = dataclasses.replace(OURS, bare=True)
    node = dataclasses.replace(built(signatures=content), mounts=(), begun=bare)
    assert [(step.kind, step.value) for step in plan(ask(), node).steps] == [("mkfs", "again"), ("mount", "")]
    assert refused(ask(state="assembled"), node).kind == "no_filesystem"
    for other in (None, dataclasses.replace(OTHER, bare=True)):
        elsewhere = dataclasses.replace(node, begun=other)
        if content == (XFS,):
            assert kinds(plan(ask(), elsewhere)) == ["mount"]
        else:
            assert refused(ask(), elsewhere).kind == "foreign_data"
    # What is mounted was taken for ours, and may hold files.
    if content == (XFS,):
        assert not plan(ask(), dataclasses.replace(built(), begun=bare)).steps


def test_another_disk_in_the_same_slot_is_not_the_one_that_was_begun() -> None:
    """Names of a slot stay when the disk in it is replaced, and the new one may be full."""
    slot = "/dev/disk/by-path/pci-0"
    marked = ("/dev/disk/by-id/nvme-Model_0", "/dev/disk/by-id/nvme-eui.0")
    same = disk(0, links=(*marked, slot), blank=False, data_at=4096)
    assert kinds(plan(ask(level="single"), Node((same,), begun=Begun("", marked)))) == ["mkfs", "mount"]
    other = disk(0, links=("/dev/disk/by-id/nvme-Model_9", marked[1], slot), blank=False, data_at=4096)
    # A mark with a name of a slot in it names no disk, nor does one without a name.
    for begun in (Begun("", marked), Begun("", (slot,)), Begun("", (*marked, slot)), Begun("")):
        assert refused(ask(level="single"), Node((other,), begun=begun)).kind == "foreign_data"


@pytest.mark.parametrize("content", [Signature("ext4", "scratch"), Signature("xfs", "other"), Signature("LVM2_member")])
def test_an_array_with_other_content_is_left_alone(content: Signature) -> None:
    node = dataclasses.replace(built(signatures=(content,)), mounts=())
    for state in ("present", "assembled", "absent"):
        error = refused(ask(state=state), node)
        assert (error.kind, f"something else: it {describe(content)}." in error.message) == ("foreign_data", True)


def test_state_assembled_makes_nothing() -> None:
    none = refused(ask(state="assembled"), Node((disk(0), disk(1))))
    assert (none.kind, "(entry point configure)" in none.remedy) == ("no_array", True)
    assert not plan(ask(state="assembled"), Node()).steps
    assert kinds(plan(ask(state="assembled"), waiting("raid0", 4, 4))) == ["assemble", "mount"]


def test_owner_mode_and_flags_are_set_on_what_is_mounted() -> None:
    found = plan(ask(mode="0755", owner=1000, mount_options=["noatime", "nodev"]), built())
    assert [(step.kind, step.value) for step in found.steps] == [("remount", "nodev"), ("own", "")]
    for owner in ({"mode": "0755"}, {"owner": 1000}, {"group": 1000}):
        assert kinds(plan(ask(**owner), built())) == ["own"]


def test_a_slash_at_the_end_of_the_mount_point_means_nothing() -> None:
    assert not plan(ask(mount_point="/mnt/scratch/"), built()).steps


def test_two_arrays_of_one_name_are_not_guessed_among() -> None:
    other = Member("2" * 32, "scratch", "raid0", 2)
    node = waiting("raid0", 2, 2)
    node = dataclasses.replace(node, disks=(*node.disks, disk(5, signatures=(MEMBER,), member=other)))
    assert refused(ask(), node).kind == "ambiguous"
    assert plan(ask(uuid="bf2e5d29:df0ae3c0:96d4c705:ef68e771"), node).steps[0].value == UUID


def test_a_single_disk_is_known_by_its_label() -> None:
    there = Node((disk(0, signatures=(XFS,), blank=False), disk(1, signatures=(EXT4,), blank=False)))
    assert [(step.kind, step.device) for step in plan(ask(level="single"), there).steps] == [("mount", "/dev/nvme0n1")]
    both = Node((disk(0, signatures=(XFS,)), disk(1, signatures=(XFS,))))
    assert refused(ask(level="single"), both).kind == "ambiguous"


def test_a_single_disk_is_not_taken_for_an_array() -> None:
    labeled = disk(0, signatures=(XFS,), blank=False)
    for wanted, node in (
        (ask(expected_disks=2), Node((labeled,))),
        (ask(level="single", expected_disks=2), Node((labeled,))),
        # An empty disk beside it: the array that was asked for could have been made of both.
        (ask(), Node((labeled, disk(1)))),
    ):
        assert refused(wanted, node).kind == "array_conflict"
    assert kinds(plan(ask(level="single"), Node((labeled, disk(1))))) == ["mount"]
    # Levels with copies are never a file system on one disk: it is data of somebody else.
    assert refused(ask(level="raid1"), Node((labeled, disk(1)))).kind == "foreign_data"
    assert plan(ask(level="raid1", expected_disks=2), Node((labeled, disk(1), disk(2)))).steps[0].kind == "create"


def test_a_label_on_a_disk_with_partitions_is_not_ours() -> None:
    assert refused(ask(), Node((disk(0, signatures=(XFS,), partitions=("nvme0n1p1",)),))).kind == "foreign_data"


# -- what is there, on disks that are never touched ------------------------------------------------------------------------

# What keeps a file system that has our label from being ours.
ELSEWHERE = {
    "is network storage, not a disk of this machine": {"local": False},
    "is removable": {"removable": True},
    "belongs to the machine that this container runs on": {"contained": True},
    "is in use by dm-0": {"holders": ("dm-0",)},
    "is in use as swap": {"swap": True},
    "carries the operating system (mounted on /)": {"mounts": ("/",)},
}


@pytest.mark.parametrize("reason", ELSEWHERE)
@pytest.mark.parametrize("level", ["raid0", "single"])
def test_a_file_system_on_an_excluded_disk_is_not_ours(level: str, reason: str) -> None:
    foreign = disk(0, signatures=(XFS,), blank=False, **ELSEWHERE[reason])
    found = plan(ask(level=level), Node((foreign,)))
    assert (found.found, found.steps) == (None, ())
    assert found.warnings == (f"{foreign.stable} holds xfs labeled scratch, but it {reason}. It is left alone.",)
    # Nor does it keep an empty disk from being used, or make two of one.
    for other in (disk(1), disk(1, signatures=(XFS,), blank=False)):
        both = plan(ask(level=level), Node((foreign, other)))
        assert {step.device for step in both.steps} == {"/dev/nvme1n1"}
    for wanted in (ask(level=level, expected_disks=1), ask(level=level, expected_disks=1, state="assembled")):
        assert f"{foreign.stable} {reason}" in refused(wanted, Node((foreign,))).message
    assert not plan(ask(level=level, state="absent", allow_data_loss=True), Node((foreign,))).steps


def test_network_storage_at_our_mount_point_is_not_made_ours() -> None:
    """Its owner and mode would be changed."""
    foreign = disk(0, signatures=(XFS,), blank=False, local=False, mounts=("/mnt/scratch",))
    node = Node((foreign,), (), (Mount("/mnt/scratch", "xfs", "nvme0n1", ("rw",)),), Directory(True, mode=0o755))
    assert not plan(ask(), node).steps
    assert refused(ask(), dataclasses.replace(node, disks=(foreign, disk(1)))).kind == "in_the_way"


@pytest.mark.parametrize("level", ["raid0", "single"])
@pytest.mark.parametrize("point", ["/mnt/scratch", "/home"])
def test_our_own_mount_does_not_make_a_file_system_foreign(level: str, point: str) -> None:
    """Nor does a part of it that is mounted again where the system has its own."""
    mounts = tuple(Mount(where, "xfs", "nvme0n1", ("rw",), root) for where, root in ((point, "/"), ("/var", "/var")))
    used = disk(0, signatures=(XFS,), blank=False, mounts=(point, "/var"))
    node = Node((used,), (), mounts, Directory(False, "directory", 0o1777))
    found = plan(ask(level=level, mount_point=point), node)
    assert (found.found is not None, found.steps, found.warnings) == (True, (), ())
    array = built()
    stacked = tuple(dataclasses.replace(entry, stacked_mounts=(point, "/var")) for entry in array.disks)
    array = dataclasses.replace(
        array, disks=stacked, mounts=tuple(dataclasses.replace(mount, device="md127") for mount in mounts)
    )
    assert not plan(ask(mount_point=point), array).steps


@pytest.mark.parametrize("reason", list(ELSEWHERE)[:3])
@pytest.mark.parametrize("level", ["raid0", "raid1"])
def test_an_array_on_an_excluded_disk_is_refused(level: str, reason: str) -> None:
    for node in (built(level), dataclasses.replace(built(level), mounts=()), waiting(level, 4, 4)):
        disks = (*node.disks[:3], dataclasses.replace(node.disks[3], **ELSEWHERE[reason]))
        error = refused(ask(level=level), dataclasses.replace(node, disks=disks))
        assert error.kind == "array_conflict"
        assert f"/dev/disk/by-id/nvme-Model_3, which {reason}" in error.message


def test_what_became_read_only_is_ours_and_told() -> None:
    single = Node((disk(0, signatures=(XFS,), blank=False, read_only=True),))
    for wanted, node in ((ask(level="single"), single), (ask(), built()), (ask(), waiting("raid0", 4, 4))):
        stuck = tuple(dataclasses.replace(entry, read_only=True) for entry in node.disks)
        error = refused(wanted, dataclasses.replace(node, disks=stuck))
        assert (error.kind, "which is read-only" in error.message) == ("array_conflict", True)
    # With copies, md goes on without it.
    for level in ("raid1", "raid10"):
        node = built(level)
        node = dataclasses.replace(node, disks=(dataclasses.replace(node.disks[0], read_only=True), *node.disks[1:]))
        assert not plan(ask(level=level), node).steps


# -- disks that do not tell yet what they are --------------------------------------------------------------------------

UNREAD = {"unread": ("transport", "model")}
TOLD = "cannot be judged: its transport and model cannot be read"


def test_a_disk_that_does_not_tell_what_it_is_counts_as_missing() -> None:
    late = disk(2, **UNREAD)
    error = refused(ask(expected_disks=3), Node((disk(0), disk(1), late)))
    assert (error.kind, error.details["disks_missing"]) == ("disk_missing", 1)
    assert "3 disks are expected for scratch, and 2 can be used" in error.message
    assert f"Not usable: {late.stable} {TOLD}." in error.message
    # Without a number it may be one of those that were meant.
    for others in ((), (disk(0), disk(1))):
        for state in ("present", "assembled"):
            error = refused(ask(state=state), Node((*others, late)))
            assert (error.kind, f"{late.stable} {TOLD}" in error.message) == ("disk_missing", True)


def test_enough_other_disks_are_enough() -> None:
    found = plan(ask(expected_disks=2), Node((disk(0), disk(1), disk(2, **UNREAD))))
    assert found.steps[0].disks == ("nvme0n1", "nvme1n1")


def test_consent_for_a_disk_that_does_not_tell_what_it_is_formats_nothing() -> None:
    late = disk(0, signatures=(EXT4,), blank=False, **UNREAD)
    error = refused(ask(allow_format=True, format_devices=[*late.links]), Node((late, disk(1))))
    assert error.kind == "disk_missing"


@pytest.mark.parametrize("state", ["present", "assembled", "absent"])
@pytest.mark.parametrize("mounts", [(), ("/mnt/scratch",)])
def test_a_label_on_a_disk_that_does_not_tell_what_it_is_may_be_ours(state: str, mounts: tuple[str, ...]) -> None:
    """No other disk is made into a second one, and this one is not taken for somebody else's."""
    late = disk(0, signatures=(XFS,), blank=False, mounts=mounts, **UNREAD)
    for others in ((), (disk(1),)):
        error = refused(ask(level="single", state=state), Node((late, *others)))
        told = f"{late.stable} holds xfs labeled scratch, but it {TOLD}. Nothing was changed."
        assert (error.kind, error.message) == ("disk_missing", told)


@pytest.mark.parametrize("level", ["raid0", "raid1"])
def test_an_array_waits_for_a_member_that_does_not_tell_what_it_is(level: str) -> None:
    for node in (built(level), dataclasses.replace(built(level), mounts=()), waiting(level, 4, 4)):
        late = dataclasses.replace(node.disks[3], **UNREAD)
        entry = dataclasses.replace(node, disks=(*node.disks[:3], late))
        error = refused(ask(level=level), entry)
        assert (error.kind, f"{late.stable}, which {TOLD}" in error.message) == ("disk_missing", True)
        assert error.details == {"disks_missing": 1}
        assert refused(ask(level=level, state="absent", allow_data_loss=True), entry).kind == "disk_missing"


def test_only_disks_that_were_asked_for_may_tell_more() -> None:
    for entry, expected in (
        (disk(0, **UNREAD), True),
        (disk(0, signatures=None), True),
        (disk(0, transport="scsi", **UNREAD), False),
        (disk(0, transport="scsi", signatures=None), False),
        (disk(0, busy=True), False),
        (disk(0), False),
    ):
        assert may_tell_more(judge(ask(), Node((disk(1), entry)), None)) is expected


def test_what_is_certain_of_a_disk_is_told_first() -> None:
    for reason in list(EXCLUDED)[:4]:
        entry = disk(0, **EXCLUDED[reason], **UNREAD)
        assert [(told.use, told.reason) for told in judge(ask(), Node((entry,)), None)] == [("excluded", reason)]


# -- names that name nothing -------------------------------------------------------------------------------------------------


def test_a_selector_that_names_no_disk_is_told() -> None:
    pattern = "/dev/disk/by-id/nvme-Modle_*"
    found = plan(ask(by_id=[pattern]), Node((disk(0),)))
    assert (found.steps, found.warnings) == ((), (f"`by_id` matches no disk of this node: {pattern}.",))
    assert found.warnings[0] in refused(ask(by_id=[pattern], expected_disks=1), Node((disk(0),))).message
    # One of several that fits is enough, also on a disk that something else rules out.
    for wanted in (ask(by_id=[pattern, "/dev/disk/by-id/*_0"]), ask(by_id=["/dev/disk/by-id/*_0"], min_mib=9999)):
        assert not plan(wanted, Node((disk(0),))).warnings


def test_consent_for_a_disk_that_is_not_there_is_told() -> None:
    listed = ["/dev/disk/by-id/nvme-Model_0", "/dev/disk/by-id/nvme-Modle_1"]
    told = f"`format_devices` names no disk of this node: {listed[1]}."
    assert plan(ask(allow_format=True, format_devices=listed), Node((disk(0), disk(1)))).warnings == (told,)
    full = Node((disk(0, signatures=(EXT4,)), disk(1, signatures=(EXT4,))))
    assert told in refused(ask(allow_format=True, format_devices=listed), full).message
    # Without consent the list means nothing, and may stay.
    assert not plan(ask(format_devices=listed), Node((disk(0), disk(1)))).warnings


def test_stars_do_not_reach_into_folders_of_links() -> None:
    """All disks of a cloud, also its network disks, have names below /dev/disk/azure."""
    nested = disk(0, links=("/dev/disk/azure/local/by-index/1", "/dev/disk/azure/local/by-serial/A1"))
    for pattern, taken in {
        "/dev/disk/azure/local/by-serial/*": True,
        "/dev/disk/azure/*/by-index/1": True,
        "/dev/disk/azure/*": False,
        "/dev/disk/*": False,
    }.items():
        assert bool(plan(ask(by_id=[pattern]), Node((nested,))).steps) is taken, pattern
    one_deeper = disk(0, links=("/dev/disk/azure/local/A1",))
    assert not plan(ask(by_id=["/dev/disk/azure/*"]), Node((one_deeper,))).steps
    # What such a pattern has always meant stays: a star in the folder of a name.
    assert plan(ask(by_id=["/dev/disk/*_0"]), Node((disk(0),))).steps


@pytest.mark.parametrize("option", ["name", "label", "mode", "mount_point"])
def test_a_line_break_is_part_of_no_word(option: str) -> None:
    good = {"name": "ab", "label": "ab", "mode": "0777", "mount_point": "/mnt/x"}
    assert ask(**good)
    with pytest.raises(ClusterError, match=f"`{option}`") as caught:
        ask(**{**good, option: f"{good[option]}\n"})
    assert caught.value.kind == "bad_input"


# -- removing ------------------------------------------------------------------------------------------------------------


def test_files_are_removed_only_with_consent() -> None:
    node = built()
    full = dataclasses.replace(node, directory=dataclasses.replace(node.directory, empty=False, holds_files=True))
    error = refused(ask(state="absent"), full)
    assert (error.kind, error.message) == ("consent_missing", "scratch holds files. Nothing was changed.")
    assert "`allow_data_loss: true`" in error.remedy
    assert kinds(plan(ask(state="absent", allow_data_loss=True), full)) == ["unmount", "stop", "erase"]
    # Without files no consent is needed.
    assert kinds(plan(ask(state="absent"), node)) == ["unmount", "stop", "erase"]


def test_what_cannot_be_looked_at_counts_as_full() -> None:
    unmounted = dataclasses.replace(built(), mounts=())
    for node in (unmounted, waiting("raid0", 4, 4), waiting("raid0", 4, 3)):
        error = refused(ask(state="absent"), node)
        assert (error.kind, "is not mounted" in error.message) == ("consent_missing", True)
        assert kinds(plan(ask(state="absent", allow_data_loss=True), node))[-1] == "erase"


def test_removing_nothing_is_nothing() -> None:
    assert not plan(ask(state="absent"), Node((disk(0), disk(1, signatures=(EXT4,))))).steps


@pytest.mark.parametrize(
    "unread", [{"unread": ("model",)}, {"unread": ("transport",), "transport": ""}, {"signatures": None}]
)
def test_a_disk_that_does_not_tell_yet_what_it_is_is_waited_for_before_it_is_given_back(
    unread: dict[str, t.Any],
) -> None:
    """Nothing uses it, and no selector would help."""
    node = built()
    late = dataclasses.replace(node.disks[2], **unread)
    error = refused(
        ask(state="absent", allow_data_loss=True),
        dataclasses.replace(node, disks=(*node.disks[:2], late, node.disks[3])),
    )
    assert (error.kind, "cannot be read" in error.message) == ("disk_missing", True)
    assert "nvme-Model_2" in error.message
    assert error.remedy.startswith("Run again when the kernel has found all of it")


def test_an_array_that_is_used_elsewhere_is_not_removed() -> None:
    node = built()
    twice = dataclasses.replace(node, mounts=(*node.mounts, Mount("/srv", "xfs", "md127")))
    assert refused(ask(state="absent", allow_data_loss=True), twice).kind == "in_use"
    # Its disks are not those that were asked for.
    assert refused(ask(state="absent", allow_data_loss=True, models=["Other"]), node).kind == "in_use"


def test_an_array_of_which_only_a_part_is_seen_is_not_removed() -> None:
    """What else is on it may be in use, and its files were not looked at."""
    node = built()
    part = Mount("/mnt/scratch", "xfs", "md127", ("rw",), root="/part")
    for mounts in ((part,), (*node.mounts, part), (*node.mounts, dataclasses.replace(part, point="/srv"))):
        error = refused(ask(state="absent", allow_data_loss=True), dataclasses.replace(node, mounts=mounts))
        assert error.kind == "in_use"
    # A slash at the end means nothing.
    assert plan(ask(state="absent", mount_point="/mnt/scratch/"), node).steps


def test_an_array_below_something_else_is_not_removed() -> None:
    node = dataclasses.replace(built(holders=("dm-0",)), mounts=())
    error = refused(ask(state="absent", allow_data_loss=True), node)
    assert (error.kind, "dm-0" in error.message) == ("in_use", True)


def test_data_without_a_file_system_is_removed_only_with_consent() -> None:
    noise = dataclasses.replace(built(signatures=(), blank=False), mounts=())
    assert refused(ask(state="absent"), noise).kind == "consent_missing"
    empty = dataclasses.replace(built(signatures=(), blank=True), mounts=())
    assert kinds(plan(ask(state="absent"), empty)) == ["stop", "erase"]


def test_an_array_is_cleared_before_it_stops_only_where_it_runs() -> None:
    """One that does not run cannot be written to."""
    node = waiting("raid0", 4, 4, holders=("md127",))
    array = Array("md127", "scratch", UUID, "", 0, tuple(entry.name for entry in node.disks), active=False)
    still = dataclasses.replace(node, arrays=(array,))
    for entry, value in ((built(), "clear"), (still, "")):
        found = plan(ask(state="absent", allow_data_loss=True), entry)
        assert [step.value for step in found.steps if step.kind == "stop"] == [value]


# -- whatever there is ---------------------------------------------------------------------------------------------------

signatures = st.sampled_from(
    [(), (), (EXT4,), (XFS,), (MEMBER,), (Signature("LVM2_member"),), (Signature("gpt"),), None]
)
members = st.sampled_from([None, None, Member(UUID, "scratch", "raid0", 3), Member(UUID, "scratch", "raid1", 2)])


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """A node with up to five disks in any state, and an array that may hold some of them."""
    disks = []
    for number in range(draw(st.integers(0, 5))):
        seen = draw(signatures)
        disks.append(
            disk(
                number,
                transport=draw(st.sampled_from(["nvme", "nvme", "nvme", "scsi"])),
                local=draw(st.sampled_from([True, True, False])),
                contained=draw(st.sampled_from([False, False, False, True])),
                read_only=draw(st.sampled_from([False, False, True])),
                swap=draw(st.sampled_from([False, False, True])),
                busy=draw(st.sampled_from([False, False, True])),
                blank=draw(st.booleans()) and not seen,
                partitions=draw(st.sampled_from([(), (), (f"nvme{number}n1p1",)])),
                holders=draw(st.sampled_from([(), (), (), ("md127",), ("dm-0",)])),
                mounts=draw(st.sampled_from([(), (), (), ("/",), ("/data",)])),
                unread=draw(st.sampled_from([(), (), (), ("transport",)])),
                signatures=seen,
                half_made=seen == (XFS,) and draw(st.booleans()),
                member=draw(members) if seen == (MEMBER,) else None,
            )
        )
    held = tuple(entry.name for entry in disks if "md127" in entry.holders)
    arrays = []
    if held:
        arrays.append(
            Array(
                "md127", draw(st.sampled_from(["scratch", "other"])), draw(st.sampled_from([UUID, "3" * 32])),
                draw(st.sampled_from(["raid0", "raid1"])), draw(st.integers(1, 4)), held, draw(st.booleans()),
                signatures=draw(st.sampled_from([(), (XFS,), (EXT4,)])), blank=draw(st.booleans()),
                half_made=draw(st.booleans()),
            )
        )  # fmt: skip
    mounts = draw(
        st.sampled_from([(), (Mount("/mnt/scratch", "xfs", "md127", ("rw",)),), (Mount("/x", "xfs", "md127"),)])
    )
    begun = draw(
        st.sampled_from([None, None, OURS, Begun(UUID, bare=True), OTHER, Begun("", ("/dev/disk/by-id/nvme-Model_1",))])
    )
    return Node(tuple(disks), tuple(arrays), mounts, Directory(holds_files=draw(st.booleans())), begun)


@st.composite
def requests(draw: st.DrawFn) -> Wanted:
    return ask(
        state=draw(st.sampled_from(["present", "assembled", "absent"])),
        level=draw(st.sampled_from(["raid0", "raid1", "raid10", "single"])),
        expected_disks=draw(st.integers(0, 4)),
        models=draw(st.sampled_from([[], ["*"]])),
        blank_check=draw(st.sampled_from(["zeros", "signatures"])),
        allow_format=draw(st.booleans()),
        allow_data_loss=draw(st.booleans()),
        format_devices=draw(
            st.lists(st.sampled_from([f"/dev/disk/by-id/nvme-Model_{n}" for n in range(5)]), unique=True)
        ),
    )


def decide(wanted: Wanted, node: Node) -> Plan | None:
    try:
        return plan(wanted, node)
    except ClusterError:
        return None


@pytest.mark.slow
@given(requests(), nodes())
def test_a_disk_that_holds_something_is_formatted_only_with_consent_and_listing(wanted: Wanted, node: Node) -> None:
    found = decide(wanted, node)
    by_name = {entry.name: entry for entry in node.disks}
    if found is None or wanted.state == "absent":
        return
    if found.found and found.steps:
        # What is there is used only where it lies on disks of this machine.
        used = [entry for entry in node.disks if entry.name in found.found.members]
        assert found.steps[0].kind == "stop" or all(
            entry.local and not entry.contained and not entry.unread for entry in used
        )
    if any(step.kind == "create" for step in found.steps):
        assert wanted.expected_disks or wanted.models
    for step in found.steps:
        if step.kind not in ("create", "erase", "add", "mkfs"):
            continue
        assert wanted.state == "present"
        for name in step.disks:
            entry = by_name[name]
            assert entry.transport == "nvme"
            assert entry.local
            assert not entry.unread
            assert not entry.contained
            assert not any((entry.read_only, entry.swap, entry.mounts))
            assert entry.signatures is not None
            holds = entry.signatures or entry.partitions or (not entry.blank and wanted.blank_check == "zeros")
            left = node.begun and (
                (entry.member and entry.member.uuid == node.begun.uuid)
                or (
                    not entry.signatures
                    and not entry.partitions
                    and not node.begun.uuid
                    and set(entry.links) == set(node.begun.disks)
                )
            )
            if holds and not left and not (entry.half_made and node.begun and node.begun.names(entry)):
                assert wanted.allow_format
                assert set(entry.links) & set(wanted.format_devices)
            # A holder can only be what is left of our own array, and goes with it.
            assert not entry.holders or (found.found and set(entry.holders) == {found.found.device})


@pytest.mark.slow
@given(requests(), nodes())
def test_an_array_that_holds_something_is_formatted_only_where_mkfs_of_our_own_has_not_ended(
    wanted: Wanted, node: Node
) -> None:
    found = decide(wanted, node)
    if found is None or found.found is None or found.found.array is None:
        return
    array = found.found.array
    for step in found.steps:
        if step.kind == "mkfs" and step.device == array.path:
            assert wanted.state == "present"
            bare = node.begun == Begun(array.uuid, bare=True)
            assert bare or not array.signatures or (array.signatures == (XFS,) and array.half_made)
            ours = node.begun is not None and node.begun.uuid == array.uuid
            assert array.blank or ours or wanted.blank_check == "signatures"
            assert ours or not array.signatures


@given(requests(), nodes())
def test_removing_erases_only_what_is_ours_and_never_files_without_consent(wanted: Wanted, node: Node) -> None:
    wanted = dataclasses.replace(wanted, state="absent")
    found = decide(wanted, node)
    by_name = {entry.name: entry for entry in node.disks}
    erased = {name for step in (found.steps if found else ()) if step.kind == "erase" for name in step.disks}
    if not erased:
        return
    assert found is not None
    assert found.found is not None
    assert erased == set(found.found.members)
    for name in erased:
        entry = by_name[name]
        assert not entry.swap
        assert not entry.unread
        assert not entry.contained
        assert "/" not in entry.mounts
    array = found.found.array
    assert array is None or array.name == "scratch"
    if not wanted.allow_data_loss:
        mounted = any(mount.point == wanted.mount_point for mount in node.mounts)
        assert (mounted and not node.directory.holds_files) or (found.found.signatures == () and found.found.blank)


@pytest.mark.slow
@given(requests(), nodes())
def test_looking_changes_nothing_and_no_content_is_a_failure(wanted: Wanted, node: Node) -> None:
    try:
        found = plan(dataclasses.replace(wanted, state="inspected"), node)
    except ClusterError as exc:
        if exc.kind not in ("ambiguous", "disk_missing"):
            raise
        return
    assert found.steps == ()
    assert [verdict.disk for verdict in found.verdicts] == list(node.disks)


@pytest.mark.slow
@given(requests(), nodes())
def test_every_disk_gets_exactly_one_verdict(wanted: Wanted, node: Node) -> None:
    verdicts = judge(wanted, node, None)
    assert [verdict.disk for verdict in verdicts] == list(node.disks)
    assert all(verdict.reason for verdict in verdicts if verdict.use != "free")
