# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What reading finds damaged stays known until it is copied again, and a dataset that is not whole ends the copy as failed."""

from __future__ import annotations

import os
import pathlib
import socket
import typing as t
import zlib

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob, Manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset import state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.dataset import Dataset
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.receipts import Receipt, ReceiptLog
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import RankProgress, Run, write_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.shares import plan_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import StatePaths
from ansible_collections.hpcai.gpu_cluster.plugins.modules import dataset_verify
from module_run import run_main

CONTENT = b"content"
NAMES = ("a", "b", "deep/c")


class Staged:
    """A dataset of three files that was staged, and a run of it that two hosts share."""

    def __init__(self, data: pathlib.Path) -> None:
        self.data = data
        self.manifest = Manifest(
            [{"url": "https://a.blob.core.windows.net/c", "prefix": ""}],
            [Blob(name, len(CONTENT), "", "etag") for name in NAMES],
        )
        Dataset(str(data), self.manifest, decompress=False).save()
        for name in NAMES:
            (data / name).parent.mkdir(exist_ok=True)
            (data / name).write_bytes(CONTENT)
            self.note(name)

    def note(self, name: str) -> None:
        size, mtime_ns = len(CONTENT), (self.data / name).stat().st_mtime_ns
        receipt = Receipt(name, "etag", "", size, size, zlib.crc32(CONTENT), mtime_ns, False)
        ReceiptLog(StatePaths(str(self.data)).receipts, "gpu-1").append([receipt])

    def damage(self, name: str) -> None:
        """As a disk does: size and time stay."""
        path = self.data / name
        before = path.stat()
        path.write_bytes(CONTENT[::-1])
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def times(self) -> dict[str, int]:
        return {name: (self.data / name).stat().st_mtime_ns for name in NAMES}

    def run(self) -> Run:
        """Planned for all of it; nobody has copied anything yet."""
        run, blobs_of = plan_run(
            self.manifest,
            range(len(NAMES)),
            destination=str(self.data),
            hosts=["gpu-1", "gpu-2"],
            decompress=False,
            bytes_per_second=1.0,
        )
        write_run(run, blobs_of)
        return run

    def verify(self, **options: t.Any) -> dict[str, t.Any]:
        return run_main(dataset_verify.main, {"destination": str(self.data), **options})


@pytest.fixture
def staged(tmp_path: pathlib.Path) -> Staged:
    return Staged(tmp_path / "data")


def read(staged: Staged, rank: int, **options: t.Any) -> dict[str, t.Any]:
    """What each of two nodes does."""
    return staged.verify(content=True, mark_damaged=True, fail=False, rank=rank, world_size=2, **options)


def test_what_one_node_reads_is_known_to_the_one_that_compares(
    staged: Staged, capsys: pytest.CaptureFixture[str]
) -> None:
    staged.damage("b")
    before = staged.times()
    assert staged.verify(report=True)["verdict"] == "ok", "size and time are right"
    assert read(staged, 0)["marked_files"] == 0
    found = read(staged, 1)
    assert (found["changed"], found["marked_names"]) == (True, ["b"])
    assert f"{socket.gethostname()} found wrong content" in f"{found.get('warnings')} {capsys.readouterr().err}"
    assert {name for name, time in staged.times().items() if time != before[name]} == {"b"}

    compared = staged.verify(report=True)
    assert (compared["failed"], compared["verdict"]) == (True, "fail")
    assert compared["problems"][0]["names"] == ["b"]
    assert "1 altered (such as b)" in compared["msg"]
    assert [read(staged, rank)["changed"] for rank in (0, 1)] == [False, False]


@pytest.mark.parametrize(("damaged", "verdict"), [("b", "fail"), ("a", "ok")])
def test_a_part_that_nobody_read_is_read_before_anything_is_said(staged: Staged, damaged: str, verdict: str) -> None:
    """The second of two nodes dropped out while it read: `b` was its part, what the other one says of `a` and `c` is known."""
    staged.damage(damaged)
    before = staged.times()
    unread = {"unread_ranks": [1], "unread_world_size": 2}
    assert staged.verify(**unread, fail=False)["verdict"] == verdict
    assert staged.times() == before
    told = staged.verify(**unread, report=True, mark_damaged=True, fail=False)
    assert (told["verdict"], told["marked_names"]) == (verdict, ["b"] * (damaged == "b"))
    assert staged.verify(report=True)["verdict"] == verdict, "it is known afterwards"


@pytest.mark.parametrize("wrong", [{"unread_ranks": [2]}, {"unread_ranks": [-1]}, {"rank": 1, "world_size": 2}])
def test_an_unread_part_that_does_not_exist_is_refused(staged: Staged, wrong: dict[str, t.Any]) -> None:
    result = staged.verify(**{"unread_ranks": [0], "unread_world_size": 2, **wrong})
    assert (result["failed"], result["error_kind"]) == (True, "bad_input")


