# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A worker of an older run that hung, and goes on after a newer run has said that all is right, changes nothing any more."""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import pathlib
import shutil
import threading
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob, Manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset import fence
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.batch import BatchCopier, CopySettings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.dataset import Dataset
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.receipts import Receipt, ReceiptLog
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import write_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.shares import plan_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import StatePaths
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.drain import Finished, drain
from ansible_collections.hpcai.gpu_cluster.plugins.modules import dataset_verify
from module_run import run_main

OLD, NEW = b"old version" * 100, b"new version" * 100
PATIENCE_S = 60
Form = t.Literal["packed", "plain"]


class Version:
    """One version of the only blob of a dataset, and the run that is to bring it."""

    def __init__(self, place: pathlib.Path, content: bytes, form: Form) -> None:
        self.place, self.data = place, place / "data"
        self.raw = gzip.compress(content, 1, mtime=0) if form == "packed" else content
        md5 = base64.b64encode(hashlib.md5(self.raw).digest()).decode()
        encoding = "gzip" if form == "packed" else ""
        self.blob = Blob("a", len(self.raw), md5, hashlib.sha256(content).hexdigest(), encoding)
        manifest = Manifest([{"url": "https://a.blob.core.windows.net/c", "prefix": ""}], [self.blob])
        Dataset(str(self.data), manifest, decompress=True).save()
        self.run, blobs_of = plan_run(manifest, [0], destination=str(self.data), hosts=["gpu-1"], decompress=True)
        write_run(self.run, blobs_of)

    def finish(self) -> Finished:
        """What a worker does with the raw file once AzCopy has landed it."""
        landing = self.place / f"landing-{self.run.id}"
        (landing / "0").mkdir(parents=True)
        (landing / "0/a").write_bytes(self.raw)
        item = BatchCopier(self.run, CopySettings("/azcopy", str(landing), [""]))._item("0/a", self.blob, str(landing))
        (finished,) = drain([item], copier_done=lambda: True)
        return finished

    def note(self, finished: Finished) -> None:
        """The receipt."""
        assert finished.result is not None, finished.error
        blob, result, found = self.blob, finished.result, (self.data / "a").stat()
        inflated = blob.encoding == "gzip"
        ReceiptLog(StatePaths(str(self.data)).receipts, self.run.id).append(
            [Receipt("a", blob.etag, blob.md5, blob.size, result.bytes, result.crc32, found.st_mtime_ns, inflated)]
        )


class Hang:
    """Keeps the first of some calls from being made until it is let go, as a mount does whose server is gone."""

    def __init__(self, real: t.Callable[..., t.Any], is_the_one: t.Callable[..., bool]) -> None:
        self._real, self._is_the_one = real, is_the_one
        self._first = threading.Lock()
        self.hangs, self.let_go = threading.Event(), threading.Event()

    def __call__(self, *values: t.Any, **options: t.Any) -> t.Any:
        if self._is_the_one(*values) and self._first.acquire(blocking=False):
            self.hangs.set()
            assert self.let_go.wait(PATIENCE_S)
        return self._real(*values, **options)


def at_the_rename(_source: t.Any, target: t.Any) -> bool:
    return target == "a"


def before_the_unfinished_file(path: t.Any, flags: int, *_mode: int) -> bool:
    return bool(flags & os.O_EXCL) and os.path.basename(path).endswith(".part")


@pytest.mark.parametrize(
    ("form", "call", "where"),
    [
        ("plain", "replace", at_the_rename),
        ("packed", "replace", at_the_rename),
        ("packed", "open", before_the_unfinished_file),
    ],
)
def test_what_hung_in_an_older_run_replaces_nothing_after_the_verdict_of_a_newer(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, form: Form, call: str, where: t.Callable[..., bool]
) -> None:
    hang = Hang(getattr(os, call), where)
    monkeypatch.setattr(os, call, hang)
    old = Version(tmp_path, OLD, form)
    late: list[Finished] = []
    worker = threading.Thread(target=lambda: late.append(old.finish()))
    worker.start()
    try:
        assert hang.hangs.wait(PATIENCE_S)
        new = Version(tmp_path, NEW, form)
        new.note(new.finish())
        assert run_main(dataset_verify.main, {"destination": str(new.data), "report": True})["verdict"] == "ok"
    finally:
        hang.let_go.set()
        worker.join()
    assert (new.data / "a").read_bytes() == NEW
    assert late[0].error is not None
    assert late[0].error.kind == "superseded"
    assert run_main(dataset_verify.main, {"destination": str(new.data), "content": True})["verdict"] == "ok"
    assert [path.name for path in new.data.iterdir() if path.name != ".staging"] == ["a"]


