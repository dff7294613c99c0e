# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands that steps become, and what is made of their failures. Real disks: test_nvme_raid_loop.py, the VM lab."""

from __future__ import annotations

import dataclasses
import json
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid import (
    apply,
    arrays,
    boot,
    device,
    filesystem,
    work,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.begun import begin, end, read_begun
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.find import Found
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.here import wanted_here
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.judge import Verdict
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import (
    Array,
    Begun,
    Disk,
    Mount,
    Node,
    Signature,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import Wanted, wanted_from
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.steps import Plan, Step

ROLE = Path(__file__).resolve().parents[3] / "roles/nvme_raid"
UUID = "bf2e5d29df0ae3c096d4c705ef68e771"
ANSWER = tuple[int, str, str]


class Commands:
    """Answers commands from a table of their first words, and keeps them without the time limit in front."""

    def __init__(self, **answers: ANSWER) -> None:
        self.answers = answers
        self.ran: list[str] = []

    def run_command(self, args: list[str], **_kwargs: t.Any) -> ANSWER:
        words = args[4:] if args[0] == "timeout" else args
        self.ran.append(" ".join(words))
        return self.answers.get(words[0].replace(".", "_"), (0, "", ""))


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Devices that were claimed before something was done to them, looked at, or wiped. On real ones: test_nvme_raid_loop.py."""
    seen: list[str] = []

    def look(_runner: t.Any, _wanted: Wanted, names: t.Sequence[str]) -> None:
        seen.extend(f"look {name}" for name in names)

    for steps in (arrays, filesystem):
        monkeypatch.setattr(steps, "claim", seen.append)
        monkeypatch.setattr(steps, "require_empty", look)
    monkeypatch.setattr(
        filesystem, "require_left", lambda _runner, name, known: seen.append(f"left {name} {len(known)}")
    )
    monkeypatch.setattr(arrays, "clear", lambda path: seen.append(f"zero {path}"))
    for flushing in (filesystem, work):
        monkeypatch.setattr(flushing, "flush", lambda path: seen.append(f"flush {path}"))
    monkeypatch.setattr(arrays.os, "urandom", lambda _bytes: bytes.fromhex(UUID))
    monkeypatch.setattr(work, "_ROOT", tmp_path)
    monkeypatch.setattr(work, "settle", lambda _runner: None)
    return seen


def working(commands: Commands, **wanted: t.Any) -> work.Work:
    return work.Work(commands, asked(**wanted))


def asked(**wanted: t.Any) -> Wanted:
    return wanted_from({"mount_point": "/mnt/scratch", "mount_options": ["noatime"], **wanted})


def running(monkeypatch: pytest.MonkeyPatch, mdstat: str) -> None:
    """What /proc/mdstat says, for an array whose link udev did make."""
    monkeypatch.setattr(arrays.os.path, "realpath", lambda path: path.replace("/dev/md/scratch", "/dev/md127"))
    monkeypatch.setattr(arrays.Path, "read_text", lambda _path, encoding: mdstat)


def do(made: work.Work, kind: str, **step: t.Any) -> None:
    apply.STEPS[kind](made, Step(kind, kind, **step))


MDSTAT = "Personalities : [raid0]\nmd127 : active raid0 nvme1n1[1] nvme0n1[0]\n      1 blocks\n"
DISKS = ("nvme0n1", "nvme1n1")


@pytest.mark.parametrize(
    ("level", "shape"),
    [
        ("raid0", "--level=0 --raid-devices=2 --chunk=512"),
        ("raid1", "--level=1 --raid-devices=2 --bitmap=internal"),
        ("raid10", "--level=10 --raid-devices=2 --chunk=512 --bitmap=internal"),
    ],
)
def test_an_array_is_made_under_its_own_name(
    monkeypatch: pytest.MonkeyPatch, claims: list[str], level: str, shape: str
) -> None:
    running(monkeypatch, MDSTAT)
    commands = Commands()
    made = working(commands, level=level)
    do(made, "create", disks=DISKS, value=level)
    start = "mdadm --create /dev/md/scratch --run --metadata=1.2 --name=scratch"
    rest = f"--uuid=bf2e5d29:df0ae3c0:96d4c705:ef68e771 --homehost=any {shape} /dev/nvme0n1 /dev/nvme1n1"
    # What the disks held behind md's own data is not to be taken for a file system of ours.
    assert commands.ran == [f"{start} {rest}", "wipefs --all --quiet /dev/md127"]
    assert claims == ["look nvme0n1", "look nvme1n1", "/dev/md127", "flush /dev/md127"]
    assert made.created == "/dev/md127"


@pytest.mark.parametrize(
    "mdstat",
    ["Personalities : [raid0]\n", MDSTAT.replace("active", "inactive"), MDSTAT.replace("nvme1n1[1]", "nvme1n1[1](F)")],
)
def test_mdadm_s_success_is_not_believed(monkeypatch: pytest.MonkeyPatch, claims: list[str], mdstat: str) -> None:
    running(monkeypatch, mdstat)
    with pytest.raises(ClusterError) as caught:
        do(working(Commands()), "create", disks=DISKS, value="raid0")
    assert caught.value.kind == "array_not_running"
    assert len(claims) == 2


def test_nothing_is_made_of_a_disk_that_came_into_use(tmp_path: Path) -> None:
    commands = Commands()
    with pytest.raises(ClusterError, match="came into use") as caught:
        do(working(commands), "create", disks=(f"../{tmp_path}/gone",), value="raid0")
    assert caught.value.kind == "in_use"
    assert [words.split()[0] for words in commands.ran] == ["wipefs"]


def test_what_udev_began_is_stopped_before_all_disks_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch, MDSTAT)
    commands = Commands()
    monkeypatch.setattr(work, "settle", lambda _runner: None)
    do(working(commands), "assemble", device="md127", disks=DISKS, value=UUID)
    assert commands.ran == [
        "mdadm --stop /dev/md127",
        "mdadm --assemble /dev/md/scratch --uuid=bf2e5d29:df0ae3c0:96d4c705:ef68e771 --run /dev/nvme0n1 /dev/nvme1n1",
    ]


@pytest.mark.parametrize(
    ("filesystem", "command"),
    [
        ("xfs", "mkfs.xfs -f -K -L scratch -m reflink=0 /dev/md127"),
        ("ext4", "mkfs.ext4 -F -q -m 0 -E nodiscard -L scratch -m reflink=0 /dev/md127"),
    ],
)
def test_mkfs_is_told_neither_to_discard_nor_how_stripes_lie(claims: list[str], filesystem: str, command: str) -> None:
    commands = Commands()
    do(working(commands, filesystem=filesystem, mkfs_options=["-m", "reflink=0"]), "mkfs", device="/dev/md127")
    assert commands.ran == [command]
    assert claims == ["look md127", "flush /dev/md127"]


def test_an_array_that_was_just_made_may_show_what_its_disks_held(claims: list[str]) -> None:
    """They were empty where one looks, or given up."""
    made = working(Commands())
    made.created = "/dev/md127"
    do(made, "mkfs")
    assert claims == ["/dev/md127", "flush /dev/md127"]


@pytest.mark.parametrize(("selinux", "program"), [(True, True), (False, True), (True, False)])
def test_a_new_root_gets_the_label_that_the_policy_wants(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, selinux: bool, program: bool
) -> None:
    """On EL it would be unlabeled, which no confined service may enter."""
    point = tmp_path / "mnt"
    point.mkdir()
    monkeypatch.setattr(work, "_ROOT", tmp_path)
    monkeypatch.setattr(filesystem, "_SELINUX", str(tmp_path if selinux else tmp_path / "none"))
    monkeypatch.setattr(filesystem.shutil, "which", lambda name: f"/sbin/{name}" if program else None)
    monkeypatch.setattr(filesystem.os.path, "ismount", lambda _path: True)
    commands = Commands()
    do(working(commands, mount_point=str(point)), "mount", device="/dev/md127")
    restored = [f"restorecon {point}"] if selinux and program else []
    assert commands.ran == [f"mount -t xfs -o noatime /dev/md127 {point}", *restored]
    assert point.stat().st_mode & 0o7777 == 0o1777


# -- a creation that has begun ------------------------------------------------------------------------------------------------


def test_the_mark_is_there_from_before_the_first_superblock_until_mkfs_has_ended(
    monkeypatch: pytest.MonkeyPatch, claims: list[str], tmp_path: Path
) -> None:
    running(monkeypatch, MDSTAT)
    marked: list[tuple[str, Begun | None]] = []

    class Watching(Commands):
        def run_command(self, args: list[str], **kwargs: t.Any) -> ANSWER:
            marked.append((args[4], read_begun(tmp_path, "scratch")))
            return super().run_command(args, **kwargs)

    for flushing in (filesystem, work):
        monkeypatch.setattr(flushing, "flush", lambda path: marked.append((path, read_begun(tmp_path, "scratch"))))
    made = working(Watching())
    do(made, "create", disks=DISKS, value="raid0")
    do(made, "mkfs")
    monkeypatch.setattr(filesystem, "own", lambda _work, _step: None)
    monkeypatch.setattr(work, "hold", lambda _root, _name, _point: None)
    do(made, "mount")
    begun, bare = Begun(UUID), Begun(UUID, bare=True)
    assert marked == [
        ("mdadm", bare),
        ("wipefs", bare),
        ("/dev/md127", bare),
        ("mkfs.xfs", begun),
        ("/dev/md127", begun),
        ("mount", None),
    ]
    # Nothing else is left of it.
    assert list(tmp_path.rglob("*nvme_raid*")) == []
    assert claims


def test_mkfs_on_what_is_there_is_marked_by_the_array_or_by_names_of_the_disk_that_last(
    claims: list[str], tmp_path: Path
) -> None:
    links = ("/dev/disk/by-id/nvme-Model_0", "/dev/disk/by-path/pci-0")
    single = Begun("", links[:1])
    for found, verdicts, expected in (
        (Found("array", "md127", UUID, "raid0", 2, DISKS, True), (), Begun(UUID)),
        (None, (Verdict(Disk("nvme0n1", links), "free"), Verdict(Disk("nvme1n1", ("x",)), "free")), single),
        # The remains of an array, of which a single disk becomes: its UUID is gone with them.
        (Found("members", "", UUID, "raid0", 2, DISKS, False), (Verdict(Disk("nvme0n1", links), "free"),), single),
        # Without such a name nothing can be said after a boot: the next disk in the slot would be taken for it.
        (None, (Verdict(Disk("nvme0n1", links[1:]), "free"),), None),
        (None, (Verdict(Disk("nvme0n1"), "free"),), None),
    ):
        # Of whatever was here before.
        begin(tmp_path, "scratch", Begun("3" * 32))
        made = working(Commands(mkfs_xfs=(1, "", "no power")))
        made.seen = Plan(verdicts, found)
        array = bool(found and found.active)
        with pytest.raises(ClusterError, match="no power"):
            do(made, "mkfs", device="/dev/md127" if array else "/dev/nvme0n1", disks=() if array else ("nvme0n1",))
        assert read_begun(tmp_path, "scratch") == expected
        end(tmp_path, "scratch")
    assert claims


def test_looking_is_no_end_of_a_creation(monkeypatch: pytest.MonkeyPatch, claims: list[str], tmp_path: Path) -> None:
    begin(tmp_path, "scratch", Begun(UUID))
    made = apply.Keeper(Commands(), asked(state="inspected"))
    array = Found("array", "md127", UUID, "raid0", 2, DISKS, True)
    monkeypatch.setattr(made, "_look", lambda: Plan((), array))
    made.run(check=False)
    assert read_begun(tmp_path, "scratch") == Begun(UUID)
    assert not claims


def test_what_mkfs_left_is_the_only_thing_that_may_be_there_when_it_is_done_again(claims: list[str]) -> None:
    xfs = (Signature("xfs", "scratch"),)
    for found, known in (
        (None, 0),
        (Found("array", "md127", UUID, "raid0", 2, DISKS, True, signatures=xfs), 1),
        (Found("members", "", UUID, "raid0", 2, DISKS, False, signatures=xfs), 0),
    ):
        made = working(Commands())
        made.seen = Plan((), found)
        do(made, "mkfs", device="/dev/md127", value="again")
        assert claims == [f"left md127 {known}", "flush /dev/md127", "flush /dev/md127"]
        claims.clear()


def test_a_signature_that_came_to_what_mkfs_left_is_not_made_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "claim", lambda _path: None)
    xfs, ext4 = Signature("xfs", "scratch"), Signature("ext4", "theirs")
    for now, refused in (((), ""), ((xfs,), ""), ((xfs, ext4), "holds ext4 labeled theirs"), (None, "cannot be read")):
        held = Disk("nvme0n1", signatures=now)
        monkeypatch.setattr(device, "read_signatures", lambda _runner, _names: {})
        monkeypatch.setattr(device, "with_content", lambda *_args, held=held: held)
        if not refused:
            device.require_left(Commands(), "nvme0n1", (xfs,))
            continue
        with pytest.raises(ClusterError, match=refused) as caught:
            device.require_left(Commands(), "nvme0n1", (xfs,))
        assert caught.value.kind == "in_use"


def test_the_mark_goes_with_the_mount_whatever_becomes_of_the_rest(
    monkeypatch: pytest.MonkeyPatch, claims: list[str], tmp_path: Path
) -> None:
    """Services may write as soon as it is mounted: a mark that outlived it would let the files be made over."""
    begin(tmp_path, "scratch", Begun(UUID))
    monkeypatch.setattr(work, "hold", lambda _root, _name, _point: None)

    def broken(_work: work.Work, _step: Step) -> None:
        raise ClusterError("command_failed", "restorecon failed.", "")

    monkeypatch.setattr(filesystem, "own", broken)
    with pytest.raises(ClusterError, match="restorecon"):
        do(working(Commands()), "mount", device="/dev/md127", value="begun")
    assert read_begun(tmp_path, "scratch") is None
    assert not claims


@pytest.mark.parametrize("check", [False, True])
def test_a_mark_ends_where_somebody_has_mounted_what_it_marks(
    monkeypatch: pytest.MonkeyPatch, claims: list[str], tmp_path: Path, check: bool
) -> None:
    """Wherever it is mounted, and though the run is refused for that."""
    begun = Begun(UUID)
    begin(tmp_path, "scratch", begun)
    array = Array("md127", "scratch", UUID, "raid0", 2, DISKS, chunk_kib=512, signatures=(Signature("xfs", "scratch"),))
    node = Node((), (array,), (Mount("/data", "xfs", "md127"),), begun=begun)
    monkeypatch.setattr(apply.Reader, "node", lambda _reader: node)
    with pytest.raises(ClusterError, match="mounted at /data"):
        apply.Keeper(Commands(), asked()).run(check=check)
    assert read_begun(tmp_path, "scratch") == (begun if check else None)
    assert not claims


@pytest.mark.parametrize("value", ["begun", ""])
def test_what_cannot_be_mounted_is_made_again_only_where_its_creation_has_not_ended(
    monkeypatch: pytest.MonkeyPatch, claims: list[str], value: str
) -> None:
    class Damaged(Commands):
        def run_command(self, args: list[str], **kwargs: t.Any) -> ANSWER:
            made = any(words.startswith("mkfs") for words in self.ran)
            answer = super().run_command(args, **kwargs)
            return answer if args[4] != "mount" or made else (32, "", "mount: /mnt/scratch: Structure needs cleaning.")

    monkeypatch.setattr(filesystem, "own", lambda _work, _step: None)
    monkeypatch.setattr(work, "hold", lambda _root, _name, _point: None)
    commands = Damaged()
    if value:
        made = working(commands)
        do(made, "mount", device="/dev/md127", value=value)
        assert [words.split()[0] for words in commands.ran] == ["mount", "wipefs", "mkfs.xfs", "mount"]
        # It is told as what was done.
        assert [step.what for step in made.unplanned] == ["make xfs on scratch again: mkfs was interrupted"]
        return
    with pytest.raises(ClusterError, match="Structure needs cleaning") as caught:
        do(working(commands), "mount", device="/dev/md127")
    assert [words.split()[0] for words in commands.ran] == ["mount"]
    assert "`allow_data_loss: true`" in caught.value.remedy
    assert not claims


@pytest.mark.parametrize("text", ["", "{", "[]", '{"uuid": "1"}', '{"uuid": "1", "disks": 3}'])
def test_a_mark_that_cannot_be_read_marks_nothing(tmp_path: Path, text: str) -> None:
    begin(tmp_path, "scratch", Begun(UUID))
    next(tmp_path.rglob("scratch.json")).write_text(text)
    assert read_begun(tmp_path, "scratch") is None


@pytest.mark.parametrize(("more", "bare"), [("", False), (', "bare": true', True), (', "bare": "false"', False)])
def test_a_mark_that_does_not_say_so_is_of_a_mkfs_that_has_begun(tmp_path: Path, more: str, bare: bool) -> None:
    begin(tmp_path, "scratch", Begun(UUID))
    next(tmp_path.rglob("scratch.json")).write_text(f'{{"uuid": "{UUID}", "disks": []{more}}}')
    assert read_begun(tmp_path, "scratch") == Begun(UUID, bare=bare)


def test_a_mark_is_of_one_name_and_is_kept_by_itself(tmp_path: Path) -> None:
    begin(tmp_path, "scratch", Begun(UUID))
    begin(tmp_path, "other", Begun("", ("/dev/disk/by-id/nvme-1",)))
    assert read_begun(tmp_path, "scratch") == Begun(UUID)
    end(tmp_path, "scratch")
    end(tmp_path, "scratch")
    assert (read_begun(tmp_path, "scratch"), read_begun(tmp_path, "other")) == (
        None,
        Begun("", ("/dev/disk/by-id/nvme-1",)),
    )


def test_a_removed_array_leaves_nothing_behind(claims: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays.os, "listdir", lambda path: ["size", "nvme0n1p1"] if path.endswith("nvme0n1") else [])
    commands = Commands()
    made = working(commands)
    do(made, "stop", device="/dev/md127", value="clear")
    do(made, "erase", disks=DISKS)
    assert commands.ran == [
        "wipefs --all --quiet /dev/md127",
        "mdadm --stop /dev/md127",
        "wipefs --all --force --quiet /dev/nvme0n1p1",
        "wipefs --all --force --quiet /dev/nvme0n1",
        "blockdev --rereadpt /dev/nvme0n1",
        "wipefs --all --force --quiet /dev/nvme1n1",
    ]
    assert claims == [
        "/dev/md127",
        "flush /dev/md127",
        "zero /dev/md127",
        "/dev/nvme0n1",
        "flush /dev/nvme0n1p1",
        "flush /dev/nvme0n1",
        "zero /dev/nvme0n1",
        "/dev/nvme1n1",
        "flush /dev/nvme1n1",
        "zero /dev/nvme1n1",
    ]


def test_a_busy_mount_is_not_forced(claims: list[str]) -> None:
    commands = Commands(umount=(32, "", "umount: /mnt/scratch: target is busy.\n"))
    with pytest.raises(ClusterError, match="target is busy") as caught:
        do(working(commands), "unmount", value="/mnt/scratch")
    assert caught.value.kind == "in_use"
    assert commands.ran == ["umount /mnt/scratch"]
    assert not claims


def test_a_command_that_fails_is_told_with_its_reason(claims: list[str]) -> None:
    commands = Commands(mkfs_xfs=(1, "", "mkfs.xfs: cannot open /dev/md127: Device or resource busy\n"))
    with pytest.raises(ClusterError, match="Device or resource busy"):
        do(working(commands), "mkfs", device="/dev/md127")
    assert claims


def test_users_and_links_are_looked_up_on_the_node(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    wanted = wanted_here({"mount_point": f"{tmp_path}/link/scratch/", "owner": "root", "group": "12345"})
    assert (wanted.owner, wanted.group, wanted.mount_point) == (0, 12345, f"{tmp_path.resolve()}/real/scratch")
    with pytest.raises(ClusterError, match="no user nobody-here"):
        wanted_here({"mount_point": "/mnt/scratch", "owner": "nobody-here"})


# -- at boot -------------------------------------------------------------------------------------------------------------


def test_the_settings_of_the_role_are_all_of_the_request_but_consent() -> None:
    role = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))["__nvme_raid_settings"]
    consent = {"allow_format", "format_devices", "allow_data_loss"}
    assert set(role) == {field.name for field in dataclasses.fields(Wanted)} - consent | {"wait_s"}


@pytest.mark.parametrize("settings", [{"allow_format": True}, {"allow_data_loss": True}, ["present"]])
def test_settings_that_consent_are_refused_at_boot(
    tmp_path: Path, settings: object, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "scratch.json"
    path.write_text(json.dumps(settings))
    assert boot.main(["scratch", "--folder", str(tmp_path)]) == 1
    assert "gives consent" in capsys.readouterr().err


def test_settings_that_are_misspelled_are_refused_at_boot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``expected_disk`` would take any number of disks."""
    settings = {"mount_point": "/mnt/scratch", "expected_disk": 8, "wait_s": 0}
    (tmp_path / "scratch.json").write_text(json.dumps(settings))
    assert boot.main(["scratch", "--folder", str(tmp_path)]) == 1
    assert "does not know: expected_disk." in capsys.readouterr().err


def test_settings_that_cannot_be_read_end_the_unit_with_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "wrong.json").write_text('{"mount_point": "/mnt/scratch", "wait_s": []}')
    for name in ("missing", "broken", "wrong"):
        assert boot.main([name, "--folder", str(tmp_path)]) == 1
        assert f"{name}.json" in capsys.readouterr().err


def bring_up(wait_s: float) -> None:
    boot.bring_up(boot.Settings(wanted_from({"mount_point": "/mnt/scratch"}), wait_s))


#: Disks that may tell more in a moment, beside others that suffice.
HALF_PROBED = {
    "without_transport": Verdict(Disk("nvme7n1", unread=("transport",)), "unread"),
    "without_content": Verdict(Disk("nvme7n1", signatures=None), "excluded"),
}


class Tries:
    """Stands in for the keeper: what it finds at each try, the last for ever. Real keepers are tried in other tests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *found: str) -> None:
        self.found, self.seconds, self.done = list(found), 0.0, ""
        monkeypatch.setattr(apply.Keeper, "run", self.run)
        monkeypatch.setattr(boot.Processes, "run_command", lambda _self, _args: (0, "", ""))
        monkeypatch.setattr(boot, "unprobed", list)
        monkeypatch.setattr(boot.time, "monotonic", lambda: self.seconds)
        monkeypatch.setattr(boot.time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.found = self.found[1:] or self.found

    def run(self, *, check: bool) -> apply.Outcome:
        now = self.found[0]
        if now in ("disk_missing", "unreadable", "foreign_data"):
            raise ClusterError(now, "Told.", "Look.")
        if not check:
            self.done = now
        verdicts = (HALF_PROBED[now],) if now in HALF_PROBED else ()
        return apply.Outcome(Plan(verdicts, None, degraded="3 of 4" if now == "degraded" else ""))


@pytest.mark.parametrize("first", ["disk_missing", "unreadable", "degraded", *HALF_PROBED])
def test_a_disk_that_appears_late_is_waited_for(monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    tries = Tries(monkeypatch, first, first, "whole")
    bring_up(60)
    assert (tries.done, tries.seconds) == ("whole", 2)


def test_a_disk_that_never_appears_is_waited_for_no_longer_than_told(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = Tries(monkeypatch, "disk_missing")
    with pytest.raises(ClusterError, match="Told"):
        bring_up(10)
    assert tries.seconds == 10
    # An array with copies is used without it.
    tries = Tries(monkeypatch, "degraded")
    bring_up(10)
    assert (tries.done, tries.seconds) == ("degraded", 10)


def test_controllers_without_disks_are_waited_for_even_where_no_number_is_expected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries = Tries(monkeypatch, "whole")
    monkeypatch.setattr(boot, "unprobed", lambda: ["0000:43:00.0"] if tries.seconds < 5 else [])
    bring_up(60)
    assert (tries.done, tries.seconds) == ("whole", 5)
    # A controller that died holds nobody up for ever.
    monkeypatch.setattr(boot, "unprobed", lambda: ["0000:43:00.0"])
    bring_up(60)
    assert tries.seconds == 65


def test_other_disks_are_used_after_one_has_not_told_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = Tries(monkeypatch, "without_transport")
    bring_up(10)
    assert (tries.done, tries.seconds) == ("without_transport", 10)


def test_what_waiting_does_not_mend_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = Tries(monkeypatch, "foreign_data")
    with pytest.raises(ClusterError, match="Told"):
        bring_up(60)
    assert tries.seconds == 0
