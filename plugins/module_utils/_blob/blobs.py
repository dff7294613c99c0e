# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Millions of blobs in little memory: as the lines that a manifest has on disk, each made a ``Blob`` when it is asked for.

A ``Blob`` takes 400 bytes with its texts and numbers, its line 110. Lines are kept in blocks of some thousand, as they were listed.
"""

from __future__ import annotations

import copy
import itertools
import json
import typing as t
from array import array
from bisect import bisect_left, bisect_right
from json.encoder import encode_basestring_ascii as _quote
from operator import itemgetter

# Blobs that are encoded or decoded at a time: large enough for C speed, small enough to be no memory worth mentioning.
_PORTION = 5000
_PLAIN = '["%s",%d,"%s","%s","%s",%d]\n'


class Blob(t.NamedTuple):
    """One blob. A named tuple, not a dataclass: a million of them are built and read in about a second."""

    name: str  # relative to the directory of its source's prefix, decoded, "/" between components
    size: int
    md5: str = ""  # base64, as the service gives it; "" where the service has none
    etag: str = ""
    encoding: str = ""  # Content-Encoding: "", "gzip", ...
    source: int = 0  # index in Manifest.sources


class Block(t.NamedTuple):
    """Some blobs in their order, at least one. Line ``i`` of ``text`` is ``text[bounds[i]:bounds[i + 1]]``."""

    first: Blob
    last: Blob
    text: bytes  # ASCII: a JSON array per line
    bounds: array[int]
    sizes: array[int]


class Blobs(t.Sequence[Blob]):
    """Blobs in a given order, or some of them. They can be indexed, cut and iterated over as a list can, but not be changed."""

    def __init__(self, blocks: t.Iterable[Block]) -> None:
        """All that is in the blocks, one after the other."""
        self._blocks = list(blocks)
        self._starts = array("I", itertools.accumulate((len(block.sizes) for block in self._blocks), initial=0))
        self._order: range | array[int] = range(self._starts[-1])

    @classmethod
    def of(cls, blobs: t.Iterable[Blob]) -> Blobs:
        """Any blobs, sorted."""
        return cls(in_order(pack_all(blobs)))

    def __len__(self) -> int:
        return len(self._order)

    @t.overload
    def __getitem__(self, index: int) -> Blob: ...

    @t.overload
    def __getitem__(self, index: slice) -> Blobs: ...

    def __getitem__(self, index: int | slice) -> Blob | Blobs:
        if isinstance(index, slice):
            return self._view(self._order[index])
        return decode(next(self._lines([self._order[index]])))[0]

    def __iter__(self) -> t.Iterator[Blob]:
        return itertools.chain.from_iterable(self.portions())

    def portions(self) -> t.Iterator[list[Blob]]:
        """All blobs, some thousand at a time."""
        return map(decode, self.texts())

    def texts(self) -> t.Iterator[bytes]:
        """The lines of all blobs, some thousand at a time."""
        if self._is_whole():
            yield from (block.text for block in self._blocks)
            return
        for start in range(0, len(self), _PORTION):
            yield b"".join(self._lines(self._order[start : start + _PORTION]))

    def as_array(self) -> bytes:
        """One JSON array of all blobs."""
        return b"[" + b"".join(self.texts())[:-1].replace(b"\n", b",") + b"]"

    @property
    def sizes(self) -> array[int]:
        """The size of each blob, made anew at every call."""
        found = array("q")
        if self._is_whole():
            for block in self._blocks:
                found.extend(block.sizes)
        else:
            found.extend(block.sizes[place] for block, place in self._places(self._order))
        return found

    def select(self, indexes: t.Iterable[int]) -> Blobs:
        """The blobs at these indexes. They take four bytes each, an array or a range of indexes into all blobs nothing more."""
        if not self._is_whole():
            return self._view(array("I", map(self._order.__getitem__, indexes)))
        return self._view(indexes if isinstance(indexes, (range, array)) else array("I", indexes))

    def _is_whole(self) -> bool:
        return self._order == range(self._starts[-1])

    def _view(self, order: range | array[int]) -> Blobs:
        view = copy.copy(self)
        view._order = order
        return view

    def _lines(self, order: t.Iterable[int]) -> t.Iterator[bytes]:
        for block, place in self._places(order):
            yield block.text[block.bounds[place] : block.bounds[place + 1]]

    def _places(self, order: t.Iterable[int]) -> t.Iterator[tuple[Block, int]]:
        """The block of each blob and its place there. Quick where neighbors follow each other."""
        start = stop = number = 0
        for index in order:
            if not start <= index < stop:
                number = bisect_right(self._starts, index) - 1
                start, stop = self._starts[number], self._starts[number + 1]
            yield self._blocks[number], index - start


def pack_all(blobs: t.Iterable[Blob]) -> list[Block]:
    """Blobs in any order as blocks that are sorted in themselves."""
    blocks = []
    left = iter(blobs)
    while portion := sorted(itertools.islice(left, _PORTION)):
        blocks.append(_pack(portion))
    return blocks


def _pack(blobs: t.Sequence[Blob]) -> Block:
    text = _encode(blobs)
    bounds = array("I", itertools.accumulate(map(len, text.splitlines(keepends=True)), initial=0))
    return Block(blobs[0], blobs[-1], text, bounds, array("q", map(itemgetter(1), blobs)))


def _encode(blobs: t.Sequence[Blob]) -> bytes:
    """One line per blob, with no white space in it that is not quoted."""
    count = len(blobs)
    text = (_PLAIN * count) % tuple(itertools.chain.from_iterable(blobs))
    # Quoting each text takes twice as long, and few have a character that has to be.
    quoted = (
        "\\" in text
        or text.count('"') != _PLAIN.count('"') * count
        or text.count("\n") != count
        or not (text.isascii() and text.replace("\n", "").isprintable())
    )
    if quoted:
        text = "".join(
            [
                f"[{_quote(name)},{size:d},{_quote(md5)},{_quote(etag)},{_quote(encoding)},{source:d}]\n"
                for name, size, md5, etag, encoding, source in blobs
            ]
        )
    return text.encode("ascii")


def decode(lines: bytes) -> list[Blob]:
    """The blobs of some lines. Raises ValueError or TypeError where they are not what they should be."""
    return list(map(Blob._make, json.loads(b"[" + lines.rstrip(b"\n").replace(b"\n", b",") + b"]")))


def in_order(blocks: list[Block]) -> t.Iterator[Block]:
    """The same blobs, sorted over all blocks. Empties the list, so that nothing is in memory twice.

    A listing is sorted almost everywhere. So blocks are put into the order of their first blobs, and only those that reach into
    others are made blobs again, as few at a time as can be.
    """
    blocks.sort(key=itemgetter(0), reverse=True)
    pending: list[Blob] = []  # what blocks to come may reach into, sorted up to ``kept``
    kept = 0
    while blocks:
        block = blocks.pop()
        following = blocks[-1].first if blocks else None
        if kept == len(pending):
            ready = bisect_left(pending, block.first)
            yield from pack_all(pending[:ready])
            del pending[:ready]
            kept = len(pending)
            if (not pending or block.last < pending[0]) and (following is None or block.last < following):
                yield block
                continue
        pending += decode(block.text)
        # Many only when they have doubled: else a listing without any order would be sorted once for every block.
        if len(pending) < 4 * _PORTION or len(pending) > 2 * kept:
            pending.sort()
            kept = len(pending)
    yield from pack_all(sorted(pending))


__all__ = ["Blob", "Blobs", "Block", "decode", "in_order", "pack_all"]
