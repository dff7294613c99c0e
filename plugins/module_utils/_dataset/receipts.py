# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Receipts of finished files.

A *receipt* is written after a file was checked and renamed to its final name. It is the only proof that a file is what the
manifest says: the size on disk of an inflated file says nothing about the blob. A file without a receipt counts as foreign
until its content proves otherwise.

A name can have several: every rank writes to a file of its own, and the clocks of nodes differ, so that none of them is
known to be the last one. The file itself tells which one is about it, by its modification time.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import stat
import typing as t
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.encoding import is_gzip
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.beneath import is_proper, refuse_links, unlink
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.durable import sync_directory
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.own import regular

_GZIP_MAGIC = b"\x1f\x8b"
_LOOKS = 16  # at a time


@dataclass(frozen=True)
class Receipt:
    """One finished file. ``size`` and ``crc32`` are those of the final content; ``mtime_ns`` is that of the final file.

    ``inflated`` is None in receipts from before it was noted.
    """

    name: str
    etag: str
    md5: str
    raw_size: int
    size: int
    crc32: int
    mtime_ns: int
    inflated: bool | None = None

    def covers(self, blob: Blob, path: str, inflated: bool) -> bool:
        """True when the file at ``path`` was made from exactly this version of the blob, in the form that is wanted."""
        same_version = self.etag == blob.etag or (self.md5 != "" and self.md5 == blob.md5)
        return same_version and self.raw_size == blob.size and self._is_inflated(blob, path) == inflated

    def _is_inflated(self, blob: Blob, path: str) -> bool | None:
        """Whether the file holds inflated bytes. None where that cannot be told: then it is safer to copy it again."""
        if self.inflated is not None:
            return self.inflated
        if not is_gzip(blob.name, blob.encoding):
            return False
        if self.size != self.raw_size:
            return True
        with open(path, "rb", opener=regular) as stream:
            return False if stream.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC else None


class ReceiptLog:
    """Appends receipts to a file of its own, one JSON array per line, so that writers never share a file.

    Who appends has brought the files to disk before.
    """

    def __init__(self, directory: str, writer: str) -> None:
        os.makedirs(directory, exist_ok=True)
        self._path = os.path.join(directory, f"{writer}.jsonl")
        self._is_new = True

    def append(self, receipts: Iterable[Receipt]) -> None:
        lines = "".join(json.dumps(astuple(receipt), ensure_ascii=False) + "\n" for receipt in receipts)
        if lines:
            with open(self._path, "a", encoding="utf-8", opener=regular) as stream:
                stream.write(lines)
                stream.flush()
                os.fsync(stream.fileno())
        if lines and self._is_new:
            sync_directory(os.path.dirname(self._path))
            sync_directory(os.path.dirname(os.path.dirname(self._path)))
            self._is_new = False


class Receipts:
    """All receipts by final name, in the order of their names' first appearance. Few names have more than one."""

    def __init__(self) -> None:
        self._first: dict[str, Receipt] = {}
        self._more: dict[str, list[Receipt]] = {}

    def add(self, receipt: Receipt) -> None:
        if self._first.setdefault(receipt.name, receipt) != receipt:
            more = self._more.setdefault(receipt.name, [])
            if receipt not in more:
                more.append(receipt)

    def of(self, name: str) -> t.Sequence[Receipt]:
        """The different receipts of a name."""
        first = self._first.get(name)
        return () if first is None else (first, *self._more.get(name, ()))

    def __iter__(self) -> Iterator[str]:
        return iter(self._first)

    def __len__(self) -> int:
        return len(self._first)


def read_receipts(directory: str) -> Receipts:
    """All receipts. A line cut short by a crash is ignored: its file is copied again. So is a name that leads elsewhere.

    Who may write to the destination may write receipts, too.
    """
    receipts = Receipts()
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(directory):
            if entry.name.endswith(".jsonl"):
                for receipt in _receipts_of(entry.path):
                    receipts.add(receipt)
    return receipts


def receipts_of(directory: str, writers: Iterable[str]) -> Receipts:
    """The receipts of some writers, of which any may have written none."""
    receipts = Receipts()
    for writer in writers:
        for receipt in _receipts_of(os.path.join(directory, f"{writer}.jsonl")):
            receipts.add(receipt)
    return receipts


def _receipts_of(path: str) -> Iterator[Receipt]:
    with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8", opener=regular) as stream:
        for line in stream:
            try:
                receipt = Receipt(*json.loads(line))
            except (ValueError, TypeError):
                continue
            if is_proper(receipt.name):
                yield receipt


def about(receipts: t.Sequence[Receipt], found: os.stat_result) -> t.Sequence[Receipt]:
    """Those that were written about the file as it is; all of them where none was, or there is only one."""
    if len(receipts) < 2:
        return receipts
    now = [one for one in receipts if (one.size, one.mtime_ns) == (found.st_size, found.st_mtime_ns)]
    return now or receipts


def consolidate_receipts(destination: str, directory: str, receipts: Receipts, keep: Iterable[str]) -> None:
    """Replace all receipt files by one with the names in ``keep``. Only while no worker is writing.

    Of several receipts of a file those stay that are about it as it is.
    """
    refuse_links(destination, [os.path.relpath(os.path.join(directory, "all.jsonl"), destination)])
    old = [entry.path for entry in os.scandir(directory) if entry.name.endswith(".jsonl")]
    target = os.path.join(directory, "all.jsonl")
    part = f"{target}.{uuid.uuid4().hex}.part"  # two may report at the same time
    with open(part, "w", encoding="utf-8", opener=regular) as stream:
        for name in keep:
            for receipt in _kept(destination, receipts.of(name)):
                stream.write(json.dumps(astuple(receipt), ensure_ascii=False) + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(part, target)
    sync_directory(directory)
    for path in old:
        if path != target:
            with contextlib.suppress(FileNotFoundError):
                unlink(destination, os.path.relpath(path, destination))


def still_ours(destination: str, receipts: Receipts, wanted: t.Container[str]) -> list[str]:
    """The wanted names, and those of an earlier choice or form whose files are there: `remove` and a later choice ask for them."""
    others = [name for name in receipts if name not in wanted]
    with ThreadPoolExecutor(max_workers=_LOOKS) as pool:
        there = set(
            itertools.compress(others, pool.map(lambda name: _is_there(destination, receipts.of(name)), others))
        )
    return [name for name in receipts if name in wanted or name in there]


def _is_there(destination: str, receipts: t.Sequence[Receipt]) -> bool:
    """Whether a file may be what was staged: one of another size is somebody else's by now."""
    try:
        found = os.lstat(os.path.join(destination, receipts[0].name))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # the file system fails: nothing may be forgotten
        return True
    return stat.S_ISREG(found.st_mode) and any(one.size == found.st_size for one in receipts)


def _kept(destination: str, receipts: t.Sequence[Receipt]) -> t.Sequence[Receipt]:
    if len(receipts) > 1:
        with contextlib.suppress(OSError):
            return about(receipts, os.lstat(os.path.join(destination, receipts[0].name)))
    return receipts


__all__ = [
    "Receipt",
    "ReceiptLog",
    "Receipts",
    "about",
    "consolidate_receipts",
    "read_receipts",
    "receipts_of",
    "still_ours",
]
