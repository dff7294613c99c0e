# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a power cut leaves of a disk that was being given back, and of a mkfs whose end is unknown. Real cuts: benchmarks/power_cuts."""

from __future__ import annotations

import os
import random
import typing as t
from pathlib import Path

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid import (
    apply,
    arrays,
    device,
    filesystem,
    work,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.begun import begin, read_begun
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.find import Found
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.judge import Verdict
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import Begun, Disk, Node, Signature
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.places import places
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.plan import plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import wanted_from
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.steps import Plan, Step

SIZE = 32 << 20
UUID = "bf2e5d29df0ae3c096d4c705ef68e771"
MEMBER = Signature("linux_raid_member", "any:scratch", UUID)
LINK = "/dev/disk/by-id/nvme-Model_0"


class Commands:
    """Keeps what was run, without the time limit in front; all of it succeeds."""

    def __init__(self, ran: list[str]) -> None:
        self.ran = ran

    def run_command(self, args: list[str], **_kwargs: t.Any) -> tuple[int, str, str]:
        self.ran.append(" ".join(args[4:] if args[0] == "timeout" else args))
        return 0, "", ""


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What was done to devices, in order."""
    seen: list[str] = []
    monkeypatch.setattr(arrays, "claim", lambda _path: None)
    monkeypatch.setattr(arrays, "clear", lambda path: seen.append(f"zero {path}"))
    monkeypatch.setattr(
        arrays.os, "listdir", lambda path, real=os.listdir: [] if "/sys/block" in str(path) else real(path)
    )
    monkeypatch.setattr(filesystem, "require_left", lambda _runner, name, _known: seen.append(f"left {name}"))
    for flushing in (filesystem, work):
        monkeypatch.setattr(flushing, "flush", lambda path: seen.append(f"flush {path}"))
    monkeypatch.setattr(work, "_ROOT", tmp_path)
    monkeypatch.setattr(work, "settle", lambda _runner: None)
    monkeypatch.setattr(work, "hold", lambda _root, _name, _point: None)
    monkeypatch.setattr(filesystem, "own", lambda _work, _step: None)
    return seen


def working(done: list[str], *disks: Disk, **wanted: t.Any) -> work.Work:
    made = work.Work(Commands(done), wanted_from({"mount_point": "/mnt/scratch", **wanted}))
    made.seen = Plan(tuple(Verdict(disk, "ours") for disk in disks), None)
    return made


def do(made: work.Work, kind: str, **step: t.Any) -> None:
    apply.STEPS[kind](made, Step(kind, kind, **step))


@pytest.mark.slow
def test_a_disk_that_is_being_emptied_says_what_it_is_or_is_empty(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The power is cut before, between and after all that ``clear`` does, and the drive loses any of what it was not told to flush."""
    image = tmp_path / "disk"
    full = b"\xa5" * SIZE
    image.write_bytes(full)
    sent: list[list[tuple[int, int]]] = [
        []
    ]  # offsets and lengths of zeros; a list ends where the drive was told to flush

    def pwrite(_handle: int, data: bytes, offset: int) -> int:
        assert not data.strip(b"\0")
        sent[-1].append((offset, len(data)))
        return len(data)

    monkeypatch.setattr(device.os, "pwrite", pwrite)
    monkeypatch.setattr(device.os, "fsync", lambda _handle: sent.append([]))
    device.clear(str(image))
    assert sent.pop() == []  # nothing is left to be flushed
    rng = random.Random(5)
    start = slice(0, 8192)
    for flushed in range(len(sent) + 1):
        for _again in range(20):
            left = bytearray(full)
            for group in sent[:flushed]:
                for offset, length in group:
                    left[offset : offset + length] = bytes(length)
            under_way = sent[flushed] if flushed < len(sent) else []
            for offset, length in under_way:
                for block in range(offset, offset + length, 4096):
                    until = min(block - block % 4096 + 4096, offset + length)
                    if rng.random() < 0.5:
                        left[block:until] = bytes(until - block)
            rest = [bytes(left[max(at, 8192) : at + length]) for at, length in places(SIZE)]
            assert left[start] == full[start] or not any(part.strip(b"\0") for part in rest)
    assert not any(bytes(left[at : at + length]).strip(b"\0") for at, length in places(SIZE))


def test_a_member_of_an_array_is_one_until_it_is_empty(done: list[str]) -> None:
    """Without its superblock, what is left would be unknown data, and need consent."""
    do(working(done, Disk("nvme0n1", signatures=(MEMBER,))), "erase", disks=("nvme0n1",))
    assert done == ["zero /dev/nvme0n1", "wipefs --all --force --quiet /dev/nvme0n1", "flush /dev/nvme0n1"]


def test_a_file_system_is_none_before_anything_else_of_it_is_gone(done: list[str], tmp_path: Path) -> None:
    """Half of one that can be mounted would be used. What is left of it is marked as ours."""
    xfs = Disk("nvme0n1", (LINK,), signatures=(Signature("xfs", "scratch"),))
    first = ["wipefs --all --force --quiet /dev/nvme0n1", "flush /dev/nvme0n1", "zero /dev/nvme0n1"]
    do(working(done, xfs, level="single"), "erase", disks=("nvme0n1",))
    assert (done, read_begun(tmp_path, "scratch")) == (first, None)
    do(working(done, xfs, level="single"), "erase", disks=("nvme0n1",), value="marked")
    assert read_begun(tmp_path, "scratch") == Begun("", (LINK,))
    done.clear()
    do(working(done), "stop", device="/dev/md127", value="clear")
    assert done == [
        "wipefs --all --quiet /dev/md127",
        "flush /dev/md127",
        "zero /dev/md127",
        "mdadm --stop /dev/md127",
    ]


def test_what_a_removal_left_when_the_power_failed_is_removed_when_it_is_repeated() -> None:
    wanted = wanted_from({"mount_point": "/mnt/scratch", "level": "single", "state": "absent", "models": ["*"]})
    begun = Begun("", (LINK,))
    found = Disk("nvme0n1", (LINK,), "Model", SIZE, signatures=(Signature("xfs", "scratch"),), blank=False)
    consent = wanted_from({**vars(wanted), "allow_data_loss": True})
    (step,) = plan(consent, Node((found,))).steps
    assert (step.kind, step.disks, step.value) == ("erase", ("nvme0n1",), "marked")
    left = Disk("nvme0n1", (LINK,), "Model", SIZE, blank=False, data_at=4096)
    (step,) = plan(wanted, Node((left,), begun=begun)).steps
    assert (step.kind, step.disks, step.value) == ("erase", ("nvme0n1",), "marked")
    assert step.what == "remove what is left of scratch from nvme0n1"
    for node in (
        Node((left,)),  # not marked: it is somebody else's
        Node((left,), begun=Begun("", ("/dev/disk/by-id/nvme-Model_1",))),
        Node((Disk("nvme0n1", (LINK,), "Model", SIZE),), begun=begun),
        Node((Disk("nvme0n1", (LINK,), "Model", SIZE, signatures=(Signature("ext4"),), blank=False),), begun=begun),
        Node((Disk("nvme0n1", (LINK,), "Model", SIZE, blank=False, busy=True),), begun=begun),
    ):
        assert plan(wanted, node).steps == ()


@pytest.mark.parametrize(
    ("value", "names", "again"),
    [
        ("begun", (), True),
        ("begun", ("lost+found",), True),
        ("begun", ("data",), False),
        ("begun", None, False),
        ("", (), False),
    ],
)
def test_a_file_system_of_which_mkfs_has_not_ended_is_made_again_though_it_can_be_mounted(
    done: list[str], tmp_path: Path, value: str, names: tuple[str, ...] | None, again: bool
) -> None:
    """What mkfs wrote elsewhere may be lost. One that holds files was in use, and one that cannot be looked at may hold some."""
    point = tmp_path / "mnt"
    if names is not None:
        for name in ("", *names):
            (point / name).mkdir()
    made = working(done, mount_point=str(point))
    made.seen = Plan((), Found("array", "md127", UUID, "raid0", 2, ("nvme0n1", "nvme1n1"), True))
    begin(tmp_path, "scratch", Begun(UUID))
    do(made, "mount", device="/dev/md127", value=value)
    mount = f"mount -t xfs -o defaults /dev/md127 {point}"
    if again:
        assert [words.split()[0] for words in done] == [
            *("mount", "umount", "left", "wipefs", "flush", "mkfs.xfs", "flush", "mount"),
        ]
        assert [step.what for step in made.unplanned] == ["make xfs on scratch again: mkfs was interrupted"]
    else:
        assert done == [mount]
        assert not made.unplanned
    assert read_begun(tmp_path, "scratch") is None


def test_clear_leaves_no_handle_open(tmp_path: Path) -> None:
    image = tmp_path / "small"
    image.write_bytes(b"x" * 4096)
    before = os.listdir("/proc/self/fd")
    device.clear(str(image))
    assert image.read_bytes() == bytes(4096)
    assert len(os.listdir("/proc/self/fd")) == len(before)
