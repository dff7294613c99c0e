# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvme_raid on real disks, a real md driver and real power cuts.

A boot takes about a minute under emulation, so cases that need the same one share a test. Each begins with the node's
eight disks empty, and the last one leaves them so. The role runs where its variables, its unit or its order matter; its
module decides the rest.
"""

from __future__ import annotations

import json
import shlex
import typing as t

import pytest
from outcome import changed, refused, right, role_refused
from own_machine import NODE

if t.TYPE_CHECKING:
    from .conftest import Result, VmLab

POINT = "/mnt/resource_nvme"
UNIT = "nvme-raid-scratch.service"
# Everything that a check must not change: configuration, units, package database, mounts, arrays.
STATE = (
    "(find /etc /usr/local /var/lib/dpkg/status -xdev -type f -exec sha256sum {} + ; cat /proc/mdstat /proc/swaps; "
    "cut -d' ' -f5- /proc/self/mountinfo; ls -la /mnt) | sha256sum"
)
# For a boot with seven disks: the unit waits until all of them are there, and then not the minute that it would wait for the eighth.
SEVEN = f"/etc/systemd/system/{UNIT}.d/lab.conf"
SEVEN_DISKS = """[Service]
ExecStartPre=/bin/sh -c "until [ $$(ls -d /sys/block/nvme* | wc -l) = 7 ]; do sleep 1; done"
"""
SETTINGS = "/etc/nvme_raid/scratch.json"
# A service that needs the file system, and one that only starts after it.
DOCKER = """[Service]
Type=oneshot
ExecStart=/bin/touch /run/docker-started
[Install]
WantedBy=multi-user.target
"""
SLURMD = f"""[Service]
Type=oneshot
ExecStart=/bin/sh -c "findmnt -n -o FSTYPE {POINT} > /run/slurmd-saw"
[Install]
WantedBy=multi-user.target
"""
# One partition over most of a disk of the lab, as an MBR has it.
PARTITION = (
    'import struct, sys; open(sys.argv[1], "r+b").write(bytes(446)'
    ' + struct.pack("<8B2I", 0, 0, 0, 0, 0x83, 0, 0, 0, 2048, 1000000) + bytes(48) + bytes((0x55, 0xAA)))'
)


def writing(path: str, text: str) -> str:
    """The command that writes a file."""
    return f"printf %s {shlex.quote(text)} > {path}"


def role(lab: VmLab, tasks_from: str = "main", **options: t.Any) -> Result:
    return lab.role("nvme_raid", tasks_from, limit=NODE, **options)


def changes(result: Result) -> int:
    """How many tasks of a role, which must succeed, changed something."""
    return right(result, NODE)["changed"]


def module(lab: VmLab, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
    """Call the module as the role does, whose defaults are its own."""
    return lab.module("hpcai.gpu_cluster.nvme_raid", {"mount_point": POINT, **options}, check=check)


def boot_log(lab: VmLab) -> str:
    return lab.run(NODE, "journalctl", "-b", "-u", UNIT, "--no-pager", "-o", "cat")


def mounted(lab: VmLab) -> dict[str, str]:
    """What is mounted at the mount point, with owner and mode."""
    script = f"findmnt -nJo SOURCE,FSTYPE,OPTIONS,LABEL {POINT} || echo {{}}; stat -c '%U:%G %a' {POINT}"
    *lines, owner = lab.shell(NODE, script).splitlines()
    found = json.loads("".join(lines)).get("filesystems", [{}])[0]
    return {**found, "owner": owner}


def by_id(lab: VmLab, disk: int) -> str:
    return f"/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_{lab.serial(NODE, disk)}"


@pytest.fixture(scope="module", autouse=True)
def left_empty(vm_lab: VmLab) -> t.Iterator[None]:
    """The node's disks are empty when the last test has ended."""
    yield
    wipe(vm_lab)


@pytest.fixture
def empty(vm_lab: VmLab) -> VmLab:
    """The lab with a node whose disks are empty, made so without a boot."""
    wipe(vm_lab)
    return vm_lab


