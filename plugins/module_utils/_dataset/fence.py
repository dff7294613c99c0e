# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Which run may give files their final names, and what keeps an earlier one from it.

A worker may hang for hours in a disk or a mount and then go on where it was, with an older version of a file. Every file gets its
final name by one rename of an unfinished file beside it, whose name says of which run it is. A worker makes that file, then looks
whether its run is still the current one, then renames it. A newer run becomes the current one, then takes the unfinished files of
all others away, then looks at what is at the destination and says what it found. So the old worker's file is either gone before
that, and the rename fails, since it is one step on every file system; or it was made later, and its worker sees the newer run.

What remains is a shared file system whose client answers from memory: GlusterFS does for a second, NFS for ``acdirmax`` (a minute).
A worker that makes its file after the others were taken away, and asks within that time after the newer run began, goes on.
"""

from __future__ import annotations

import contextlib
import os
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.beside import Beside, look_beside
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.place import Place
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import Run, current_run_id
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import StatePaths
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.part_file import Permit, is_tagged

#: A shared file system may hide a file for a moment: only what is missing at so many looks in a row has been removed.
_MISSING_LOOKS = 10
_LOOK_S = 1.0


class Standing:
    """Whether a run is still the current one, for a worker that looks at each heartbeat."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._missing = 0

    def is_lost(self) -> bool:
        """True when a newer run took over, or the dataset was removed. Raises OSError where the file system fails."""
        current = current_run_id(self._run.destination)
        if current == self._run.id and os.path.isdir(self._run.directory):
            self._missing = 0
            return False
        if current is not None and current != self._run.id:
            return True
        self._missing += 1
        return self._missing >= _MISSING_LOOKS


def superseded() -> ClusterError:
    """The error of a worker whose run is not the current one any more."""
    return ClusterError("superseded", "A newer run took over, or the dataset was removed.", "Nothing to do.")


def permit_of(run: Run, place: Place) -> Permit:
    """What the files of a run are finished with.

    It ends when another run is the current one, the dataset was removed, or its file system was unmounted.
    """

    def check() -> None:
        current = current_run_id(run.destination)
        if current is None:  # hidden for a moment it is no newer one
            place.check()
        if current not in (None, run.id) or (current is None and _is_removed(run.destination)):
            raise superseded()

    return Permit(run.id, check)


def _is_removed(destination: str) -> bool:
    """Whether all of the state is gone, and not only hidden for a moment. Raises OSError where the file system fails."""
    for _look in range(_MISSING_LOOKS):
        with contextlib.suppress(FileNotFoundError):
            os.lstat(StatePaths(destination).root)
            return False
        time.sleep(_LOOK_S)
    return True


def take_unfinished(destination: str, run_id: str, known: t.Collection[str]) -> Beside:
    """Remove the unfinished files of all runs of this destination but this one; returns what is left beside the dataset.

    That are the unfinished files of the run, and how many files others have there. ``known`` are the names of the dataset's files.
    """
    beside = look_beside(destination, known)
    own = [path for path in beside.unfinished if is_tagged(path, run_id)]
    for path in set(beside.unfinished).difference(own):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    return Beside(own, beside.extra_files)


__all__ = ["Standing", "permit_of", "superseded", "take_unfinished"]
