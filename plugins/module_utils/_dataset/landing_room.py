# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""How many raw bytes may wait on a node's landing disk, over all batches that are copied there at once.

Where files are inflated slower than they arrive, the next download waits until there is room.
"""

from __future__ import annotations

import math
import threading
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.landing import words_for
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.room import free_bytes

_GIB = 1 << 30
_LOOK_S = 0.5


class LandingRoom:
    """The room below one directory, which has to be there when it is used. ``limit_bytes`` 0 is what the disk has."""

    def __init__(
        self, directory: str, limit_bytes: int = 0, free: t.Callable[[str], int] = free_bytes, look_s: float = _LOOK_S
    ) -> None:
        self._directory = directory
        self._limit = limit_bytes
        self._free = free
        self._look_s = look_s
        self._taken = 0
        self._changed = threading.Condition()

    def take(self, blobs: t.Sequence[Blob], should_stop: t.Callable[[], bool]) -> Portion:
        """Wait until some of the blobs may land; the portion says how many of the first ones, 0 when told to stop.

        Raises ClusterError when the first alone is too large, ``disk_full`` for the disk and ``bad_input`` for the limit.
        """
        with self._changed:
            while not should_stop():
                free = self._free(self._directory)
                room = min(self._limit, free) if self._limit else free
                # Part of what others have taken has landed and is missing from `free` already: rather too little than too much.
                count, size = _first(blobs, room - self._taken)
                if count == len(blobs) or (count and (not self._taken or 2 * size >= room)):
                    self._taken += size
                    return Portion(self, count, size)
                if not self._taken:
                    raise self._too_large(blobs[0], free)
                self._changed.wait(self._look_s)
        return Portion(self, 0, 0)

    def give(self, size: int) -> None:
        """Room that a raw file has left."""
        with self._changed:
            self._taken -= size
            self._changed.notify_all()

    def _too_large(self, blob: Blob, free: int) -> ClusterError:
        if self._limit and self._limit < blob.size:
            return ClusterError(
                "bad_input",
                f"{blob.name!r} has {blob.size} bytes, and {self._limit / _GIB:g} GiB may land at {self._directory}.",
                f"Set `landing_limit_gib` to {blob.size / _GIB:.2f} or more, or to 0 for what the disk has.",
            )
        return ClusterError(
            "disk_full",
            f"{blob.name!r} has {blob.size} bytes, and {free} bytes are free at {self._directory}, where it has to land.",
            "Free space there, or choose a larger disk as `landing_path`, then run again.",
        )


class Portion:
    """The first ``count`` of some blobs, which have room to land. What is still taken is given back at the end."""

    def __init__(self, room: LandingRoom, count: int, size: int) -> None:
        self._room = room
        self._left = size
        self.count = count

    def __enter__(self) -> Portion:
        return self

    def __exit__(self, *_error: object) -> None:
        self.give(self._left)

    def give(self, size: int) -> None:
        """A raw file of so many bytes is gone."""
        self._left -= size
        self._room.give(size)


def full_disk(landing: str, log_dir: str, destination: str) -> ClusterError:
    """``disk_full`` of AzCopy, which writes raw bytes, and its logs and plans: about the one of the two that has less space."""
    if log_dir and _free(log_dir) < _free(landing):
        return ClusterError(
            "disk_full",
            f"No space is left at {log_dir}, where AzCopy keeps its logs and plans.",
            "Free space there, or choose a directory on another disk as `log_path`. Then run again: only what is missing will be copied.",
        )
    what = words_for(landing, destination)
    return ClusterError(
        "disk_full",
        f"No space is left at {landing}, where raw bytes wait to be checked{'' if what == 'destination' else f' ({what})'}.",
        "Free space there, or choose a larger disk as `landing_path`. Then run again: only what is missing will be copied.",
    )


def _free(directory: str) -> float:
    try:
        return free_bytes(directory)
    except OSError:
        return math.inf


def _first(blobs: t.Sequence[Blob], room: int) -> tuple[int, int]:
    """How many of the first blobs fit, and their bytes."""
    size = 0
    for count, blob in enumerate(blobs):
        if size + blob.size > room:
            return count, size
        size += blob.size
    return len(blobs), size


__all__ = ["LandingRoom", "Portion", "full_disk"]