def wipe(lab: VmLab) -> None:
    absent = [number for number, disk in enumerate(lab.lab["nodes"][NODE]["disks"]) if not disk["present"]]
    if absent:
        lab.power_off(NODE)
    for number in absent:
        lab.insert_disk(NODE, number)
    lab.power_on(NODE)
    lab.shell(
        NODE,
        "while [ $(ls -d /sys/block/nvme* | wc -l) != 8 ]; do sleep 1; done;"
        f"systemctl disable --quiet {UNIT} || true; swapoff -a; umount -q {POINT} /mnt/other || true;"
        "for a in /dev/md[0-9]*; do if [ -e $a ]; then mdadm --stop $a; fi; done; "
        "vgchange -qan >/dev/null 2>&1 || true; sync;"
        f"if [ -e {SEVEN} ]; then rm {SEVEN}; systemctl daemon-reload; fi",
    )
    dirty = lab.written(NODE)
    if dirty:
        # Zeros all over, which the emulated disk writes by itself.
        lab.shell(
            NODE,
            f"for d in {' '.join(lab.devices(NODE, *dirty))}; do blkdiscard --force --zeroout $d; done; udevadm settle",
        )


def test_create_a_missing_disk_reboot_and_replaced_disks(empty: VmLab) -> None:
    """Check mode, create, idempotence; power cuts with a disk missing, with it back in another order, with new disks; removal."""
    lab = empty
    before, disks = lab.shell(NODE, STATE), lab.checksums(NODE)
    planned = module(lab, check=True, expected_disks=8)
    assert changed(planned)
    assert planned["diff"]["after"].startswith("create scratch, a raid0 of 8 disks")
    assert (lab.shell(NODE, STATE), lab.checksums(NODE)) == (before, disks)

    own = {"expected_disks": 8, "group": "users", "mode": "02775"}
    wanted = {f"nvme_raid_{name}": value for name, value in own.items()}
    wanted["nvme_raid_required_by"] = ["docker.service"]
    # The unit, the file system, and nothing in the second run.
    twice = role(lab, times=2, **wanted)
    assert changes(twice) == 2, twice.output
    found = mounted(lab)
    assert (found["fstype"], found["label"], found["owner"]) == ("xfs", "scratch", "root:users 2775")
    assert "noatime" in found["options"]
    # The timer runs, and what it starts tells the disks what is free: nearly all of it.
    timer = "nvme-raid-scratch-trim.timer"
    assert not changed(module(lab, state="verified", timer=timer, **own))
    active, trimmed, *shape = lab.shell(
        NODE,
        f"systemctl is-active {timer}; systemctl start nvme-raid-scratch-trim.service; systemctl stop {timer};"
        f"journalctl -b -u nvme-raid-scratch-trim.service --no-pager -o cat | grep 'MiB are free'; xfs_info {POINT}",
    ).splitlines()
    assert (active, int(trimmed.split()[1]) > 3000) == ("active", True)
    # Eight disks times 512 KiB, in blocks of 4 KiB.
    assert "sunit=128    swidth=1024 blks" in "\n".join(shape)
    refused(module(lab, state="verified", timer=timer, **own), "not_as_wanted", timer)

    # A unit that must not start without the file system stands in for Docker, which would fill the system's own disk.
    lab.shell(
        NODE,
        f"systemctl start {timer}; echo precious > {POINT}/data; mkdir -p {SEVEN.rpartition('/')[0]};"
        f"{writing(SEVEN, SEVEN_DISKS)}; {writing('/etc/systemd/system/docker.service', DOCKER)};"
        "systemctl enable --quiet docker.service;"
        f"""sed -i 's/"wait_s": 60/"wait_s": 5/' {SETTINGS}; grep -c '"wait_s": 5,*$' {SETTINGS}; sync""",
    )
    lab.power_off(NODE)
    lab.remove_disk(NODE, 3)
    lab.power_on(NODE)
    assert "made of 8 disks, and only 7 of them are there" in boot_log(lab)
    # Nothing writes to the bare directory, and who must not start without the disks has not. The node has booted all the same.
    script = f"LC_ALL=C mkdir {POINT}/docker 2>&1 || test -e /run/docker-started && echo written || systemctl is-active multi-user.target"
    bare = lab.shell(NODE, script).splitlines()
    assert ("Operation not permitted" in bare[0], bare[1:]) == (True, ["active"])
    disks = lab.checksums(NODE)
    refused(module(lab, **own), "disk_missing", "only 7 of them are there")
    refused(module(lab, state="verified", **own), "disk_missing")
    assert lab.checksums(NODE) == disks

    # The disk comes back, and all are in other slots: so does the data. A unit that wants to come later stands in for Slurm.
    lab.shell(
        NODE,
        f"{writing('/etc/systemd/system/slurmd.service', SLURMD)}; systemctl enable --quiet slurmd.service;"
        f"""rm -r {SEVEN.rpartition("/")[0]}; sed -i 's/"wait_s": 5/"wait_s": 60/' {SETTINGS}; sync""",
    )
    lab.power_off(NODE)
    lab.insert_disk(NODE, 3)
    lab.reorder_disks(NODE)
    lab.power_on(NODE)
    came = lab.shell(NODE, f"cat {POINT}/data /run/slurmd-saw; ls /run/docker-started", check=False)
    assert came.splitlines() == ["precious", "xfs", "/run/docker-started"], boot_log(lab)
    assert mounted(lab)["owner"] == "root:users 2775"

    lab.power_off(NODE)
    lab.replace_disks(NODE)
    lab.power_on(NODE)
    log = boot_log(lab)
    assert "create scratch, a raid0 of 8 disks" in log
    found = mounted(lab)
    assert (found["fstype"], found["owner"]) == ("xfs", "root:users 2775")
    units = "slurmd.service docker.service"
    script = f"ls {POINT}; cat /run/slurmd-saw; systemctl disable --quiet {units}; cd /etc/systemd/system; rm {units}"
    assert lab.shell(NODE, script) == "xfs\n"
    assert not changed(module(lab, **own))

    # Removing asks for consent while there are files, and for nothing when there are none.
    lab.shell(NODE, f"echo precious > {POINT}/data")
    role_refused(role(lab, "remove", **wanted), "consent_missing", "nvme_raid_allow_data_loss")
    assert lab.shell(NODE, f"cat {POINT}/data; systemctl is-enabled {UNIT}") == "precious\nenabled\n"
    # The file system, the unit, and nothing in the second run.
    removed = role(lab, "remove", times=2, nvme_raid_allow_data_loss=True, **wanted)
    assert changes(removed) == 2, removed.output
    assert mounted(lab).get("fstype") is None
    # The mount point is a directory like any other again, and nothing else is left.
    lab.shell(NODE, f"touch {POINT}/file; rm {POINT}/file; test ! -e /etc/systemd/system/docker.service.d")
    script = "set +e; systemctl list-unit-files --no-legend 'nvme-raid-scratch*'; grep ^md /proc/mdstat; wipefs --no-act /dev/nvme?n1"
    assert lab.shell(NODE, script, check=False) == ""


