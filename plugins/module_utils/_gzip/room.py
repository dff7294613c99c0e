# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The room that work has here: CPUs and free space."""

from __future__ import annotations

import os
import shutil

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

#: Inflated bytes per byte of gzip, where only inflating would tell: the low end of what zlib's authors call typical, 2:1 to 5:1
#: (zlib.net/zlib_tech.html).
ASSUMED_RATIO = 2


def available_cpus() -> int:
    """CPUs that this process may use (not those of the machine)."""
    return len(os.sched_getaffinity(0)) or 1


def free_bytes(directory: str) -> int:
    """Free space for ordinary users on the filesystem of ``directory``."""
    return shutil.disk_usage(directory).free


def assumed_bytes(raw_bytes: int, gzip_bytes: int) -> int:
    """What ``raw_bytes`` at a source will take on disk, when ``gzip_bytes`` of them are inflated at the assumed ratio."""
    return raw_bytes + (ASSUMED_RATIO - 1) * gzip_bytes


def check_room(destination: str, raw_bytes: int, gzip_bytes: int) -> list[str]:
    """Compare what is to be brought with the free space at ``destination``, which need not exist yet.

    ``gzip_bytes`` of the ``raw_bytes`` will be inflated. Raises ClusterError (``disk_full``) where not even the raw bytes fit. Where
    only a typical ratio says that there is too little room, nobody knows: that is returned as a note.
    """
    existing = destination
    while not os.path.isdir(existing):
        existing = os.path.dirname(existing) or "/"
    free = free_bytes(existing)
    if raw_bytes > free:
        raise ClusterError(
            "disk_full",
            f"{raw_bytes} bytes are missing at {destination}, where only {free} bytes are free.",
            "Free space, or choose a larger file system.",
        )
    needed = assumed_bytes(raw_bytes, gzip_bytes)
    if needed <= free:
        return []
    return [
        f"{destination} may become full: {free} bytes are free there, and about {needed} are needed, assuming that {gzip_bytes} bytes "
        f"of gzip inflate to {ASSUMED_RATIO} times as many. Free space, or choose a larger file system, unless your data is denser."
    ]


__all__ = ["ASSUMED_RATIO", "assumed_bytes", "available_cpus", "check_room", "free_bytes"]