def test_a_report_leaves_alone_what_its_own_workers_still_write(tmp_path: pathlib.Path) -> None:
    """One that is late still copies what the others have: its file is whole, and of the same version."""
    old, new = Version(tmp_path, OLD, "plain"), Version(tmp_path, NEW, "plain")
    unfinished = [new.data / f".0123456789ab.{run.id}.gpu-1-7-0.part" for run in (old.run, new.run)]
    for path in unfinished:
        path.touch()
    missing = run_main(dataset_verify.main, {"destination": str(new.data), "report": True, "tries_left": 1})
    assert missing["verdict"] == "fail"
    assert [path.exists() for path in unfinished] == [False, True]
    new.note(new.finish())
    assert run_main(dataset_verify.main, {"destination": str(new.data), "report": True})["verdict"] == "ok"
    assert not unfinished[1].exists(), "nobody needs it where all is there"


def part_of(run: str, directory: pathlib.Path, name: str = "0123456789ab") -> pathlib.Path:
    """An unfinished file of a worker of this run, "" for none."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f".{name}.{run + '.' if run else ''}gpu-1-7-0.part"
    path.touch()
    return path


def report(data: pathlib.Path) -> dict[str, t.Any]:
    return run_main(dataset_verify.main, {"destination": str(data), "report": True, "fail": False})


def test_a_report_removes_what_workers_of_its_destination_left_and_no_more(tmp_path: pathlib.Path) -> None:
    """Another dataset may be copied to a directory inside of this one, or around it, at the same time."""
    version = Version(tmp_path / "around", NEW, "plain")
    inside = Version(tmp_path / "around/data/deep", NEW, "plain")
    around = Version(tmp_path, NEW, "plain")
    around.data.rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/.staging").rename(tmp_path / "around/.staging")
    version.note(version.finish())
    landing = version.data / ".staging/landing/gpu-1/r0000b00"
    stay = [
        part_of(inside.run.id, inside.data),
        part_of(around.run.id, version.data / "train"),
        part_of("", landing),  # a blob of this name that another host is about to take from there
        version.data / "model.part",
        version.data / ".hidden.part",
        version.data / ".0123456789ab.notes.part",
    ]
    for path in stay[3:]:
        path.touch()
    go = [part_of("20200101T000000-abcdef", version.data / "train"), part_of("", version.data)]
    result = report(version.data)
    assert result["verdict"] == "ok"
    assert [path.exists() for path in stay] == [True] * len(stay)
    assert [path.exists() for path in go] == [False] * len(go)
    assert result["extra_files"] >= 3, "what is left alone is somebody's file"


def test_a_file_of_the_dataset_that_is_called_like_an_unfinished_one_stays(tmp_path: pathlib.Path) -> None:
    """It was deleted at every report, and the dataset never whole."""
    name = ".0123456789ab.gpu-1-7-0.part"
    md5 = base64.b64encode(hashlib.md5(NEW).digest()).decode()
    manifest = Manifest([{"url": "https://a.blob.core.windows.net/c", "prefix": ""}], [Blob(name, len(NEW), md5, "e")])
    Dataset(str(tmp_path), manifest, decompress=True).save()
    (tmp_path / name).write_bytes(NEW)
    assert [report(tmp_path)["verdict"] for _look in range(2)] == ["ok", "ok"]
    assert (tmp_path / name).read_bytes() == NEW


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("found", ["whole", "lacking"])
def test_a_report_reads_every_directory_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    """Ten million files are a million system calls."""
    version = Version(tmp_path, NEW, "plain")
    if found == "whole":
        version.note(version.finish())
    for number in range(20):
        (version.data / f"strange/{number}").mkdir(parents=True)
        (version.data / f"strange/{number}/x").touch()
    real, read = os.scandir, []

    def scandir(path: t.Any = ".") -> t.Any:
        read.append(str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert report(version.data)["extra_files"] == 20
    of_the_dataset = [path for path in read if ".staging" not in path]
    assert len(of_the_dataset) == len(set(of_the_dataset)) == 22


def test_a_worker_whose_run_is_hidden_for_a_moment_goes_on(tmp_path: pathlib.Path) -> None:
    version = Version(tmp_path, NEW, "plain")
    pathlib.Path(StatePaths(str(version.data)).current).unlink()
    version.note(version.finish())
    assert (version.data / "a").read_bytes() == NEW


@pytest.mark.parametrize("when", ["while it is removed", "long after that"])
def test_a_removed_dataset_gets_no_more_files(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    version = Version(tmp_path, NEW, "plain")
    if when == "long after that":
        monkeypatch.setattr(fence, "_LOOK_S", 0.0)
        shutil.rmtree(version.data)
        version.data.mkdir()  # a mount point stays
    else:
        pathlib.Path(StatePaths(str(version.data)).current).write_text('{"run": ""}')
    finished = version.finish()
    assert finished.error is not None
    assert finished.error.kind == "superseded"
    assert not (version.data / "a").exists()
