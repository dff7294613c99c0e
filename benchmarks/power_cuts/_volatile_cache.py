# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The volatile cache of a drive, from QEMU's log of what the guest wrote (driver blklogwrites, format of Linux' dm-log-writes).

A drive may keep what it was sent in a cache, and has made it durable only when it has answered a flush. Until then any part may
be gone after a power cut, in any order. A block of 4 KiB is written whole or not at all, as drives promise for what is no larger than
their atomic unit, and as file systems expect of a block.

The log is complete: a write is in it before the guest hears of it, and a flush after all that it covers. QEMU 7.2 damages it where the
guest has zeros written by a command of their own beside something else, and fails a write of more than 1,022 pieces, to which it
merges small ones: its disks must do neither.
"""

from __future__ import annotations

import os
import random
import struct
import typing as t

_SECTOR = 512
_FLUSH, _FUA, _DISCARD, _MARK = 1, 2, 4, 8
_BLOCK = 4096
_CHUNK = 1 << 20


class TornLogError(Exception):
    """QEMU was killed between two entries that it wrote at the same time: what the second one says was acknowledged is not known."""


class Entry(t.NamedTuple):
    """What the guest asked of a disk. Offsets and length in bytes; ``data`` is where its bytes lie in the log."""

    kind: str  # write, discard, flush
    offset: int = 0
    length: int = 0
    data: int = 0
    durable: bool = False


def entries(log: t.BinaryIO) -> list[Entry]:
    """All that a log tells, in the order in which it was done. Raises TornLogError."""
    size = log.seek(0, os.SEEK_END)
    found = []
    place = _SECTOR  # its own header comes first
    while place + _SECTOR <= size:
        log.seek(place)
        sector, count, flags, _unused = struct.unpack("<4Q", log.read(32))
        if not (sector or count or flags):
            # Written in one piece: what is missing here was never told to the guest, unless something lies behind it.
            if _holds_data(log, place, size):
                raise TornLogError(f"{log.name}: no entry at byte {place} of {size}")
            break
        place += _SECTOR
        length = count * _SECTOR
        if flags & _FLUSH:
            found.append(Entry("flush"))
        if flags & _DISCARD:
            found.append(Entry("discard", sector * _SECTOR, length))
        elif length:
            if place + length > size:
                break
            found.append(Entry("write", sector * _SECTOR, length, place, bool(flags & _FUA)))
            place += length
    return found


def _holds_data(log: t.BinaryIO, start: int, end: int) -> bool:
    log.seek(start)
    return any(log.read(min(_CHUNK, end - at)).strip(b"\0") for at in range(start, end, _CHUNK))


def surviving(said: t.Sequence[Entry], loss: str, rng: random.Random) -> list[Entry]:
    """What is on the medium after a power cut, in the order in which it got there.

    ``loss``, of what no flush made durable: ``none``, ``all``, or ``some``: each block by the toss of a coin.
    """
    flushes = [number for number, entry in enumerate(said) if entry.kind == "flush"]
    safe = flushes[-1] if flushes else -1
    kept = [entry for entry in said[: safe + 1] if entry.kind != "flush"]
    for entry in said[safe + 1 :]:
        if loss == "none" or entry.durable:
            kept.append(entry)
        elif loss == "some":
            pieces = _pieces(entry) if entry.kind == "write" else [entry]
            kept += [piece for piece in pieces if rng.random() < 0.5]
    return kept


def _pieces(entry: Entry) -> t.Iterator[Entry]:
    """A write as the blocks that it fills."""
    at, end = entry.offset, entry.offset + entry.length
    while at < end:
        until = min(at - at % _BLOCK + _BLOCK, end)
        yield Entry("write", at, until - at, entry.data + at - entry.offset)
        at = until


def replay(log: t.BinaryIO, kept: t.Iterable[Entry], medium: t.BinaryIO) -> None:
    """Bring what survived to the medium, a file that the guest's session has only lain above."""
    size = os.fstat(medium.fileno()).st_size
    for entry in kept:
        if entry.kind == "discard" and (entry.offset, entry.length) == (0, size):
            os.truncate(medium.fileno(), 0)
            os.truncate(medium.fileno(), size)
            continue
        for start in range(0, entry.length, _CHUNK):
            length = min(_CHUNK, entry.length - start)
            data = os.pread(log.fileno(), length, entry.data + start) if entry.kind == "write" else bytes(length)
            os.pwrite(medium.fileno(), data, entry.offset + start)


__all__ = ["Entry", "TornLogError", "entries", "replay", "surviving"]
