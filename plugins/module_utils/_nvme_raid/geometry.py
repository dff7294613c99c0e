# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""How a file system lies on the stripes of its array, and how it should."""

from __future__ import annotations

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Geometry:
    """How a file system lies on its stripes, in bytes; zeros where it does not know of any."""

    unit_bytes: int
    width_bytes: int
    # Of the file system. Two geometries are the same whatever their size.
    size_bytes: int = dataclasses.field(default=0, compare=False)


def parse_xfs_info(text: str) -> Geometry | None:
    """The data section's stripe unit and width. xfs_info counts both in blocks."""
    block = re.search(r"^data\s+=\s+bsize=(\d+)\s+blocks=(\d+)", text, flags=re.MULTILINE)
    stripe = re.search(r"^\s+=\s+sunit=(\d+)\s+swidth=(\d+) blks", text, flags=re.MULTILINE)
    if not block or not stripe:
        return None
    size = int(block.group(1))
    return Geometry(int(stripe.group(1)) * size, int(stripe.group(2)) * size, int(block.group(2)) * size)


def parse_dumpe2fs(text: str) -> Geometry | None:
    """The same of ``dumpe2fs -h``, which leaves the lines out where there is no stripe."""
    block = re.search(r"^Block size:\s+(\d+)", text, flags=re.MULTILINE)
    if not block:
        return None
    size = int(block.group(1))
    stride = re.search(r"^RAID stride:\s+(\d+)", text, flags=re.MULTILINE)
    width = re.search(r"^RAID stripe width:\s+(\d+)", text, flags=re.MULTILINE)
    return Geometry(int(stride.group(1)) * size if stride else 0, int(width.group(1)) * size if width else 0)


def expected_geometry(level: str, disks: int, chunk_kib: int) -> Geometry | None:
    """What mkfs must have read from the array; None where there are no stripes.

    RAID10 keeps two near copies (mdadm(8)), so half of the disks make a stripe; with an odd number of disks the pattern
    repeats after all of them (raid10_nr_stripes in the kernel).
    """
    if level not in ("raid0", "raid10") or disks < 2:
        return None
    across = disks if level == "raid0" or disks % 2 else disks // 2
    return Geometry(chunk_kib * 1024, chunk_kib * 1024 * across)


def geometry_fits(have: Geometry | None, want: Geometry | None) -> bool:
    """Whether a file system lies on its stripes as it should.

    mkfs.xfs leaves stripes out on less than 1 GiB ("small data volume, ignoring data volume stripe unit").
    """
    if want is None or have == want:
        return True
    return have == Geometry(0, 0) and have.size_bytes < 1 << 30 and have.size_bytes > 0


__all__ = ["Geometry", "expected_geometry", "geometry_fits", "parse_dumpe2fs", "parse_xfs_info"]
