# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of what was copied is written when that is on disk."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.argv import CopyRequest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.model import Settings, SourceFile
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.record import read_record, write_record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.node_name import node_digest


@pytest.fixture
def request_(tmp_path: pathlib.Path) -> CopyRequest:
    (tmp_path / "out/d/deep").mkdir(parents=True)
    for name in ("a", "d/b", "d/deep/c"):
        (tmp_path / "out" / name).write_bytes(b"data")
    return CopyRequest("azcopy", "http://127.0.0.1:9/acc/data", str(tmp_path / "out"))


def files(*names: str) -> list[SourceFile]:
    return [SourceFile(name, 4, "") for name in names]


def test_files_and_their_directories_are_on_disk_before_the_record_is_in_its_place(
    request_: CopyRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk: set[int] = set()
    before: list[set[int]] = []
    fsync, replace = os.fsync, os.replace

    def note(descriptor: int) -> None:
        fsync(descriptor)
        on_disk.add(os.fstat(descriptor).st_ino)

    def place(part: str, path: str, **options: t.Any) -> None:
        assert os.stat(part).st_ino in on_disk
        before.append(set(on_disk))
        replace(part, path, **options)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "replace", place)
    write_record(request_, Settings(), files("a", "d/b", "d/deep/c", "missing"))
    out = pathlib.Path(request_.destination)
    paths = [out / name for name in ("", "a", "d", "d/b", "d/deep", "d/deep/c")]
    assert len(before) == 1
    assert {path.stat().st_ino for path in paths} <= before[0]
    assert set(read_record(request_)) == {"a", "d/b", "d/deep/c"}


def test_links_to_files_are_left_out_and_links_to_directories_refused(
    request_: CopyRequest, tmp_path: pathlib.Path
) -> None:
    out = tmp_path / "out"
    (out / "inside").symlink_to("d")
    (out / "file").symlink_to("a")
    write_record(request_, Settings(), files("a", "d//b", "file"))
    assert set(read_record(request_)) == {"a", "d//b"}
    with pytest.raises(ClusterError, match="inside` is a symbolic link"):
        write_record(request_, Settings(), files("a", "inside/b"))
    assert set(read_record(request_)) == {"a", "d//b"}


def test_the_record_is_written_through_no_link(request_: CopyRequest, tmp_path: pathlib.Path) -> None:
    write_record(request_, Settings(), files("a"))
    victim = tmp_path / "victim"
    victim.write_text("whole")
    (record,) = (tmp_path / "out").glob(".azcopy_copy-*.json")
    record.unlink()
    record.symlink_to(victim)
    pathlib.Path(f"{record}.{node_digest(digits=8)}.part").symlink_to(victim)
    assert read_record(request_) == {}
    write_record(request_, Settings(), files("a"))
    assert set(read_record(request_)) == {"a"}
    assert victim.read_text() == "whole"
