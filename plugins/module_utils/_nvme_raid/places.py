# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Where a disk is looked at to know whether it is empty: reading all of it would take hours."""

from __future__ import annotations

import os
import zlib

_MIB = 1 << 20
_BLOCK = 4096
#: Raw users write headers at the start, file systems in partitions at 1 MiB, md and GPT at the end.
_HEAD, _TAIL = 2 * _MIB, _MIB
_EVEN = 256
_NEARER = 20


def places(size: int) -> tuple[tuple[int, int], ...]:
    """Offsets and lengths in bytes, in ascending order and apart, for a device of ``size`` bytes.

    The first 2 MiB, the last MiB, and between them blocks of 4 KiB: 256 spread over the whole length, each at another place of
    its part, and about as many that lie closer together the nearer they are to the start, where most users begin. Data is met
    wherever it fills more than a 128th of the device, or more than a 20th of what lies before it. There are fewer than 1,000
    places on any device (2**63 bytes), 525 on 1 TB. The same size gives the same places on every machine.

    What it costs: 20 ms of CPU time for ``first_data`` on 1 TB of zeros (a sparse file on ext4, read without O_DIRECT, Python
    3.11, a shared virtual CPU), and what the disk takes for 525 reads: at 0.1 ms each, 50 ms. Through a loop device, on the
    same CPUs while they were busy, all of it took 1.4 to 3.0 s.
    """
    head = min(_HEAD, size)
    tail = max(head, size - _TAIL)
    part = size // _EVEN
    # Places at equal distances would all miss what is laid out in such distances.
    starts = {size * n // _EVEN + (zlib.crc32(bytes([n])) * part >> 32) for n in range(_EVEN)}
    place = head
    while place < tail:
        starts.add(place)
        place += max(place // _NEARER, _BLOCK)
    blocks = {start // _BLOCK * _BLOCK for start in starts}
    between = [(start, min(_BLOCK, tail - start)) for start in sorted(blocks) if head <= start < tail]
    return (*filter(lambda place: place[1], [(0, head), *between, (tail, size - tail)]),)


def first_data(handle: int) -> int | None:
    """The first byte that is not zero at the places of an open device, by its offset; None where there is none.

    Raises OSError where the device cannot be read.
    """
    # Without it the kernel may read further than it is asked to.
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)
    for start, length in places(os.lseek(handle, 0, os.SEEK_END)):
        data = os.pread(handle, length, start)
        rest = data.lstrip(b"\0")
        if rest:
            return start + len(data) - len(rest)
    return None


__all__ = ["first_data", "places"]