# In place of mkfs.xfs: its work, and then the superblock as it is while mkfs works, with the checksum of that.
INTERRUPTED = """#!/bin/sh -e
/usr/sbin/mkfs.xfs "$@" > /dev/null
for device; do :; done
xfs_db -x -c 'sb 0' -c 'write inprogress 1' "$device" > /dev/null
echo 'no power' >&2
exit 9
"""


def test_mkfs_that_was_interrupted_is_done_again_and_damage_is_left_alone(empty: VmLab) -> None:
    """The mark that is left by a power cut inside mkfs.xfs makes its work ours; what is damaged later is not."""
    lab = empty
    wanted = {"nvme_raid_expected_disks": 8, "nvme_raid_wait_s": 5}
    assert role(lab, "install", **wanted).rc == 0
    program = "/usr/local/sbin/mkfs.xfs"
    lab.shell(NODE, f"cat > {program} <<'END'\n{INTERRUPTED}END\nchmod 755 {program}")
    restart = f"systemctl restart {UNIT} && echo started || echo failed"
    assert lab.shell(NODE, restart) == "failed\n"
    assert "no power" in boot_log(lab)
    mark = "/var/lib/nvme_raid/scratch.json"
    uuid = json.loads(lab.run(NODE, "cat", mark))["uuid"]
    assert uuid in lab.run(NODE, "mdadm", "--detail", "--export", "/dev/md/scratch").replace(":", "")
    # As the kernel sees it.
    assert lab.shell(NODE, f"mount /dev/md/scratch /mnt 2>&1 || true; rm {program}") != ""
    assert lab.shell(NODE, restart) == "started\n", boot_log(lab)
    assert "mkfs was interrupted" in boot_log(lab)
    found = mounted(lab)
    assert (found["fstype"], found["label"]) == ("xfs", "scratch")
    assert lab.shell(NODE, f"test -e {mark} || echo gone") == "gone\n"

    # Files below the mount point are not hidden unasked, and keep it down only until somebody decides.
    assert lab.shell(NODE, f"umount {POINT}; chattr -i {POINT}; touch {POINT}/left; {restart}") == "failed\n"
    assert f"{POINT} is not empty (left)" in boot_log(lab)
    assert changed(module(lab, expected_disks=8, mount_over_files=True))

    # The same array with a file system that was in use, and is damaged: its root inode is overwritten.
    # A kernel that gives up a mount may still write to the log, so that sums would differ; another mkfs gives another UUID.
    uuid_of = "blkid -p -o value -s UUID /dev/md/scratch"
    filesystem, started = lab.shell(
        NODE,
        f"echo precious > {POINT}/data; umount {POINT}; rm {POINT}/left; "
        "xfs_db -x -c 'sb 0' -c 'addr rootino' -c 'write -c core.magic 0' /dev/md/scratch > /dev/null; sync;"
        f"{uuid_of}; {restart}",
    ).split()
    assert started == "failed"
    refused(module(lab, expected_disks=8), "command_failed", "`allow_data_loss: true`")
    assert lab.shell(NODE, uuid_of).strip() == filesystem
    assert changed(module(lab, state="absent", expected_disks=8, allow_data_loss=True))


