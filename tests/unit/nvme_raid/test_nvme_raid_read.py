# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read from a node's sysfs, /dev and tools."""

from __future__ import annotations

import dataclasses
import errno
import os
import subprocess
import typing as t
from pathlib import Path

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.mounts import parse_mountinfo
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.geometry import (
    Geometry,
    expected_geometry,
    geometry_fits,
    parse_dumpe2fs,
    parse_xfs_info,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.judge import judge
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import (
    Begun,
    Directory,
    Member,
    Node,
    Signature,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.outputs import (
    parse_examine,
    parse_mdstat,
    parse_wipefs,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.plan import plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.read import Reader, device_mounts, unprobed
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import wanted_from
from unit.nvme_raid.fake_disks import MIB, FakeDisks

FIXTURES = Path(__file__).parent / "fixtures"
UUID = "bf2e5d29df0ae3c096d4c705ef68e771"


def recorded(name: str) -> str:
    return (FIXTURES / name).read_text(encoding="utf-8")


@pytest.fixture
def fake(tmp_path: Path) -> FakeDisks:
    return FakeDisks(tmp_path)


def read(fake: FakeDisks, **wanted: t.Any) -> Node:
    return Reader(fake, wanted_from({"mount_point": "/mnt/scratch", **wanted}), fake.root).node()


def verdicts(fake: FakeDisks, **wanted: t.Any) -> dict[str, tuple[str, str]]:
    request = wanted_from({"mount_point": "/mnt/scratch", **wanted})
    return {verdict.disk.name: (verdict.use, verdict.reason) for verdict in judge(request, read(fake, **wanted), None)}


# -- recorded outputs ----------------------------------------------------------------------------------------------------


def test_signatures_of_a_raid0_of_eight() -> None:
    found = parse_wipefs(recorded("wipefs_array.json"))
    member = Signature("linux_raid_member", "any:scratch", "bf2e5d29-df0a-e3c0-96d4-c705ef68e771")
    assert {name: found[name] for name in found if name != "md127"} == {f"nvme{n}n1": (member,) for n in range(8)}
    assert [(entry.type, entry.label) for entry in found["md127"]] == [("xfs", "scratch")]


def test_no_signatures_at_all() -> None:
    assert parse_wipefs("") == {}
    assert parse_wipefs(recorded("wipefs_empty.json")) == {}


def test_signatures_of_other_users() -> None:
    found = parse_wipefs(recorded("wipefs_foreign.json"))
    assert {name: [entry.type for entry in entries] for name, entries in found.items()} == {
        "nvme0n1": ["ext4"],
        "nvme1n1": ["LVM2_member"],
        "nvme2n1": ["swap"],
        "nvme3n1": ["dos"],
        "nvme4n1": ["linux_raid_member"],
    }


def test_a_member_tells_its_array() -> None:
    assert parse_examine(recorded("examine.txt")) == Member(UUID, "scratch", "raid0", 8, 0)
    assert parse_examine("") is None


def test_mdstat_tells_which_arrays_run() -> None:
    assert parse_mdstat(recorded("mdstat.txt")) == {"md127": (True, frozenset(f"nvme{n}n1" for n in range(8)))}
    active, members = parse_mdstat(recorded("mdstat_degraded.txt"))["md127"]
    assert active
    assert members == {"nvme0n1", "nvme1n1", "nvme3n1"}
    assert parse_mdstat(recorded("mdstat_inactive.txt"))["md127"][0] is False


def test_mounts_by_number_and_by_name() -> None:
    mounts = device_mounts(parse_mountinfo(recorded("mountinfo.txt")), {"9:127": "md127", "254:0": "vda"})
    by_point = {mount.point: mount for mount in mounts}
    assert by_point["/mnt/resource_nvme"].device == "md127"
    assert "noatime" in by_point["/mnt/resource_nvme"].options
    assert by_point["/"].device == "vda"
    assert by_point["/proc"].device == ""


def test_geometry_is_counted_in_bytes() -> None:
    assert parse_xfs_info(recorded("xfs_info.txt")) == Geometry(512 << 10, 4 << 20)
    assert parse_xfs_info(recorded("xfs_info.txt")) == expected_geometry("raid0", 8, 512)
    assert parse_dumpe2fs(recorded("dumpe2fs.txt")) == expected_geometry("raid10", 4, 512)
    assert parse_dumpe2fs("Block size:               4096\n") == Geometry(0, 0)
    assert parse_xfs_info("xfs_info: cannot open /mnt") is None
    # mkfs.xfs leaves the stripes of less than 1 GiB out, and cannot be told otherwise.
    small, want = parse_xfs_info(recorded("xfs_info_small.txt")), expected_geometry("raid10", 4, 64)
    assert small is not None
    assert (small, small.size_bytes) == (Geometry(0, 0), 261632 << 12)
    assert geometry_fits(small, want)
    assert not geometry_fits(dataclasses.replace(small, size_bytes=1 << 30), want)
    assert not geometry_fits(None, want)
    assert not geometry_fits(Geometry(64 << 10, 64 << 10, 1 << 20), want)
    # An odd number of disks: the pattern of two copies repeats after all of them.
    assert expected_geometry("raid10", 5, 64) == Geometry(64 << 10, 5 * (64 << 10))
    assert expected_geometry("raid1", 2, 0) is None


# -- a node --------------------------------------------------------------------------------------------------------------


def test_empty_disks_are_free_and_known_by_names_that_last(fake: FakeDisks) -> None:
    fake.disk("nvme10n1", "259:1", "B")
    fake.disk("nvme2n1", "259:0", "A")
    node = read(fake)
    assert [disk.name for disk in node.disks] == ["nvme2n1", "nvme10n1"]
    assert node.disks[0].stable == "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_A"
    assert (node.disks[0].model, node.disks[0].bytes) == ("QEMU NVMe Ctrl", 4 * MIB)
    assert verdicts(fake) == {"nvme2n1": ("free", ""), "nvme10n1": ("free", "")}
    # One process looks at all of them.
    assert len(fake.commands) == 2


def test_what_uses_a_disk_is_found_through_partitions_lvm_and_md(fake: FakeDisks) -> None:
    for number in range(5):
        fake.disk(f"nvme{number}n1", f"259:{number}", f"S{number}")
    fake.partition("nvme0n1", "nvme0n1p2", "259:10")
    fake.on_top("dm-0", "253:0", "nvme0n1p2")
    fake.mount("253:0", "/", "/dev/mapper/vg-root", "ext4")
    fake.partition("nvme1n1", "nvme1n1p1", "259:11")
    fake.mount("0:40", "/data", "/dev/nvme1n1p1", "btrfs")
    fake.write("proc/swaps", "Filename Type Size Used Priority\n/dev/nvme2n1 partition 1 0 -2")
    fake.array("md5", "9:5", "nvme3n1", "nvme4n1", level="raid1")
    for name in ("nvme3n1", "nvme4n1"):
        fake.sign(name, "linux_raid_member", "host:other", "a" * 32)
    assert verdicts(fake) == {
        "nvme0n1": ("excluded", "carries the operating system (mounted on /)"),
        "nvme1n1": ("excluded", "is mounted on /data"),
        "nvme2n1": ("excluded", "is in use as swap"),
        "nvme3n1": ("excluded", "is in use by the md array other"),
        "nvme4n1": ("excluded", "is in use by the md array other"),
    }


def test_names_in_folders_below_dev_disk_are_known_too(fake: FakeDisks) -> None:
    """As azure-vm-utils makes them; names of contents are none of the disk, at whatever depth."""
    fake.disk("nvme0n1", "259:0", "A")
    fake.disk("nvme1n1", "259:1")
    for link, target in {
        "by-path/pci-0001:00:00.0-nvme-1": "nvme1n1",
        "azure/local/by-serial/A": "nvme0n1",
        "azure/local/by-index/1": "nvme1n1",
        "azure/local/by-name/nvme-440G-1": "nvme1n1",
        "azure/local/by-serial/B": "nvme1n1",
        "azure/local/by-uuid/1b2c": "nvme1n1",
        "azure/root": "nvme1n1",
        "by-label/scratch": "nvme1n1",
    }.items():
        path = fake.root / "dev/disk" / link
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to("../" * link.count("/") + f"../{target}")
    # A folder that is a link, to where one would never come to an end.
    (fake.root / "dev/disk/azure/again").symlink_to("..")
    first, second = read(fake).disks
    assert first.stable == "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_A"
    assert first.links[-1] == "/dev/disk/azure/local/by-serial/A"
    # A serial number means this very disk, a place whichever is there.
    assert second.links[0] == "/dev/disk/azure/local/by-serial/B"
    assert set(second.links[1:]) == {
        "/dev/disk/azure/local/by-index/1",
        "/dev/disk/azure/root",
        "/dev/disk/azure/local/by-name/nvme-440G-1",
        "/dev/disk/by-path/pci-0001:00:00.0-nvme-1",
    }
    assert verdicts(fake, by_id=["/dev/disk/azure/local/by-index/*"])["nvme1n1"] == ("free", "")


def test_network_storage_with_our_label_is_seen_as_that(fake: FakeDisks) -> None:
    fake.disk("nvme0n1", "259:0", "vol1", model="MSFT NVMe Accelerator v1.0")
    fake.sign("nvme0n1", "xfs", "scratch")
    found = plan(wanted_from({"mount_point": "/mnt/scratch"}), read(fake))
    assert (found.found, found.steps) == (None, ())
    assert "is network storage" in found.warnings[0]


def test_network_disks_and_paths_of_multipath_are_no_local_disks(fake: FakeDisks) -> None:
    fake.disk("nvme0n1", "259:0", "vol1", model="Amazon Elastic Block Store")
    fake.disk("nvme1c0n1", "259:9")
    fake.disk("nvme1n1", "259:1", "A")
    fake.disk("loop0", "7:0", size=0)
    assert verdicts(fake) == {
        "nvme0n1": ("excluded", "is network storage, not a disk of this machine"),
        "nvme1n1": ("free", ""),
    }


@pytest.mark.parametrize("listing", range(1, 7))
def test_a_disk_may_appear_while_others_are_read(
    fake: FakeDisks, monkeypatch: pytest.MonkeyPatch, listing: int
) -> None:
    """Whichever list of disks it is missing from: it is not there yet, or it is what it is."""
    fake.disk("nvme0n1", "259:0", "A")
    listdir, left = os.listdir, [listing]

    def late(path: Path) -> list[str]:
        if Path(path) == fake.root / "sys/block":
            left[0] -= 1
            if left[0] == 0:
                fake.disk("nvme1n1", "259:1", "B")
        return listdir(path)

    monkeypatch.setattr(os, "listdir", late)
    assert verdicts(fake).get("nvme1n1", ("free", "")) == ("free", "")


@pytest.mark.parametrize("missing", ["device/transport", "device/model", "size"])
def test_a_disk_that_does_not_tell_what_it_is_is_not_judged(fake: FakeDisks, missing: str) -> None:
    fake.disk("nvme0n1", "259:0", "A")
    (fake.root / "sys/block/nvme0n1" / missing).unlink()
    told = f"cannot be judged: its {os.path.basename(missing)} cannot be read"
    # What cannot be read does not make the selector pass it over either.
    for wanted in ({}, {"models": ["QEMU*"], "min_mib": 1}):
        assert verdicts(fake, **wanted) == {"nvme0n1": ("unread", told)}
    assert verdicts(fake, transports=["scsi"])["nvme0n1"][0] == "unselected"


def test_what_is_known_of_a_disk_is_enough_to_rule_it_out(fake: FakeDisks) -> None:
    fake.disk("nvme0n1", "259:0", "A", model="Amazon Elastic Block Store")
    fake.disk("nvme1n1", "259:1", "B")
    (fake.root / "sys/block/nvme0n1/device/transport").unlink()
    (fake.root / "sys/block/nvme1n1/device/model").unlink()
    fake.write("sys/block/nvme1n1/device/transport", "tcp")
    network = ("excluded", "is network storage, not a disk of this machine")
    assert verdicts(fake) == {"nvme0n1": network, "nvme1n1": network}


def test_a_disk_without_a_model_is_a_disk(fake: FakeDisks) -> None:
    fake.disk("nvme0n1", "259:0", "A", model="")
    assert verdicts(fake) == {"nvme0n1": ("free", "")}


def test_a_disk_with_several_paths_is_known_by_its_controller(fake: FakeDisks) -> None:
    fake.disk("nvme0n1", "259:0", "A")
    (fake.root / "sys/block/nvme0n1/device/transport").unlink()
    fake.write("sys/block/nvme0n1/device/nvme3/transport", "pcie")
    assert verdicts(fake) == {"nvme0n1": ("free", "")}
    fake.write("sys/block/nvme0n1/device/nvme3/transport", "rdma")
    assert verdicts(fake)["nvme0n1"][0] == "excluded"


@pytest.mark.parametrize("offset", [0, MIB - 1, 2 * MIB, 4 * MIB - 1])
def test_data_without_a_signature_is_seen_wherever_it_begins(fake: FakeDisks, offset: int) -> None:
    fake.disk("nvme0n1", "259:0", "A")
    fake.write_bytes("nvme0n1", offset, b"x" * (4096 if offset % 4096 == 0 else 1))
    reason = f"holds data that is not recognized (the first of it was found at byte {offset})"
    assert verdicts(fake) == {"nvme0n1": ("data", reason)}
    assert verdicts(fake, blank_check="signatures") == {"nvme0n1": ("free", "")}


def test_a_disk_of_which_only_the_ends_are_zero_is_not_empty(fake: FakeDisks) -> None:
    """20 MiB at 200 MiB of a disk of 512 MiB, which was taken without consent."""
    fake.disk("nvme0n1", "259:0", "A", size=1 << 20)
    os.truncate(fake.root / "dev/nvme0n1", 512 * MIB)
    fake.write_bytes("nvme0n1", 200 * MIB, b"x" * (20 * MIB))
    use, reason = verdicts(fake)["nvme0n1"]
    first = int(reason.rpartition(" ")[2].rstrip(")"))
    assert (use, 200 * MIB <= first < 220 * MIB) == ("data", True)


@pytest.mark.parametrize("offset", [MIB, 63 * 512, 63 * 4096])
def test_a_file_system_where_a_partition_was_is_seen_without_its_table(fake: FakeDisks, offset: int) -> None:
    fake.disk("nvme0n1", "259:0", "A")
    path = fake.root / "dev/nvme0n1"
    subprocess.run(["mkfs.ext4", "-q", "-L", "their data", "-E", f"offset={offset}", path, "2048k"], check=True)
    assert path.stat().st_size == 4 * MIB
    told = ("data", f"holds ext4 labeled their data (at byte {offset})")
    # A signature counts whatever else is there.
    for blank_check in ("zeros", "signatures"):
        assert verdicts(fake, blank_check=blank_check) == {"nvme0n1": told}


def test_our_label_where_a_partition_was_is_not_ours(fake: FakeDisks) -> None:
    fake.disk("nvme0n1", "259:0", "A")
    fake.disk("nvme1n1", "259:1", "B")
    path = fake.root / "dev/nvme0n1"
    subprocess.run(["mkfs.ext4", "-q", "-L", "scratch", "-E", f"offset={MIB}", path, "2048k"], check=True)
    with pytest.raises(ClusterError, match=r"holds ext4 labeled scratch \(at byte 1048576"):
        plan(wanted_from({"mount_point": "/mnt/scratch", "filesystem": "ext4"}), read(fake))


@pytest.mark.parametrize("offset", [512, 4096, 4 * MIB - 512, 4 * MIB - 4096])
def test_a_partition_table_is_seen_whatever_sectors_the_disk_had(fake: FakeDisks, offset: int) -> None:
    """libblkid looks for it where the sectors that the disk has now put it."""
    fake.disk("nvme0n1", "259:0", "A")
    fake.write_bytes("nvme0n1", offset, b"EFI PART")
    assert verdicts(fake) == {"nvme0n1": ("data", f"holds a partition table (gpt) (at byte {offset})")}


def test_an_empty_disk_costs_no_process_of_its_own(fake: FakeDisks) -> None:
    for number in range(3):
        fake.disk(f"nvme{number}n1", f"259:{number}", f"S{number}")
    read(fake)
    assert [command[4] for command in fake.commands] == ["wipefs"]


def test_a_disk_that_cannot_be_read_hides_no_other(fake: FakeDisks) -> None:
    for number in range(3):
        fake.disk(f"nvme{number}n1", f"259:{number}", f"S{number}")
    fake.unreadable = {"nvme0n1"}
    fake.sign("nvme2n1", "ext4", "data")
    assert verdicts(fake) == {
        "nvme0n1": ("excluded", "cannot be read"),
        "nvme1n1": ("free", ""),
        "nvme2n1": ("data", "holds ext4 labeled data"),
    }


def test_a_disk_that_cannot_be_read_in_its_middle_is_named(fake: FakeDisks, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.disk("nvme0n1", "259:0", "A")

    def broken(_handle: int, _length: int, offset: int) -> bytes:
        if offset > 2 * MIB:
            raise OSError(errno.EIO, "Input/output error")
        return bytes(_length)

    monkeypatch.setattr(os, "pread", broken)
    with pytest.raises(ClusterError, match="/dev/nvme0n1 cannot be read: Input/output error") as caught:
        read(fake)
    assert caught.value.kind == "unreadable"


def test_a_disk_that_vanishes_is_an_error_not_an_empty_disk(fake: FakeDisks) -> None:
    fake.disk("nvme0n1", "259:0", "A")
    (fake.root / "dev/nvme0n1").unlink()
    with pytest.raises(ClusterError, match="cannot be opened"):
        read(fake)


def test_disks_that_were_not_asked_for_are_not_opened(fake: FakeDisks) -> None:
    fake.disk("sda", "8:0", model="Virtual Disk")
    fake.disk("nvme0n1", "259:0", "A")
    (fake.root / "dev/sda").unlink()
    assert verdicts(fake)["sda"] == ("unselected", "its transport is scsi")
    assert all("/dev/sda" not in command for command in fake.commands)


@pytest.mark.parametrize("mark", ["run/systemd/container", "run/.containerenv"])
def test_a_container_leaves_the_disks_of_its_host_alone(fake: FakeDisks, mark: str) -> None:
    fake.disk("nvme0n1", "259:0", "A")
    fake.write(mark, "podman")
    assert verdicts(fake) == {"nvme0n1": ("excluded", "belongs to the machine that this container runs on")}
    assert fake.commands == []


def test_controllers_that_have_no_disk_yet_are_known_from_the_bus(fake: FakeDisks) -> None:
    for number, kind in enumerate(("0x010802", "0x010802", "0x010802", "0x010802", "0x020000")):
        fake.write(f"sys/bus/pci/devices/0000:0{number}:00.0/class", kind)
    fake.write("sys/bus/pci/devices/0000:01:00.0/nvme/nvme0/cntlid", 1)
    fake.write("sys/bus/pci/devices/0000:02:00.0/nvme/nvme1/nvme1n1/size", 1)
    fake.write("sys/bus/pci/devices/0000:03:00.0/nvme/nvme2/nvme2c2n1/size", 1)
    assert unprobed(fake.root) == ["0000:00:00.0", "0000:01:00.0"]


def test_an_array_has_the_name_that_its_members_carry(fake: FakeDisks) -> None:
    for number in range(2):
        fake.disk(f"nvme{number}n1", f"259:{number}", f"S{number}")
        fake.sign(f"nvme{number}n1", "linux_raid_member", "any:scratch", "bf2e5d29-df0a-e3c0-96d4-c705ef68e771")
    fake.array("md127", "9:127", "nvme0n1", "nvme1n1")
    fake.sign("md127", "xfs", "scratch")
    fake.mount("9:127", "/mnt/scratch", "/dev/md127")
    node = read(fake)
    array = node.arrays[0]
    assert (array.name, array.uuid, array.level, array.disks, array.chunk_kib) == ("scratch", UUID, "raid0", 2, 512)
    assert (array.active, array.failed, array.degraded) == (True, False, 0)
    assert node.mounted("md127")[0].point == "/mnt/scratch"
    # Where all is well, one process is all that it takes.
    assert len(fake.commands) == 1


def test_members_are_examined_where_the_array_does_not_run(fake: FakeDisks) -> None:
    for number in range(2):
        fake.disk(f"nvme{number}n1", f"259:{number}", f"S{number}")
        fake.sign(f"nvme{number}n1", "linux_raid_member", "any:scratch", "bf2e5d29-df0a-e3c0-96d4-c705ef68e771")
        fake.examine[f"nvme{number}n1"] = recorded("examine.txt")
    fake.array("md127", "9:127", "nvme0n1", array_state="inactive", level="", raid_disks=0)
    node = read(fake)
    assert [disk.member for disk in node.disks] == [Member(UUID, "scratch", "raid0", 8)] * 2
    assert (node.arrays[0].active, node.arrays[0].name) == (False, "scratch")


def test_a_raid0_that_lost_a_disk_while_running_has_failed(fake: FakeDisks) -> None:
    fake.disk("nvme0n1", "259:0", "A")
    fake.array("md127", "9:127", "nvme0n1", raid_disks=2, array_state="broken")
    fake.sign("nvme0n1", "linux_raid_member", "any:scratch", UUID)
    assert read(fake).arrays[0].failed


@pytest.mark.parametrize(("flag", "half_made"), [(0, False), (1, True)])
def test_mkfs_xfs_says_itself_whether_it_has_ended(fake: FakeDisks, flag: int, half_made: bool) -> None:
    """``sb_inprogress`` of struct xfs_dsb (fs/xfs/libxfs/xfs_format.h)."""
    superblock = b"XFSB" + bytes(122) + bytes([flag]) + bytes(385)
    fake.disk("nvme0n1", "259:0", "A")
    fake.disk("nvme1n1", "259:1", "B")
    fake.sign("nvme1n1", "linux_raid_member", "any:scratch", UUID)
    fake.array("md127", "9:127", "nvme1n1")
    for name in ("nvme0n1", "md127"):
        fake.sign(name, "xfs", "scratch")
        fake.write_bytes(name, 0, superblock)
    node = read(fake)
    assert (node.disks[0].half_made, node.arrays[0].half_made) == (half_made, half_made)


def test_a_creation_that_has_begun_is_read_by_its_name(fake: FakeDisks) -> None:
    fake.disk("nvme0n1", "259:0", "A")
    fake.write("var/lib/nvme_raid/scratch.json", f'{{"uuid": "{UUID}", "disks": []}}')
    assert read(fake).begun == Begun(UUID)
    assert read(fake, name="other").begun is None


def test_the_mount_point_and_what_would_be_lost_with_it(fake: FakeDisks) -> None:
    fake.disk("nvme0n1", "259:0", "A")
    point = fake.root / "mnt/scratch"
    point.chmod(0o1777)
    assert read(fake).directory.mode == 0o1777
    (point / "lost+found").mkdir()
    assert not read(fake).directory.empty
    fake.mount("259:0", "/mnt/scratch", "/dev/nvme0n1")
    assert not read(fake).directory.holds_files
    (point / "data").touch()
    assert read(fake).directory.holds_files
    assert read(fake, mount_point="/mnt/none").directory == Directory()
    (fake.root / "mnt/link").symlink_to("scratch")
    assert read(fake, mount_point="/mnt/link").directory.kind == "link"


def test_a_file_system_in_trouble_counts_as_full(fake: FakeDisks, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.disk("nvme0n1", "259:0", "A")
    fake.mount("259:0", "/mnt/scratch", "/dev/nvme0n1")
    listdir = os.listdir

    def broken(path: Path) -> list[str]:
        if Path(path).name == "scratch":
            raise OSError(errno.EIO, "Input/output error")
        return listdir(path)

    monkeypatch.setattr(os, "listdir", broken)
    assert read(fake).directory.holds_files


# -- requests ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"by_id": ["/dev/nvme0n1"]}, "does not name the same disk"),
        ({"by_id": ["nvme0n1"]}, "does not name the same disk"),
        ({"format_devices": ["/dev/disk/by-id/nvme-*"]}, "is a pattern"),
        ({"mount_options": ["nobarrier"]}, "nobarrier"),
        ({"mount_options": ["noatime", "loop"]}, "has loop"),
        ({"mount_options": ["noatime,offset=1048576"]}, "has offset"),
        ({"mount_options": ["noatime,ro"]}, "nobody could write to it"),
        ({"mkfs_options": ["-d", "su=512k,sw=8"]}, "stripe geometry"),
        ({"mkfs_options": ["-E", "stride=128,stripe_width=1024"], "filesystem": "ext4"}, "stripe geometry"),
        ({"label": "thirteen-char"}, "label of an xfs"),
        ({"label": "a b"}, "label of an xfs"),
        ({"name": "any:scratch"}, "not a name"),
        ({"mount_point": "/"}, "mount point"),
        ({"mount_point": "/mnt/../etc"}, "mount point"),
        # Mounted at /mnt, it would not be found there by the next run, which would mount it once more.
        ({"mount_point": "/mnt/."}, "mount point"),
        ({"mode": "rwx"}, "not a mode"),
        ({"chunk_kib": 48}, "power of two"),
        ({"level": "raid5"}, "raid5"),
        ({"expected_disks": -1}, "expected_disks"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_looked_at(settings: dict[str, t.Any], told: str) -> None:
    with pytest.raises(ClusterError) as caught:
        wanted_from({"mount_point": "/mnt/scratch", **settings})
    assert caught.value.kind == "bad_input"
    assert told in str(caught.value)


def test_the_label_comes_from_the_name() -> None:
    assert wanted_from({"name": "a-rather-long-name"}).label == "a-rather-lon"
    assert wanted_from({"name": "a-rather-long-name", "label": "x" * 16, "filesystem": "ext4"}).label == "x" * 16
