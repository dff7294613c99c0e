# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""From downloaded raw files to finished ones: decompress, check, and only then give them their final name.

A file is read once. Its MD5 is taken on the way into the decompressor, which itself checks CRC32 and length of every gzip
member (``find_engine`` proves that it does). Output gets its final name when all checks have passed (``part_file``).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import dataclasses
import errno
import functools
import gzip
import hashlib
import importlib
import os
import time
import typing as t
import zlib

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.part_file import (
    ANYBODY,
    AS_EVER,
    Permit,
    disk_errors,
    is_final,
    parent_of_file,
    part_file,
    take_in,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.ownership import Ownership

# Input handed to the decompressor at a time, and the most output taken from it at a time: both fit a CPU's cache,
# and bound the memory of a thread whatever a hostile file expands to.
_READ_BYTES = 1 << 20
_FEED_BYTES = 64 << 10
_OUTPUT_BYTES = 1 << 20

MAGIC = b"\x1f\x8b"
_TRAILER_BYTES = 8
_UPLOAD_AGAIN = "Upload the blob again from a good copy."


@dataclasses.dataclass(frozen=True)
class InflateResult:
    """A file that stands under its final name: size and CRC32 of its content, size of the raw file it was made from."""

    bytes: int
    crc32: int
    raw_bytes: int
    members: int  # gzip members; 0 for a file that was only moved
    seconds: float


@dataclasses.dataclass(frozen=True)
class Engine:
    """A decompressor with zlib's interface."""

    name: str
    decompressobj: t.Callable[[int], t.Any]
    error: type[Exception]


def find_engine(name: str = "auto") -> Engine:
    """``stdlib``, ``isal`` (package isal, about twice as fast), or ``auto``: isal where it is installed."""
    if name not in ("auto", "stdlib", "isal"):
        raise ClusterError("bad_input", f"The engine `{name}` is unknown.", "Choose auto, stdlib or isal.")
    return _find_engine(name)


@functools.cache
def _find_engine(name: str) -> Engine:
    if name != "stdlib":
        try:
            module = importlib.import_module("isal.isal_zlib")
            engine = Engine("isal", module.decompressobj, module.error)
        except (ImportError, AttributeError) as exc:
            if name == "isal":
                raise ClusterError(
                    "bad_input",
                    f"The Python package isal cannot be used: {exc}.",
                    "Install it for the Python that Ansible uses on the node, or set the engine to auto or stdlib.",
                ) from exc
        else:
            if _checks_trailers(engine):
                return engine
    return Engine("stdlib", zlib.decompressobj, zlib.error)


def _checks_trailers(engine: Engine) -> bool:
    """Whether the engine refuses a wrong CRC32 and a wrong length, on which all else relies."""
    good = gzip.compress(b"self-check", mtime=0)
    if engine.decompressobj(31).decompress(good) != b"self-check":
        return False
    for position in (-8, -4):
        bad = bytearray(good)
        bad[position] ^= 1
        try:
            engine.decompressobj(31).decompress(bytes(bad))
        except engine.error:
            continue
        return False
    return True


def inflate_file(
    src: str,
    dst: str,
    *,
    root: str = "",
    raw_size: int | None = None,
    raw_md5: str = "",
    engine: str = "auto",
    ownership: Ownership = AS_EVER,
    permit: Permit = ANYBODY,
) -> InflateResult:
    """Decompress the gzip file ``src`` to ``dst``; nothing appears at ``dst`` unless every check passes.

    No link is followed between ``root`` and ``dst``. ``raw_size`` and ``raw_md5`` (base64, as Azure stores it; '' unknown)
    are those of the raw file. ``src`` stays.
    """
    started = time.monotonic()
    chosen = find_engine(engine)
    with _open_raw(src, raw_size) as source, part_file(dst, root, ownership, permit) as (write, _handle):
        reader = _Reader(source)
        try:
            members, crc, size = _inflate_members(reader, write, chosen, dst)
        except ClusterError as exc:
            if raw_md5 and reader.finish_md5() != raw_md5:
                raise _md5_error(dst, raw_md5, reader.finish_md5()) from exc
            raise
        if raw_md5 and reader.finish_md5() != raw_md5:
            raise _md5_error(dst, raw_md5, reader.finish_md5())
    return InflateResult(size, crc, reader.position, members, time.monotonic() - started)


class _Reader:
    """The raw file in blocks, with the MD5 of everything read so far."""

    def __init__(self, source: t.BinaryIO) -> None:
        self._source = source
        self._md5 = hashlib.md5(usedforsecurity=False)
        self.position = 0

    def read(self) -> bytes:
        block = self._source.read(_READ_BYTES)
        self._md5.update(block)
        self.position += len(block)
        return block

    def finish_md5(self) -> str:
        """MD5 of the whole file (base64), reading what is left of it."""
        while self.read():
            pass
        return base64.b64encode(self._md5.digest()).decode()


def _inflate_members(
    reader: _Reader, write: t.Callable[[bytes], None], engine: Engine, name: str
) -> tuple[int, int, int]:
    """Decompress all members; returns their number, and the CRC32 and size of what they hold together."""
    label = os.path.basename(name)
    members = crc = size = 0
    block = reader.read()
    while block:
        if len(block) < len(MAGIC):
            block += reader.read()
        if not block.startswith(MAGIC):
            raise _not_a_member(label, members, block)
        member_size, trailer, block = _inflate_member(reader, block, write, engine, label)
        member_crc = int.from_bytes(trailer[:4], "little")
        crc = crc32_combine(crc, member_crc, member_size) if members else member_crc
        size += member_size
        members += 1
        # Padding of zero bytes after a member (tapes, block devices) is allowed; it may be long.
        block = block.lstrip(b"\0") or _skip_padding(reader)
    if not members:
        raise ClusterError(
            "not_gzip", f"`{label}` is gzip by its Content-Encoding or name, but is empty (0 bytes).", _UPLOAD_AGAIN
        )
    return members, crc, size


def _skip_padding(reader: _Reader) -> bytes:
    while True:
        block = reader.read()
        if not block or block.strip(b"\0"):
            return block.lstrip(b"\0")


def _not_a_member(label: str, members: int, block: bytes) -> ClusterError:
    if not members:
        return ClusterError(
            "not_gzip",
            f"`{label}` is gzip by its Content-Encoding or name, but does not begin like gzip "
            f"(found {binascii.hexlify(block[:4]).decode()}).",
            "Upload it again compressed, or without that Content-Encoding and `.gz`.",
        )
    if block == MAGIC[:1]:
        return ClusterError("truncated", f"`{label}` ends within the header of a gzip member.", _UPLOAD_AGAIN)
    return ClusterError("corrupt", f"`{label}` holds foreign data after its {members}. gzip member.", _UPLOAD_AGAIN)


def _inflate_member(
    reader: _Reader, block: bytes, write: t.Callable[[bytes], None], engine: Engine, label: str
) -> tuple[int, bytes, bytes]:
    """Decompress one member that begins at ``block``; returns its size, its trailer and the input that follows it."""
    machine = engine.decompressobj(31)
    size = 0
    tail = b""  # the last bytes fed, of which the trailer is the end
    while True:
        view = memoryview(block)
        for start in range(0, len(block), _FEED_BYTES):
            feed: t.Any = view[start : start + _FEED_BYTES]
            fed = feed
            while True:
                try:
                    output = machine.decompress(feed, _OUTPUT_BYTES)
                except engine.error as exc:
                    raise ClusterError(
                        "corrupt", f"`{label}` is damaged gzip data: {str(exc) or 'bad data'}.", _UPLOAD_AGAIN
                    ) from exc
                if output:
                    write(output)
                    size += len(output)
                feed = machine.unconsumed_tail
                # Without input left there may still be output inside the machine.
                if machine.eof or (not feed and len(output) < _OUTPUT_BYTES):
                    break
            if machine.eof:
                unused = len(machine.unused_data)
                consumed = bytes(fed[: len(fed) - unused])
                rest = block[start + len(consumed) :]
                return size, (tail + consumed)[-_TRAILER_BYTES:], rest
            tail = (tail + bytes(fed[-_TRAILER_BYTES:]))[-_TRAILER_BYTES:]
        block = reader.read()
        if not block:
            raise ClusterError(
                "truncated", f"`{label}` ends in the middle of its gzip data ({reader.position} bytes).", _UPLOAD_AGAIN
            )


def place_file(
    src: str,
    dst: str,
    *,
    root: str = "",
    raw_size: int | None = None,
    raw_md5: str = "",
    ownership: Ownership = AS_EVER,
    permit: Permit = ANYBODY,
    checked: bool = False,
) -> InflateResult:
    """Give a file that needs no decompression its final name after the same checks; ``src`` is gone afterwards.

    On one filesystem this is a rename after reading the file once (CRC32 and MD5), otherwise a copy through ``.part``. A
    ``checked`` file, which the caller has read, is not read for a rename, and has no CRC32 then.
    """
    started = time.monotonic()
    with _open_raw(src, raw_size) as source:
        done = _rename(source, src, dst, root, raw_md5, ownership, permit, checked)
        crc, size = done or _copy(source, dst, root, raw_md5, ownership, permit)
    if not done:
        os.unlink(src)
    return InflateResult(size, crc, size, 0, time.monotonic() - started)


def _rename(
    source: t.BinaryIO, src: str, dst: str, root: str, raw_md5: str, ownership: Ownership, permit: Permit, checked: bool
) -> tuple[int, int] | None:
    """CRC32 and size of the file that got its final name; None where only a copy of it can."""
    with parent_of_file(root, dst, ownership, permit) as (parent, name):
        read = os.fstat(source.fileno())
        if read.st_dev != os.fstat(parent).st_dev:
            return None
        crc, size, md5 = (0, read.st_size, raw_md5) if checked else _checksums(source, None)
        if raw_md5 and md5 != raw_md5:
            raise _md5_error(dst, raw_md5, md5)
        if not os.path.samestat(read, os.lstat(src)):
            raise ClusterError(
                "io",
                f"`{src}` was replaced while it was checked.",
                "See who else writes to the landing directory, then run again.",
            )
        with disk_errors(dst):
            ownership.give_to_file(source.fileno())
        try:
            take_in(src, parent, name, dst, permit)
        except OSError as exc:
            # A bind mount and a project quota are borders on one filesystem, too (rename(2)).
            if exc.errno != errno.EXDEV:
                raise
            return None
    return crc, size


def _copy(
    source: t.BinaryIO, dst: str, root: str, raw_md5: str, ownership: Ownership, permit: Permit
) -> tuple[int, int]:
    """CRC32 and size of the copy."""
    source.seek(0)
    with part_file(dst, root, ownership, permit) as (write, _handle):
        crc, size, md5 = _checksums(source, write)
        if raw_md5 and md5 != raw_md5:
            raise _md5_error(dst, raw_md5, md5)
    return crc, size


def _checksums(source: t.BinaryIO, write: t.Callable[[bytes], None] | None) -> tuple[int, int, str]:
    reader = _Reader(source)
    crc = 0
    while True:
        block = reader.read()
        if not block:
            return crc, reader.position, reader.finish_md5()
        crc = zlib.crc32(block, crc)
        if write is not None:
            write(block)


def _md5_error(dst: str, wanted: str, found: str) -> ClusterError:
    return ClusterError(
        "changed_at_source",
        f"The MD5 of `{os.path.basename(dst)}` is {found}, the manifest says {wanted}.",
        "The blob was replaced since it was listed, or its stored MD5 is wrong: list the source again.",
    )


@contextlib.contextmanager
def _open_raw(src: str, raw_size: int | None) -> t.Iterator[t.BinaryIO]:
    """Open the raw file (never through a link) and compare its size."""
    try:
        handle = os.open(src, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as exc:
        raise ClusterError(
            "not_found" if is_final(exc) else "io",
            f"The downloaded file `{src}` cannot be read: {exc.strerror}.",
            "Check the landing disk, then run again.",
        ) from exc
    with os.fdopen(handle, "rb", buffering=0) as source:
        size = os.fstat(handle).st_size
        if raw_size is not None and size != raw_size:
            raise ClusterError(
                "changed_at_source",
                f"`{os.path.basename(src)}` has {size} bytes, the manifest says {raw_size}.",
                "The blob was replaced since it was listed: list the source again.",
            )
        yield t.cast(t.BinaryIO, source)


def crc32_combine(first: int, second: int, second_bytes: int) -> int:
    """CRC32 of two pieces of data one after the other, from their own CRCs (polynomial arithmetic over GF(2))."""
    # Multiplying by x^(8 n) modulo the CRC polynomial appends n zero bytes to the first piece.
    return _gf2_multiply(_gf2_power(8 * second_bytes), first) ^ second


_POLYNOMIAL = 0xEDB88320  # CRC-32 of gzip (RFC 1952), bit-reversed: bit 31 is x^0


def _gf2_multiply(left: int, right: int) -> int:
    product = 0
    for bit in range(31, -1, -1):
        if left >> bit & 1:
            product ^= right
        right = (right >> 1) ^ (_POLYNOMIAL if right & 1 else 0)
    return product


def _gf2_power(exponent: int) -> int:
    """x to the power of ``exponent``."""
    result, square = 1 << 31, 1 << 30  # x^0 and x^1
    while exponent:
        if exponent & 1:
            result = _gf2_multiply(square, result)
        square = _gf2_multiply(square, square)
        exponent >>= 1
    return result


__all__ = [
    "MAGIC",
    "InflateResult",
    "crc32_combine",
    "find_engine",
    "inflate_file",
    "place_file",
]
