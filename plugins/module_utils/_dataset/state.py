# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is at a staging destination: where its state lives, and which files are what their receipts say.

A file is trusted while its size and time are those of its receipt. Who reads one and finds other content gives it another time, so
that all who look afterwards read it, too, until it is copied again.

State lives in ``<destination>/.staging``, so that it is lost together with the data it describes.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import heapq
import json
import os
import re
import stat
import time
import typing as t
import zlib
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.encoding import is_gzip
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob, final_name
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.in_time import allow_bytes, allow_files
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.receipts import Receipt, Receipts, about
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.beneath import refuse_links
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.durable import sync_directory
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.own import check_own_directory, regular

STATE_DIR = ".staging"
_READ_BYTES = 4 << 20
#: Documents by the process that writes them, packed receipts by a number of their own.
_STATE_PART = re.compile(r".+\.(?:\d+|[0-9a-f]{32})\.part")
#: Nobody writes at one of them for so long, not even the receipts of 10^7 files.
_LEFT_S = 3600.0
#: Longer than what a file system keeps of a time (FAT: two seconds).
_TIME_STEP_NS = 4 * 10**9
_NAMES_PER_TASK = 512
#: Where it is not said how many: most of the time they wait for the file system.
_THREADS = 16


@dataclass(frozen=True)
class StatePaths:
    """The files of one destination's state."""

    destination: str

    @property
    def root(self) -> str:
        return os.path.join(self.destination, STATE_DIR)

    @property
    def manifest(self) -> str:
        return os.path.join(self.root, "manifest.jsonl")

    @property
    def receipts(self) -> str:
        return os.path.join(self.root, "receipts")

    @property
    def runs(self) -> str:
        return os.path.join(self.root, "runs")

    @property
    def current(self) -> str:
        """Names the run that workers may work on: a worker of any other run stops."""
        return os.path.join(self.root, "current")

    @property
    def report(self) -> str:
        return os.path.join(self.root, "staging.json")

    def run(self, run_id: str) -> str:
        return os.path.join(self.runs, run_id)


def check_state(destination: str) -> None:
    """Raise ClusterError (``bad_input``) where others may have written the state, or it lies behind a link.

    It says what is whole, what is deleted, and from where to where workers copy.
    """
    paths = StatePaths(destination)
    for directory in (paths.root, paths.receipts, paths.runs):
        check_own_directory(directory)


#: What one blob's file at the destination is. ``outdated`` was made from an older blob, or is raw where it should be inflated
#: or the reverse. ``foreign`` was not put there by us, or is no regular file.
State = t.Literal["verified", "missing", "altered", "outdated", "foreign"]


def _no_indexes() -> array[int]:
    return array("I")  # ten times smaller than a list of ten million numbers


@dataclass
class Inventory:
    """What a look at the destination found, as indexes into the blobs that were asked for.

    ``marked`` are those of the altered ones that only their content told, and that got another time.
    """

    verified: array[int] = field(default_factory=_no_indexes)
    missing: array[int] = field(default_factory=_no_indexes)
    altered: array[int] = field(default_factory=_no_indexes)
    outdated: array[int] = field(default_factory=_no_indexes)
    foreign: array[int] = field(default_factory=_no_indexes)
    marked: array[int] = field(default_factory=_no_indexes)
    verified_bytes: int = 0
    adopted: list[Receipt] = field(default_factory=list)

    @property
    def to_copy(self) -> array[int]:
        """Everything that is ours to bring: not there, not what the receipt says, or outdated."""
        return array("I", heapq.merge(self.missing, sorted(self.altered), sorted(self.outdated)))


def inspect_destination(
    blobs: t.Sequence[Blob],
    destination: str,
    receipts: Receipts,
    *,
    decompress: bool,
    content: bool | t.Callable[[int], bool] = False,
    mark: bool = False,
    dry_run: bool = False,
    threads: int = 0,
) -> Inventory:
    """Compare the destination with the manifest.

    Without ``content`` a file is trusted while size and modification time are those of its receipt, and is read only
    when the time differs. With ``content`` every file is read and its CRC-32 compared, or those of which it says so by their
    index; with ``mark`` one that is not right gets another time, or would with ``dry_run``. Raises OSError where that cannot be done.
    """
    reads = content if callable(content) else lambda _index: bool(content)
    refuse_links(destination, (final_name(blob, decompress) for blob in blobs))
    inventory = Inventory()
    allow_files(len(blobs))
    with ThreadPoolExecutor(max_workers=threads or _THREADS) as pool:
        chunks = [
            range(start, min(start + _NAMES_PER_TASK, len(blobs))) for start in range(0, len(blobs), _NAMES_PER_TASK)
        ]

        def look(chunk: range) -> list[tuple[State, int, Receipt | None, bool]]:
            some = zip(chunk, blobs[chunk.start : chunk.stop])
            return [
                _look_and_mark(blob, destination, receipts, decompress, reads(i), mark, dry_run) for i, blob in some
            ]

        for chunk, states in zip(chunks, pool.map(look, chunks)):
            for index, (state, size, adopted, marked) in zip(chunk, states):
                getattr(inventory, state).append(index)
                if marked:
                    inventory.marked.append(index)
                if state == "verified":
                    inventory.verified_bytes += size
                if adopted is not None:
                    inventory.adopted.append(adopted)
    return inventory


def _look_and_mark(
    blob: Blob, destination: str, receipts: Receipts, decompress: bool, content: bool, mark: bool, dry_run: bool
) -> tuple[State, int, Receipt | None, bool]:
    name = final_name(blob, decompress)
    known = receipts.of(name)
    found = _look_at(blob, name, destination, known, decompress, content)
    marked = mark and content and found[0] == "altered" and _mark(os.path.join(destination, name), known, dry_run)
    return (*found, marked)


