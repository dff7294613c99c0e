# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which receipt is about a file, where several nodes wrote one and their clocks differ."""

from __future__ import annotations

import os
import pathlib
import re
import zlib

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob, Manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset import state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.dataset import Dataset
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.receipts import (
    Receipt,
    ReceiptLog,
    consolidate_receipts,
    read_receipts,
    still_ours,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import Inventory, inspect_destination

OLD, NEW = b"old content", b"new content"
NOON_NS = 1_700_000_000_000_000_000
HOUR_NS = 3600 * 10**9
BLOB = Blob("a", len(NEW), etag="new")


def receipt(content: bytes, etag: str, mtime_ns: int) -> Receipt:
    return Receipt("a", etag, "", len(content), len(content), zlib.crc32(content), mtime_ns, False)


class Place:
    """A destination with one file, and the log of its receipts."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.file = path / "a"
        self.log = str(path / ".staging/receipts")

    def put(self, content: bytes, mtime_ns: int) -> None:
        self.file.write_bytes(content)
        os.utime(self.file, ns=(mtime_ns, mtime_ns))

    def note(self, writer: str, *receipts: Receipt) -> None:
        ReceiptLog(self.log, writer).append(receipts)

    def look(self, content: bool = False) -> Inventory:
        return inspect_destination([BLOB], str(self.path), read_receipts(self.log), decompress=False, content=content)


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize("content", [False, True])
@pytest.mark.parametrize("writers", [("gpu-1", "gpu-2"), ("gpu-2", "gpu-1")])
def test_a_node_whose_clock_is_behind_wrote_last(place: Place, writers: tuple[str, str], content: bool) -> None:
    # Its receipt is the older one by its time, and the right one all the same.
    place.put(NEW, NOON_NS - HOUR_NS)
    place.note(writers[0], receipt(OLD, "old", NOON_NS))
    place.note(writers[1], receipt(NEW, "new", NOON_NS - HOUR_NS))
    assert list(place.look(content).verified) == [0]


@pytest.mark.parametrize("content", [False, True])
def test_what_was_put_back_from_before_is_outdated(place: Place, content: bool) -> None:
    place.put(OLD, NOON_NS)
    place.note("gpu-1", receipt(OLD, "old", NOON_NS))
    place.note("gpu-2", receipt(NEW, "new", NOON_NS - HOUR_NS))
    assert list(place.look(content).outdated) == [0]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_file_with_a_time_that_no_receipt_knows_is_read(place: Place, damaged: bool) -> None:
    place.put(NEW[::-1] if damaged else NEW, NOON_NS + 7)
    place.note("gpu-1", receipt(OLD, "old", NOON_NS), receipt(NEW, "new", NOON_NS - HOUR_NS))
    found = place.look()
    assert (list(found.altered), list(found.verified)) == (([0], []) if damaged else ([], [0]))


def test_a_copy_without_times_is_read_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.put(NEW, NOON_NS - 5)  # older than the receipt: it is not the youngest that counts
    place.note("gpu-1", receipt(NEW, "new", NOON_NS))
    found = place.look()
    assert list(found.verified) == [0]
    place.note("adopted", *found.adopted)
    monkeypatch.setattr(state, "file_crc32", lambda _path: pytest.fail("the file was read again"))
    again = place.look()
    assert (list(again.verified), again.adopted) == ([0], [])


def test_packing_keeps_what_is_about_the_file(place: Place) -> None:
    place.put(NEW, NOON_NS)
    right = receipt(NEW, "new", NOON_NS)
    place.note("gpu-1", receipt(OLD, "old", NOON_NS + HOUR_NS))
    place.note("gpu-2", right, right)
    consolidate_receipts(str(place.path), place.log, read_receipts(place.log), ["a"])
    assert read_receipts(place.log).of("a") == (right,)
    # Where none is, nobody decides by a clock.
    place.put(NEW, NOON_NS + 1)
    place.note("gpu-1", receipt(OLD, "old", NOON_NS + HOUR_NS))
    consolidate_receipts(str(place.path), place.log, read_receipts(place.log), ["a"])
    assert set(read_receipts(place.log).of("a")) == {right, receipt(OLD, "old", NOON_NS + HOUR_NS)}
    place.file.unlink()
    consolidate_receipts(str(place.path), place.log, read_receipts(place.log), ["a"])
    assert len(read_receipts(place.log).of("a")) == 2


def test_packed_receipts_are_on_disk_before_the_others_go(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.put(NEW, NOON_NS)
    place.note("gpu-1", receipt(NEW, "new", NOON_NS))
    deeds: list[str] = []
    fsync, unlink = os.fsync, os.unlink

    def note_sync(descriptor: int) -> None:
        fsync(descriptor)
        name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        deeds.append(re.sub("[0-9a-f]{32}", "…", name))

    def note_unlink(path: str, *, dir_fd: int | None = None) -> None:
        deeds.append(f"unlink {os.path.basename(path)}")
        unlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "unlink", note_unlink)
    consolidate_receipts(str(place.path), place.log, read_receipts(place.log), ["a"])
    assert deeds == ["all.jsonl.….part", "receipts", "unlink gpu-1.jsonl"]


def test_receipts_of_names_that_are_not_wanted_any_more_stay_with_their_files(place: Place) -> None:
    place.put(NEW, NOON_NS)
    place.note("gpu-1", receipt(NEW, "new", NOON_NS))
    receipts = read_receipts(place.log)
    assert still_ours(str(place.path), receipts, {"a"}) == still_ours(str(place.path), receipts, set()) == ["a"]
    place.file.write_bytes(b"somebody else's by now")
    assert still_ours(str(place.path), receipts, set()) == []
    place.file.unlink()
    assert still_ours(str(place.path), receipts, set()) == []
    assert still_ours(str(place.path), receipts, {"a"}) == ["a"]


def test_what_a_crash_left_of_packed_receipts_is_swept_when_it_is_old(tmp_path: pathlib.Path) -> None:
    """Not what another report is writing at the moment, nor what is not of ours."""
    dataset = Dataset(str(tmp_path), Manifest([{"url": "http://x/c", "prefix": ""}], [BLOB]), decompress=False)
    dataset.save()
    log = tmp_path / ".staging/receipts"
    old = [log / f"all.jsonl.{'0' * 32}.part", tmp_path / ".staging/staging.json.17.part"]
    kept = [log / f"all.jsonl.{'1' * 32}.part", log / "notes.part"]
    for path in (*old, *kept):
        path.write_text("[")
    for path in (*old, kept[1]):
        os.utime(path, ns=(NOON_NS, NOON_NS))
    dataset.write_report(dataset.verify(content=False, part=(0, 1), threads=1))
    assert [path.exists() for path in (*old, *kept)] == [False, False, True, True]
