# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Lists of numbers the way the kernel writes them: CPUs and NUMA nodes as ``0-3,8-11``."""

from __future__ import annotations

import typing as t


def parse_ranges(text: str) -> list[int]:
    """The numbers of a kernel list such as ``0-3,8-11``, ascending and without repetition."""
    numbers: set[int] = set()
    for part in text.strip().split(","):
        part = part.strip()
        if not part:
            continue
        first, dash, last = part.partition("-")
        low, high = int(first), int(last) if dash else int(first)
        if low > high or low < 0:
            raise ValueError(f"{part!r} is not an ascending range")
        numbers.update(range(low, high + 1))
    return sorted(numbers)


def format_ranges(numbers: t.Iterable[int]) -> str:
    """The shortest kernel list for these numbers: the reverse of :func:`parse_ranges`."""
    parts: list[str] = []
    start = end = -2
    for number in [*sorted(set(numbers)), -2]:
        if number == end + 1:
            end = number
            continue
        if start >= 0:
            parts.append(str(start) if start == end else f"{start}-{end}")
        start = end = number
    return ",".join(parts)


__all__ = ["format_ranges", "parse_ranges"]