def test_foreign_data_at_boot(empty: VmLab) -> None:
    """All disks are empty but two, which are not ours to make empty, at boot or in a play; then there is consent for them.

    One of them is zero at its start and end: it was taken without consent once.
    """
    lab = empty
    wanted = {"nvme_raid_expected_disks": 8, "nvme_raid_wait_s": 30}
    disk, other = lab.devices(NODE, 5, 6)
    lab.shell(NODE, f"mkfs.ext4 -q -L theirs {disk}; mkdir -p /mnt/other; mount {disk} /mnt/other; "
                    "echo theirs > /mnt/other/f; umount /mnt/other; head -c 20M /dev/urandom | "
                    f"dd of={other} bs=1M seek=200 iflag=fullblock conv=notrunc,fsync status=none")  # fmt: skip
    before = lab.checksums(NODE)
    # The unit is there before anything is refused.
    unasked = role(lab, **wanted)
    role_refused(unasked, "foreign_data", f"{by_id(lab, 5)} holds ext4 labeled theirs", "nvme_raid_format_devices")
    started = lab.shell(NODE, f"systemctl restart {UNIT} && echo started || echo failed")
    assert started == "failed\n"
    log = boot_log(lab)
    assert f"{by_id(lab, 5)} holds ext4 labeled theirs" in log
    # Between byte 209,715,200 and byte 230,686,720.
    assert f"{by_id(lab, 6)} holds data that is not recognized (the first of it was found at byte 2" in log
    # The block of variables that one command prints names exactly these two, and says how many disks there are.
    shown = role(lab, "consent", nvme_raid_models=[])
    assert shown.rc == 0, shown.output
    assert "nvme_raid_expected_disks: 8" in shown.output
    for number in range(8):
        assert (by_id(lab, number) in shown.output) == (number in (5, 6)), shown.output
    # Consent for other disks is none for this one.
    listed = [by_id(lab, 4), by_id(lab, 5)]
    refused(module(lab, expected_disks=8, allow_format=True, format_devices=listed), "foreign_data", by_id(lab, 6))
    assert lab.checksums(NODE) == before
    consent = {"nvme_raid_allow_format": True, "nvme_raid_format_devices": [by_id(lab, 5), by_id(lab, 6)]}
    assert changes(role(lab, "configure", **wanted, **consent)) == 1
    assert mounted(lab)["label"] == "scratch"