def _look_at(
    blob: Blob, name: str, destination: str, receipts: t.Sequence[Receipt], decompress: bool, content: bool
) -> tuple[State, int, Receipt | None]:
    path = os.path.join(destination, name)
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return "missing", 0, None
    if not stat.S_ISREG(found.st_mode):
        return "foreign", 0, None
    inflated = decompress and is_gzip(blob.name, blob.encoding)
    if not receipts:
        adopted = None if inflated else _adopt(blob, name, path, found)
        return ("verified", found.st_size, adopted) if adopted else ("foreign", 0, None)
    covering = [one for one in about(receipts, found) if one.covers(blob, path, inflated)]
    if not covering:
        return "outdated", 0, None
    return _look_into(path, found, [one for one in covering if one.size == found.st_size], content)


def _look_into(
    path: str, found: os.stat_result, receipts: t.Sequence[Receipt], content: bool
) -> tuple[State, int, Receipt | None]:
    """Whether the file has the content of a receipt; with the receipt that spares the next one who looks the reading."""
    unchanged = any(one.mtime_ns == found.st_mtime_ns for one in receipts)
    if unchanged and not content:
        return "verified", found.st_size, None
    crc32 = file_crc32(path) if receipts else 0
    for one in receipts:
        if one.crc32 == crc32:
            return "verified", found.st_size, None if unchanged else replace(one, mtime_ns=found.st_mtime_ns)
    return "altered", 0, None


def _mark(path: str, receipts: t.Sequence[Receipt], dry_run: bool) -> bool:
    """Give a file with wrong content a time that no receipt has; False where it needs none, or another file is there by now.

    With ``dry_run`` it only says so. All by one descriptor: what takes the file's place meanwhile keeps its time.
    """
    trusted = {(one.size, one.mtime_ns) for one in receipts}
    with contextlib.suppress(FileNotFoundError), _open(path) as stream:
        handle = stream.fileno()
        found = os.fstat(handle)
        if (found.st_size, found.st_mtime_ns) not in trusted or _crc32(stream) in {one.crc32 for one in receipts}:
            return False
        now_ns = time.time_ns()
        while not dry_run and (found.st_size, os.fstat(handle).st_mtime_ns) in trusted:
            os.utime(handle, ns=(found.st_atime_ns, now_ns))
            now_ns += _TIME_STEP_NS
        return True
    return False


def _adopt(blob: Blob, name: str, path: str, found: os.stat_result) -> Receipt | None:
    """A receipt for a file without one whose content is the blob's own, by size and MD5."""
    if name != blob.name or not blob.md5 or found.st_size != blob.size:
        return None
    digest, crc32 = hashlib.md5(usedforsecurity=False), 0
    with _open(path) as stream:
        for piece in _pieces(stream):
            digest.update(piece)
            crc32 = zlib.crc32(piece, crc32)
    if base64.b64encode(digest.digest()).decode() != blob.md5:
        return None
    return Receipt(name, blob.etag, blob.md5, blob.size, found.st_size, crc32, found.st_mtime_ns, False)


def file_crc32(path: str) -> int:
    """The CRC-32 of a file's content, as gzip's trailer has it."""
    with _open(path) as stream:
        return _crc32(stream)


def _open(path: str) -> t.BinaryIO:
    return t.cast("t.BinaryIO", open(path, "rb", buffering=0, opener=regular))


def _crc32(stream: t.BinaryIO) -> int:
    crc32 = 0
    for piece in _pieces(stream):
        crc32 = zlib.crc32(piece, crc32)
    return crc32


def _pieces(stream: t.BinaryIO) -> Iterator[bytes]:
    allow_bytes(os.fstat(stream.fileno()).st_size)
    while piece := stream.read(_READ_BYTES):
        yield piece


def write_json(path: str, document: t.Any, *, durable: bool = False) -> None:
    """Write a JSON document as ``write_whole`` does."""
    write_whole(path, json.dumps(document, ensure_ascii=False).encode(), durable=durable)


def write_whole(path: str, content: bytes, *, durable: bool = False) -> None:
    """Write a file so that a reader sees the old one or the new one, never a half.

    After a power cut this holds only for a ``durable`` one, which is on disk when this returns.
    """
    part = f"{path}.{os.getpid()}.part"
    with open(part, "wb", opener=regular) as stream:
        stream.write(content)
        if durable:
            stream.flush()
            os.fsync(stream.fileno())
    os.replace(part, path)
    if durable:
        sync_directory(os.path.dirname(path))


def sweep_state(destination: str) -> None:
    """Remove what crashes left of documents and receipts that were being written. Just after a document was, which tells the time."""
    paths = StatePaths(destination)
    now = os.stat(paths.report).st_mtime  # as the file system has it: clocks of nodes differ
    for directory in (paths.root, paths.receipts):
        with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
            for entry in entries:
                if _STATE_PART.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    with contextlib.suppress(FileNotFoundError):  # somebody else sweeps, too
                        if now - entry.stat(follow_symlinks=False).st_mtime > _LEFT_S:
                            os.unlink(entry.path)


def read_json(path: str) -> t.Any:
    """The document, or None when there is none (or a crash left nothing that can be read)."""
    try:
        with open(path, encoding="utf-8", opener=regular) as stream:
            return json.load(stream)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


__all__ = [
    "STATE_DIR",
    "Inventory",
    "State",
    "StatePaths",
    "check_state",
    "file_crc32",
    "inspect_destination",
    "read_json",
    "sweep_state",
    "write_json",
    "write_whole",
]
