# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""How many names a dataset may have: all of them are in memory while it is planned.

A listing that is too large is refused while it is read. Else the kernel would end the module, with no word about why.
"""

from __future__ import annotations

import threading

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

#: Beyond this a plan takes hours, whatever the memory: 5 times what is measured.
MOST_NAMES = 50_000_000
#: More than the peak of a plan for names of some 45 characters, which is 150 beside 0.1 GB.
BYTES_PER_NAME = 200
_GB = 10**9


class Capacity:
    """Counts the names of a listing. ``memory_bytes`` is what they may use, 0 where that is not known."""

    def __init__(self, memory_bytes: int, most: int = MOST_NAMES) -> None:
        self._memory_bytes = memory_bytes
        self._most = min(most, memory_bytes // BYTES_PER_NAME) if memory_bytes else most
        self._for_memory = self._most < most
        self._names = 0
        self._lock = threading.Lock()

    def add(self, names: int) -> None:
        """So many more; raises ClusterError where they become too many."""
        with self._lock:
            self._names += names
            if self._names <= self._most:
                return
        if self._for_memory:
            raise ClusterError(
                "bad_input",
                f"The sources hold more than {self._most} names. To plan them takes about {BYTES_PER_NAME} bytes of memory each, "
                f"and {self._memory_bytes / _GB:.1f} GB are free for them here.",
                "Plan on a node with more memory, or stage one prefix after the other, each to a destination of its own.",
            )
        raise ClusterError(
            "bad_input",
            f"The sources hold more than {self._most} names, which is the most that one dataset may have.",
            "Pack small files into larger ones, or stage one prefix after the other, each to a destination of its own.",
        )


def free_memory_bytes(path: str = "/proc/meminfo") -> int:
    """What the kernel could give without swapping (MemAvailable, proc(5)); 0 where it does not say."""
    try:
        with open(path, encoding="ascii") as stream:
            for line in stream:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return 0


__all__ = ["BYTES_PER_NAME", "MOST_NAMES", "Capacity", "free_memory_bytes"]
