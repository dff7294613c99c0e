# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is mounted on a node, as /proc/self/mountinfo tells it (proc(5))."""

from __future__ import annotations

import dataclasses
import re
import typing as t
from pathlib import Path

MOUNTINFO = "proc/self/mountinfo"


@dataclasses.dataclass(frozen=True)
class MountEntry:
    """One line of mountinfo, its octal escapes undone.

    ``number``: of the device, as ``259:3``. ``root``: what of the file system is mounted, ``/`` for all of it. ``options``: of
    this mount and of the file system, each once. ``super_options``: of the file system alone.
    """

    number: str
    root: str
    point: str
    filesystem: str
    source: str
    options: tuple[str, ...] = ()
    super_options: tuple[str, ...] = ()

    @property
    def device(self) -> str:
        """The kernel's name of the source, such as ``nvme0n1p1``, or "" where it is no device file."""
        return self.source.rpartition("/")[2] if self.source.startswith("/dev/") else ""


def parse_mountinfo(text: str) -> tuple[MountEntry, ...]:
    """All mounts, in the order in which they were made. A line that is cut off is left out."""
    return tuple(entry for entry in map(_parse_line, text.split("\n")) if entry)


def _parse_line(line: str) -> MountEntry | None:
    # Optional fields come before the dash. Spaces in names are escaped.
    left, _dash, right = line.partition(" - ")
    fields, tail = left.split(" "), right.split(" ")
    if len(fields) < 6 or len(tail) < 3:
        return None
    super_options = tuple(tail[2].split(","))
    options = tuple(dict.fromkeys([*fields[5].split(","), *super_options]))
    return MountEntry(
        fields[2], _unescape(fields[3]), _unescape(fields[4]), tail[0], _unescape(tail[1]), options, super_options
    )


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)


def read_mounts(root: Path = Path("/")) -> tuple[MountEntry, ...]:
    """The mounts of a node; none where the kernel does not tell them."""
    try:
        text = (root / MOUNTINFO).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ()
    return parse_mountinfo(text)


def mount_at(path: str, mounts: t.Iterable[MountEntry]) -> MountEntry | None:
    """What one sees at ``path``: the last mount there is the one on top."""
    found = None
    for entry in mounts:
        if entry.point == path:
            found = entry
    return found


def mount_below(path: str, mounts: t.Iterable[MountEntry]) -> str:
    """The first mount point at or below ``path``, or an empty string."""
    inside = path.rstrip("/") + "/"
    return next((entry.point for entry in mounts if entry.point == path or entry.point.startswith(inside)), "")


__all__ = ["MountEntry", "mount_at", "mount_below", "parse_mountinfo", "read_mounts"]