def test_disks_in_use_and_other_shapes(empty: VmLab) -> None:
    """What uses disks is named; RAID10 runs without a disk, is reported and repaired; RAID1; ext4; a single disk."""
    lab = empty
    used = lab.devices(NODE, *range(4))
    lab.shell(
        NODE,
        f"pvcreate -qq {used[0]}; vgcreate -qq theirs {used[0]}; lvcreate -qqy -n lv -L 100M theirs; udevadm settle;"
        f"mkswap -q {used[1]} >/dev/null; swapon {used[1]};"
        # udev looks at a disk that was written to, and reads its partitions by itself, unless it missed that.
        f"python3 -c '{PARTITION}' {used[2]}; udevadm settle;"
        f"until [ -b {used[2]}p1 ]; do blockdev --rereadpt {used[2]} || sleep 1; udevadm settle; done; mkfs.ext4 -q {used[2]}p1;"
        "mkdir -p /mnt/other; "
        # Read-only: the kernel goes on writing inode tables of a new ext4 that is mounted to be written to.
        f"mount -o ro {used[2]}p1 /mnt/other; head -c 4096 /dev/urandom | dd of={used[3]} bs=4096 status=none conv=fsync",
    )
    before = lab.checksums(NODE, range(4))
    plan = module(lab, check=True, level="raid10", expected_disks=4)
    assert changed(plan)
    reasons = "; ".join(disk["reason"] for disk in plan["disks"])
    for told in ("in use by dm-0", "in use as swap", "mounted on /mnt/other", "data that is not recognized"):
        assert told in reasons, plan
    wanted = {"level": "raid10", "chunk_kib": 64, "expected_disks": 4, "filesystem": "ext4"}
    assert changed(module(lab, **wanted))
    assert lab.checksums(NODE, range(4)) == before
    # Two data disks times 64 KiB, in blocks of 4 KiB. (mkfs.xfs leaves stripes out on less than 1 GiB.)
    assert "RAID stripe width:        32" in lab.shell(NODE, "dumpe2fs -h /dev/md/scratch 2>/dev/null")

    # A disk of the RAID10 dies: still mounted, verify tells, and an empty disk takes its place.
    lab.shell(NODE, f"echo precious > {POINT}/data; mdadm --wait /dev/md/scratch || true")
    dead = lab.devices(NODE, 7)[0]
    lab.shell(NODE, f"mdadm -q /dev/md/scratch --fail {dead}; mdadm -q /dev/md/scratch --remove {dead}")
    refused(module(lab, state="verified", **wanted), "degraded", "3 of its 4 disks work", f"--re-add {dead}`")
    # With its old superblock it holds data; only the empty disk that replaces it is taken.
    assert not changed(module(lab, **wanted))
    lab.shell(NODE, f"blkdiscard --force --zeroout {dead}; udevadm settle")
    repaired = module(lab, **wanted)
    assert changed(repaired)
    assert f"add {dead.removeprefix('/dev/')} to scratch" in " ".join(repaired["steps"]), repaired
    assert lab.shell(NODE, f"mdadm --wait /dev/md/scratch || true; cat {POINT}/data") == "precious\n"
    assert not changed(module(lab, state="verified", **wanted))
    assert changed(module(lab, state="absent", allow_data_loss=True, **wanted))

    # Two copies on disks chosen by their names. Nothing is on it: removing it needs no consent.
    pair = {"level": "raid1", "by_id": [by_id(lab, 4), by_id(lab, 5)]}
    assert changed(module(lab, **pair))
    assert " : active raid1 " in lab.run(NODE, "cat", "/proc/mdstat")
    assert changed(module(lab, state="absent", **pair))

    # One disk, chosen by its name, without an array: as ext4, like a local SSD.
    single = {"level": "single", "by_id": [by_id(lab, 6)], "filesystem": "ext4"}
    assert changes(role(lab, **{f"nvme_raid_{name}": value for name, value in single.items()})) == 2
    assert not changed(module(lab, **single))
    # At boot it is found again by its label.
    before = mounted(lab)
    assert (before["source"], before["fstype"]) == (*lab.devices(NODE, 6), "ext4")
    lab.shell(NODE, f"umount {POINT}; systemctl restart {UNIT}")
    assert mounted(lab) == before
