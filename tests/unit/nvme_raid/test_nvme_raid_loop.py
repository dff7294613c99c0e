# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module, and the program of the boot unit, on a real disk: a loop device of this machine."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid import (
    apply,
    arrays,
    bare,
    begun,
    boot,
    points,
    read,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import Wanted, wanted_from
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.steps import Step
from ansible_collections.hpcai.gpu_cluster.plugins.modules import nvme_raid
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._programs import build
from module_run import run_main

pytestmark = pytest.mark.oldest

# Another one in every process: the size tells a test's disk from those of tests that run at the same time.
SIZE = (24 + os.getpid() % 64) << 20
# As is the name of the file system, under which a node keeps what must outlive a run.
NAME = f"lab{os.getpid()}"


class Loop:
    """A loop device, a mount point, and the module run on them."""

    def __init__(self, folder: Path) -> None:
        self.image, self.mount_point = folder / "disk.img", folder / "mnt"
        self.image.write_bytes(b"")
        os.truncate(self.image, SIZE)
        done = subprocess.run(["losetup", "--find", "--show", self.image], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no loop device here: {done.stderr.strip()}")
        self.device = done.stdout.strip()
        self.settings: dict[str, t.Any] = {
            "name": NAME, "level": "single", "transports": ["loop"], "filesystem": "ext4", "label": f"t{os.getpid()}",
            "min_mib": SIZE >> 20, "max_mib": SIZE >> 20, "mount_point": str(self.mount_point), "mode": "0750",
        }  # fmt: skip

    def module(self, **changes: t.Any) -> dict[str, t.Any]:
        check = changes.pop("check", False)
        return run_main(nvme_raid.main, {**self.settings, **changes, "_ansible_check_mode": check})

    def mounted(self) -> bool:
        return os.path.ismount(self.mount_point)

    def close(self) -> None:
        if self.mounted():
            subprocess.run(["umount", self.mount_point], check=True)
        # Immutable directories could not be cleaned up.
        for point in {str(self.mount_point), *points.read_points(Path("/"), NAME)}:
            bare.release(point)
        points.tidy(Path("/"), NAME)
        subprocess.run(["losetup", "--detach", self.device], check=True)


@pytest.fixture
def loop(tmp_path: Path) -> t.Iterator[Loop]:
    if any(os.path.exists(mark) for mark in ("/run/systemd/container", "/run/.containerenv")):
        pytest.skip("in a container no disk is touched")
    if os.geteuid() or not shutil.which("losetup") or not shutil.which("mkfs.ext4"):
        pytest.skip("needs root, losetup and mkfs.ext4")
    made = Loop(tmp_path)
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.newest
def test_a_disk_is_made_used_and_given_back(loop: Loop) -> None:
    planned = loop.module(check=True)
    assert planned["steps"] == [f"make ext4 on {loop.device}", f"mount {NAME} at {loop.mount_point}"]
    assert not loop.image.read_bytes().strip(b"\0")
    assert f"To be done for {NAME}" in loop.module(state="verified")["msg"]

    first = loop.module()
    assert first["changed"]
    assert first["steps"] == planned["steps"]
    assert first["diff"]["after"] == "".join(f"{step}\n" for step in planned["steps"])
    assert first["array"]["device"] == loop.device
    assert loop.mounted()
    assert loop.mount_point.stat().st_mode & 0o7777 == 0o750
    assert not loop.module()["changed"]
    assert not loop.module(state="verified")["changed"]

    loop.mount_point.chmod(0o777)
    assert loop.module(mount_options=["nodev"])["steps"] == [
        f"mount {loop.mount_point} again with nodev",
        f"set owner and mode of {loop.mount_point} to 0:0 0750",
    ]
    assert not loop.module(mount_options=["nodev"])["changed"]

    (loop.mount_point / "data").write_text("precious")
    assert loop.module(state="absent")["error_kind"] == "consent_missing"
    assert (loop.mount_point / "data").read_text() == "precious"
    assert loop.module(state="absent", allow_data_loss=True)["changed"]
    assert not loop.mounted()
    assert not loop.module(state="absent")["changed"]
    # Given back empty: it is taken again without consent.
    assert loop.module()["changed"]


def write(loop: Loop, offset: int, data: bytes) -> None:
    with open(loop.device, "r+b") as handle:
        handle.seek(offset)
        handle.write(data)


@pytest.mark.slow
@pytest.mark.newest
def test_data_between_zeros_needs_consent(loop: Loop) -> None:
    """The first and last MiB of the disk are zero: it was taken without consent."""
    write(loop, 10 << 20, b"precious" * 65536)
    before = loop.image.read_bytes()
    refused = loop.module()
    assert refused["error_kind"] == "foreign_data"
    first = int(refused["msg"].partition("found at byte ")[2].partition(")")[0])
    assert 10 << 20 <= first < 11 << 20
    assert f"{loop.device} holds data that is not recognized" in refused["msg"]
    assert "`allow_format: true`" in refused["msg"]
    assert loop.image.read_bytes() == before
    # What is erased with consent counts as empty at the last look, too.
    assert loop.module(allow_format=True, format_devices=[loop.device])["changed"]


@pytest.mark.slow
def test_a_power_cut_inside_mkfs_does_not_keep_the_disk_from_being_used(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """mkfs has written to the disk and not ended. Without the mark of it, the same disk is somebody else's."""
    link, programs = "/dev/disk/by-id/lab-1", tmp_path / "bin"
    monkeypatch.setattr(read, "stable_links", lambda _root: {loop.device.removeprefix("/dev/"): (link,)})
    monkeypatch.setattr(begun, "FOLDER", str(tmp_path / "lib").lstrip("/"))
    programs.mkdir()
    cut = programs / "mkfs.ext4"
    cut.write_text(
        f"#!/bin/sh\ndd if=/dev/urandom of={loop.device} bs=1M count=4 seek=1 conv=notrunc status=none\nexit 9\n"
    )
    cut.chmod(0o755)
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", f"{programs}:{path}")
    assert loop.module()["error_kind"] == "command_failed"
    monkeypatch.setenv("PATH", path)
    # Who only looks leaves the mark.
    for options in ({"state": "inspected"}, {"state": "verified"}, {"check": True}):
        loop.module(**options)
        assert (tmp_path / f"lib/{NAME}.json").exists()
    planned = loop.module(check=True)["steps"]
    assert planned == [f"make ext4 on {loop.device}", f"mount {NAME} at {loop.mount_point}"]
    mark = tmp_path / f"lib/{NAME}.json"
    kept = mark.read_text()
    mark.write_text(kept.replace("lab-1", "lab-2"))
    before = loop.image.read_bytes()
    assert loop.module()["error_kind"] == "foreign_data"
    assert loop.image.read_bytes() == before
    mark.write_text(kept)
    assert loop.module()["steps"] == planned
    assert loop.mounted()
    assert not mark.exists()


@pytest.mark.slow
def test_a_power_cut_inside_a_removal_leaves_a_disk_that_is_given_back_or_made_again(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The file system is none any more, and zeros have not reached all places: nobody else's data, with or without another removal."""
    link = "/dev/disk/by-id/lab-1"
    monkeypatch.setattr(read, "stable_links", lambda _root: {loop.device.removeprefix("/dev/"): (link,)})
    monkeypatch.setattr(begun, "FOLDER", str(tmp_path / "lib").lstrip("/"))

    def cut(path: str) -> None:
        raise OSError(errno.EIO, "no power", path)

    for removed_again in (True, False):
        assert loop.module()["changed"]
        (loop.mount_point / "data").write_text("given up")
        with monkeypatch.context() as without_power:
            without_power.setattr(arrays, "clear", cut)
            assert "no power" in loop.module(state="absent", allow_data_loss=True)["msg"]
        assert not loop.mounted()
        if removed_again:
            assert loop.module(state="absent", allow_data_loss=True)["changed"]
            assert not loop.module(state="absent")["changed"]
            assert not (tmp_path / f"lib/{NAME}.json").exists()
        assert loop.module()["changed"]
        assert list(loop.mount_point.iterdir()) == [loop.mount_point / "lost+found"]
        assert loop.module(state="absent")["changed"]


def test_a_disk_that_gets_data_after_the_plan_is_not_touched(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the plan and mkfs somebody writes to it, and closes it again."""
    need_all = apply.need_all

    def late(wanted: Wanted, steps: t.Sequence[Step]) -> None:
        need_all(wanted, steps)
        write(loop, 10 << 20, b"precious" * 65536)

    monkeypatch.setattr(apply, "need_all", late)
    refused = loop.module()
    assert (refused["error_kind"], "was empty a moment ago, and holds data" in refused["msg"]) == ("in_use", True)
    assert loop.image.read_bytes()[10 << 20 :].startswith(b"precious")


def test_foreign_data_needs_consent_for_this_very_disk(loop: Loop) -> None:
    subprocess.run(["mkfs.ext4", "-q", "-L", "theirs", loop.device], check=True)
    before = loop.image.read_bytes()
    for changes in ({}, {"allow_format": True}, {"format_devices": [loop.device]}, {"state": "verified"}):
        refused = loop.module(**changes)
        assert refused["error_kind"] == "foreign_data"
        assert f"{loop.device} holds ext4 labeled theirs" in refused["msg"]
    assert loop.image.read_bytes() == before
    done = loop.module(allow_format=True, format_devices=[loop.device])
    assert (
        done["steps"][0]
        == f"erase {loop.device.removeprefix('/dev/')} ({loop.device}), which holds ext4 labeled theirs"
    )
    assert not loop.module(allow_format=True, format_devices=[loop.device])["changed"]


def test_the_disk_is_told_which_blocks_are_free(loop: Loop, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / f"{NAME}.json").write_text(json.dumps(loop.settings))
    argv = ["--trim", NAME, "--folder", str(tmp_path)]
    assert boot.main(argv) == 1
    assert f"nothing is mounted at {loop.mount_point}" in capsys.readouterr().err
    assert loop.module()["changed"]
    data = loop.mount_point / "data"
    data.write_bytes(os.urandom(8 << 20))
    os.sync()
    full = loop.image.stat().st_blocks
    data.unlink()
    os.sync()
    assert boot.main(argv) == 0
    said = capsys.readouterr().out
    if "cannot be told" in said:
        pytest.skip("the file system of this machine cannot punch holes")
    # The loop device makes holes in its file of what it is told.
    assert loop.image.stat().st_blocks * 512 <= full * 512 - (7 << 20)


@pytest.mark.slow
def test_nothing_writes_below_a_mount_point_that_is_not_mounted(loop: Loop) -> None:
    assert loop.module()["changed"]
    (loop.mount_point / "data").write_text("precious")
    subprocess.run(["umount", loop.mount_point], check=True)
    if not bare.is_immutable(str(loop.mount_point)):
        pytest.skip("this file system has no such flag")
    with pytest.raises(PermissionError):
        (loop.mount_point / "docker").mkdir()
    assert loop.module()["changed"]
    assert (loop.mount_point / "data").read_text() == "precious"

    # Files got there nevertheless: the array is not down for good.
    subprocess.run(["umount", loop.mount_point], check=True)
    bare.release(str(loop.mount_point))
    (loop.mount_point / "docker").mkdir()
    refused = loop.module()
    assert (refused["error_kind"], f"{loop.mount_point} is not empty (docker)" in refused["msg"]) == (
        "in_the_way",
        True,
    )
    assert "`mount_over_files: true`" in refused["remedy"]
    over = loop.module(mount_over_files=True)
    assert f"The mount hides files that are in {loop.mount_point}: docker." in over["notes"]
    assert (loop.mount_point / "data").read_text() == "precious"

    # Given back, the directory is like any other, also where it was not mounted.
    assert loop.module(state="absent", allow_data_loss=True)["changed"]
    (loop.mount_point / "docker").rmdir()
    bare.protect(str(loop.mount_point))
    assert loop.module(state="absent")["steps"] == [f"let {loop.mount_point} be written to again"]
    assert not loop.module(state="absent")["changed"]
    loop.mount_point.rmdir()


@pytest.mark.slow
@pytest.mark.newest
def test_a_mount_point_of_earlier_is_given_back(loop: Loop) -> None:
    """It was immutable: when the variable had changed, nobody could use or remove the old directory."""
    old, new = loop.mount_point, loop.mount_point.parent / "new"
    assert loop.module()["changed"]
    moved = {"mount_point": str(new)}
    refused = loop.module(**moved)
    assert f"{NAME} is mounted at {old}, not at {new}" in refused["msg"]
    subprocess.run(["umount", old], check=True)
    if not bare.is_immutable(str(old)):
        pytest.skip("this file system has no such flag")
    steps = [f"mount {NAME} at {new}", f"let {old} be written to again"]
    assert loop.module(check=True, **moved)["steps"] == steps
    assert bare.is_immutable(str(old))
    loop.mount_point = new
    assert loop.module(**moved)["steps"] == steps
    old.rmdir()
    assert not loop.module(**moved)["changed"]
    # Also where it is found mounted at the new place, and by whom the disks are given back.
    old.mkdir()
    points.hold(Path("/"), NAME, str(old))
    assert steps[1] in loop.module(state="verified", **moved)["msg"]
    gone = [f"unmount {new}", f"remove {NAME} from {loop.device.removeprefix('/dev/')}", steps[1]]
    assert loop.module(state="absent", **moved)["steps"] == gone
    old.rmdir()
    new.rmdir()
    assert points.read_points(Path("/"), NAME) == ()


def test_the_unit_protects_the_mount_point_when_it_fails(loop: Loop) -> None:
    settings = boot.Settings(wanted_from({**loop.settings, "models": ["none"], "expected_disks": 1}), 0)
    with pytest.raises(ClusterError, match="1 disks are expected"):
        boot.bring_up_or_protect(settings)
    assert loop.mount_point.is_dir()
    expected = bare.is_immutable(str(loop.mount_point))
    if expected:
        with pytest.raises(PermissionError):
            (loop.mount_point / "docker").mkdir()
    # A node that expects none keeps its directory.
    other = loop.mount_point.parent / "other"
    boot.bring_up_or_protect(
        boot.Settings(
            wanted_from({**loop.settings, "models": ["none"], "level": "raid0", "mount_point": str(other)}), 0
        )
    )
    assert not other.exists()


def test_a_directory_without_such_a_flag_stays_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_flags(_handle: int, _request: int, _words: t.Any) -> int:
        raise OSError(errno.ENOTTY, "Inappropriate ioctl for device")

    monkeypatch.setattr(bare.fcntl, "ioctl", no_flags)
    bare.protect(str(tmp_path / "mnt"))
    assert not bare.is_immutable(str(tmp_path / "mnt"))
    (tmp_path / "mnt/file").touch()
    bare.release(str(tmp_path / "mnt"))


def test_a_disk_that_is_mounted_is_never_touched(loop: Loop, tmp_path: Path) -> None:
    subprocess.run(["mkfs.ext4", "-q", "-L", "theirs", loop.device], check=True)
    elsewhere = tmp_path / "theirs"
    elsewhere.mkdir()
    subprocess.run(["mount", loop.device, elsewhere], check=True)
    try:
        done = loop.module(allow_format=True, format_devices=[loop.device])
        assert not done["changed"]
        verdict = next(disk for disk in done["disks"] if disk["path"] == loop.device)
        assert (verdict["use"], verdict["reason"]) == ("excluded", f"is mounted on {elsewhere}")
        refused = loop.module(allow_format=True, format_devices=[loop.device], expected_disks=1)
        assert refused["error_kind"] == "disk_missing"
    finally:
        subprocess.run(["umount", elsewhere], check=True)


def test_a_disk_that_another_loop_device_lies_on_is_never_touched(loop: Loop, tmp_path: Path) -> None:
    """The kernel names no holder and grants exclusive use: with consent it was formatted under what was mounted."""
    found = ["losetup", "--find", "--show", "--offset", str(4 << 20), loop.device]
    upper = subprocess.run(found, capture_output=True, text=True, check=True).stdout.strip()
    try:
        subprocess.run(["mkfs.ext4", "-q", upper], check=True)
        before = loop.image.read_bytes()
        done = loop.module(allow_format=True, format_devices=[loop.device])
        verdict = next(disk for disk in done["disks"] if disk["path"] == loop.device)
        assert (verdict["use"], verdict["reason"]) == ("excluded", f"is in use by {upper.removeprefix('/dev/')}")
        assert loop.image.read_bytes() == before
    finally:
        subprocess.run(["losetup", "--detach", upper], check=True)


def test_what_fsck_has_saved_counts_as_files(loop: Loop) -> None:
    """All files of a damaged file system may be in lost+found: they were removed without consent."""
    assert loop.module()["changed"]
    saved = loop.mount_point / "lost+found/#12"
    saved.write_text("precious")
    assert loop.module(state="absent")["error_kind"] == "consent_missing"
    assert saved.read_text() == "precious"


def test_a_mount_point_below_a_file_is_said_before_anything_is_made(loop: Loop, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for check in (True, False):
        refused = loop.module(mount_point=str(tmp_path / "file/mnt"), check=check)
        assert (refused["error_kind"], "is a path below a file" in refused["msg"]) == ("in_the_way", True)
    assert not loop.image.read_bytes().strip(b"\0")


@pytest.mark.parametrize("owner", ["4294967295", "4294967296", "\N{SUPERSCRIPT TWO}"])
def test_an_owner_that_nobody_can_be_is_refused_before_anything_is_made(loop: Loop, owner: str) -> None:
    """The first means no change to chown, the second no number at all, and the disk was formatted by then."""
    assert f"There is no user {owner}" in loop.module(owner=owner)["msg"]
    assert not loop.image.read_bytes().strip(b"\0")


@pytest.mark.newest
def test_a_selector_that_names_no_disk_is_a_warning(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[str] = []
    # In a process that has imported the controller's half of Ansible, warnings are displayed and not returned.
    monkeypatch.setattr(nvme_raid.AnsibleModule, "warn", lambda _self, text, **_options: warned.append(text))
    nothing = loop.module(by_id=["/dev/disk/by-id/none"])
    told = "`by_id` matches no disk of this node: /dev/disk/by-id/none."
    assert (nothing["changed"], nothing["notes"][-1]) == (False, told)
    assert told in warned


@pytest.mark.slow
def test_the_program_of_the_boot_unit_does_what_the_module_does(loop: Loop, tmp_path: Path) -> None:
    """From nothing but the program that the role installs, without Ansible."""
    program = tmp_path / "nvme-raid"
    program.write_bytes(build("nvme-raid", sys.executable))
    program.chmod(0o755)
    (tmp_path / f"{NAME}.json").write_text(json.dumps({**loop.settings, "wait_s": 0}))
    argv = [str(program), NAME, "--folder", str(tmp_path)]
    environment = {"PATH": os.environ["PATH"]}

    def boot() -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, capture_output=True, text=True, env=environment, cwd="/", check=False)

    first = boot()
    assert first.returncode == 0, first.stderr
    assert f"make ext4 on {loop.device}" in first.stdout
    assert loop.mounted()
    assert boot().stdout == "nvme_raid: nothing to do\n"
    (loop.mount_point / "data").write_text("precious")
    subprocess.run(["umount", loop.mount_point], check=True)
    assert boot().stdout == f"nvme_raid: mount {NAME} at {loop.mount_point}\n"
    assert (loop.mount_point / "data").read_text() == "precious"
    subprocess.run(["umount", loop.mount_point], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-L", "theirs", loop.device], check=True)
    before = loop.image.read_bytes()
    refused = boot()
    assert refused.returncode == 1
    assert "holds ext4 labeled theirs" in refused.stderr
    assert loop.image.read_bytes() == before
