# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Compress a tree of files for an upload with ``--content-encoding gzip``, in parallel and repeatably.

The same input gives the same output byte for byte (no time stamp, no name inside), so a second upload finds nothing to do.
Every result is decompressed again before it gets its name: what is uploaded is what was there.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import importlib
import os
import time
import typing as t
import zlib

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.part_file import disk_errors, is_final, part_file
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.room import available_cpus
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.beneath import parent_of

SUFFIX = ".gz"
_SMALLEST_BYTES = 20  # header, an empty block, trailer: the gzip file of an empty one
_READ_BYTES = 1 << 20
# Levels that mean about the same ratio: zlib's 6 is gzip's default, isal only has 0 to 3.
_ZLIB_LEVEL = 6
_ISAL_LEVEL = 2


@dataclasses.dataclass(frozen=True)
class Compressed:
    """What became of one file; ``fresh`` is False where an up-to-date result was there already."""

    name: str
    raw_bytes: int
    bytes: int
    seconds: float
    fresh: bool
    error: ClusterError | None = None


def deflate_file(
    src: str, dst: str, *, engine: str = "auto", src_root: str = "", dst_root: str = ""
) -> tuple[int, int]:
    """Compress ``src`` to ``dst`` and return both sizes; ``dst`` appears only when it decompresses to the input.

    ``dst`` gets the modification time of ``src``: that is how a later run sees that it is up to date. No link is followed
    below the roots, where they are given.
    """
    try:
        handle = _open_source(src, src_root)
    except OSError as exc:
        kind = "not_found" if is_final(exc) else "io"
        raise ClusterError(kind, f"`{src}` cannot be read: {exc.strerror}.", "Check the path and mode.") from exc
    with os.fdopen(handle, "rb", buffering=0) as source, part_file(dst, dst_root) as (write, target):
        before = os.fstat(handle)
        machine = _compressor(engine)
        crc = size = packed = 0
        check = zlib.decompressobj(31)
        checked = 0
        while True:
            block = source.read(_READ_BYTES)
            output = machine.compress(block) if block else machine.flush()
            crc = zlib.crc32(block, crc)
            size += len(block)
            packed += len(output)
            write(output)
            checked += _unpacked_bytes(check, output, src)
            if not block:
                break
        after = os.fstat(handle)
        if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns) or size != before.st_size:
            raise ClusterError(
                "changed_at_source",
                f"`{src}` changed while it was compressed.",
                "Run again when no program writes to it any more.",
            )
        # zlib has compared the CRC32 in the trailer with what it unpacked. If the length agrees, too, that is the input.
        if not check.eof or checked != size or int.from_bytes(_trailer_crc(target, packed), "little") != crc:
            raise _not_itself(src)
        with disk_errors(dst):
            # The time may survive a power cut that takes the content, and is all that a later run looks at.
            os.fsync(target)
            os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
    return size, packed


def _open_source(src: str, root: str) -> int:
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe would keep us waiting for its other end
    if not root:
        return os.open(src, flags)
    with parent_of(root, os.path.relpath(src, root)) as (parent, name):
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=parent)


def _unpacked_bytes(check: t.Any, output: bytes, src: str) -> int:
    try:
        return len(check.decompress(output))
    except zlib.error as exc:
        raise _not_itself(src) from exc


def _not_itself(src: str) -> ClusterError:
    return ClusterError("corrupt", f"The compressed copy of `{src}` does not unpack to it.", "Check the memory.")


def _trailer_crc(handle: int, size: int) -> bytes:
    return os.pread(handle, 4, size - 8)


def _compressor(engine: str) -> t.Any:
    if engine in ("auto", "isal"):
        try:
            isal_zlib = importlib.import_module("isal.isal_zlib")
            return isal_zlib.compressobj(_ISAL_LEVEL, wbits=31)
        except ImportError as exc:
            if engine == "isal":
                raise ClusterError(
                    "bad_input", "The Python package isal is not installed.", "Install it or set the engine to stdlib."
                ) from exc
    elif engine != "stdlib":
        raise ClusterError("bad_input", f"The engine `{engine}` is unknown.", "Choose auto, stdlib or isal.")
    return zlib.compressobj(_ZLIB_LEVEL, zlib.DEFLATED, 31)


def deflate_tree(
    source: str,
    destination: str,
    *,
    names: t.Iterable[str] | None = None,
    engine: str = "auto",
    threads: int = 0,
    follow: bool = True,
) -> t.Iterator[Compressed]:
    """Compress every file under ``source`` (or ``names``, relative to it) to ``destination/NAME.gz``.

    Files that are there with the same modification time are left alone. Names that end in ``.gz`` already are refused:
    afterwards their names would not tell how often to unpack them. Yields results as they are done. Without ``follow`` nothing
    is read through a link below ``source``; nothing is written through one below ``destination`` in any case.
    """
    wanted = sorted(names if names is not None else _files_under(source))
    packed = [name for name in wanted if name.endswith(SUFFIX)]
    if packed:
        raise ClusterError(
            "bad_input",
            f"{len(packed)} files are compressed already: {', '.join(packed[:3])}.",
            "Upload them as they are, or leave them out.",
        )
    _compressor(engine)
    with concurrent.futures.ThreadPoolExecutor(threads or available_cpus()) as pool:
        jobs = [pool.submit(_one, source, destination, name, engine, follow) for name in wanted]
        try:
            for job in concurrent.futures.as_completed(jobs):
                yield job.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _files_under(root: str) -> list[str]:
    found = []
    for folder, _folders, files in os.walk(root):
        found += [os.path.relpath(os.path.join(folder, name), root) for name in files]
    return [name for name in found if os.path.isfile(os.path.join(root, name))]


def _one(source: str, destination: str, name: str, engine: str, follow: bool) -> Compressed:
    started = time.monotonic()
    src, dst = os.path.join(source, name), os.path.join(destination, name + SUFFIX)
    with contextlib.suppress(OSError):
        there, wanted = os.lstat(dst), os.stat(src)
        if there.st_mtime_ns == wanted.st_mtime_ns and there.st_size >= _SMALLEST_BYTES:
            return Compressed(name, wanted.st_size, there.st_size, 0.0, fresh=False)
    try:
        src_root = "" if follow else source
        size, packed = deflate_file(src, dst, engine=engine, src_root=src_root, dst_root=destination)
    except ClusterError as exc:
        return Compressed(name, 0, 0, time.monotonic() - started, fresh=True, error=exc)
    return Compressed(name, size, packed, time.monotonic() - started, fresh=True)


__all__ = ["Compressed", "deflate_file", "deflate_tree"]