@pytest.mark.usefixtures("in_this_process")
def test_who_reads_for_a_play_can_be_seen_until_the_report(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    marks = staged.data / ".staging"
    seen: list[int] = []
    real = Dataset.inspect

    def inspect(*values: t.Any, **options: t.Any) -> t.Any:
        seen.append(len([*marks.glob("reading-*")]))
        return real(*values, **options)

    monkeypatch.setattr(Dataset, "inspect", inspect)
    staged.verify(content=True)  # somebody who only looks
    read(staged, 0)
    left = len([*marks.glob("reading-*")])
    staged.verify(report=True)
    assert (seen, left, [*marks.glob("reading-*")]) == ([0, 1, 1], 1, [])


def test_what_was_put_right_is_known_to_be_right(staged: Staged) -> None:
    staged.damage("b")
    read(staged, 1)
    (staged.data / "b").write_bytes(CONTENT)
    assert staged.verify(report=True)["verdict"] == "ok"


def test_check_mode_tells_what_would_be_marked_and_writes_nothing(staged: Staged) -> None:
    staged.damage("b")
    staged.run()  # has a directory in which a mark could be left, too
    before, files = staged.times(), sorted(staged.data.rglob("*"))
    told = read(staged, 1, report=True, _ansible_check_mode=True)
    assert (told["changed"], told["marked_names"]) == (True, ["b"]), "it said that nothing would change"
    assert (staged.times(), sorted(staged.data.rglob("*"))) == (before, files)
    assert read(staged, 1)["marked_names"] == told["marked_names"]
    assert read(staged, 1, _ansible_check_mode=True)["changed"] is False, "a mark is not made twice"


def test_nothing_is_marked_unasked(staged: Staged) -> None:
    staged.damage("b")
    before = staged.times()
    assert "marked_files" not in staged.verify(content=True)
    assert staged.times() == before


def test_a_failure_that_marked_files_has_changed_something(staged: Staged) -> None:
    staged.damage("b")
    result = staged.verify(content=True, mark_damaged=True)
    assert (result["failed"], result["changed"], result["marked_names"]) == (True, True, ["b"])


def test_a_mark_is_a_time_that_a_coarse_clock_can_tell(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file was written in the same moment as the receipt says, by the file system's clock."""
    staged.damage("b")
    now_ns = staged.times()["b"]
    monkeypatch.setattr(state.time, "time_ns", lambda: now_ns)
    assert read(staged, 1)["marked_files"] == 1
    assert staged.times()["b"] - now_ns >= 2 * 10**9


@pytest.mark.parametrize(("tries_left", "failed"), [(0, True), (1, False), (-1, True)])
def test_the_last_round_fails_where_the_dataset_is_not_whole(staged: Staged, tries_left: int, failed: bool) -> None:
    (staged.data / "a").unlink()
    result = staged.verify(report=True, tries_left=tries_left)
    assert (result["failed"], result["verdict"], result["again"]) == (failed, "fail", True)


def test_no_further_round_is_waited_for_where_it_would_change_nothing(staged: Staged) -> None:
    (staged.data / "a").unlink()
    refused = {"kind": "auth_failed", "message": "Refused.", "remedy": "Do this."}
    RankProgress(0, "gpu-1", "failed", error=refused).write(staged.run())
    result = staged.verify(report=True, tries_left=2)
    assert (result["failed"], result["again"]) == (True, False)
    assert "gpu-1: Refused. Do this." in result["msg"]


def test_what_went_wrong_before_the_dataset_was_whole_is_no_reason_for_damage(staged: Staged) -> None:
    refused = {"kind": "auth_failed", "message": "Refused.", "remedy": "Do this."}
    RankProgress(0, "gpu-1", "failed", error=refused).write(staged.run())
    assert staged.verify(report=True)["verdict"] == "ok", "others have copied its share"
    staged.damage("b")
    read(staged, 1)
    result = staged.verify(report=True, tries_left=1)
    assert (result["failed"], result["again"], result["causes"]) == (False, True, [])


def test_a_state_that_cannot_be_read_is_no_verdict(staged: Staged) -> None:
    """Else the copy ends well although nobody has looked."""
    (staged.data / ".staging").chmod(0o777)
    result = staged.verify(report=True, fail=False)
    assert (result["failed"], result["verdict"], result["error_kind"]) == (True, "incomplete", "bad_input")


def test_the_failure_says_who_never_ended_and_which_batches_nobody_finished(staged: Staged) -> None:
    (staged.data / "a").unlink()
    run = staged.run()
    RankProgress(0, "gpu-1", "finished").write(run)
    RankProgress(1, "gpu-2", "working").write(run)
    result = staged.verify(report=True)
    of_gpu_2 = [batch.id for batch in run.batches if batch.rank == 1]
    assert {"batch": of_gpu_2[0], "host": "gpu-2"} in result["unfinished_batches"]
    assert f"{of_gpu_2[0]} of gpu-2" in result["msg"]
    assert ("gpu-2", "worker_lost") in [(cause["host"], cause["kind"]) for cause in result["causes"]]


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.blob
def test_a_repair_that_fails_does_not_end_as_ok(staging) -> None:
    """Size and time of the damaged file are right, so that the comparison after the copy would not see that nothing came."""
    staging.fill(3)
    staging.stage()
    victim = staging.destination / "data/train/f_001.tfrecord"
    before = victim.stat()
    victim.write_bytes(b"x" * before.st_size)
    os.utime(victim, ns=(before.st_atime_ns, before.st_mtime_ns))
    plan = staging.plan(content=True)
    assert plan["missing_files"] == 1
    staging.service.delete(staging.container, "train/f_001.tfrecord.gz")
    staging.copy(plan["run"], content=True)
    compared = run_main(dataset_verify.main, {"destination": str(staging.destination / "data"), "report": True})
    assert (compared["failed"], compared["verdict"]) == (True, "fail")
    assert "train/f_001.tfrecord" in compared["msg"]
