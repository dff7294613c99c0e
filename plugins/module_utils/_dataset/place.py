# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Whether the file system that a worker began on is still where it was.

Who unmounts it lazily (``umount -l``), or whatever does so for him, leaves an empty mount point: nothing there can be read, and
what is written there fills the root disk and is hidden by the next mount.
"""

from __future__ import annotations

import os

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import Run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError


class Place:
    """The destination of a run, as it is now."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._device = _device(run.destination)  # None where it is gone already

    def gone(self) -> ClusterError | None:
        """``not_mounted`` where another file system is in the place of the one that was there, else None.

        None also where that cannot be told, as while a server does not answer: the errors of who reads and writes there are about that.
        """
        try:
            if _device(self._run.directory) is not None:
                return None
            existing = self._run.destination
            while (device := _device(existing)) is None:
                existing = os.path.dirname(existing)
        except OSError:
            return None
        # Where the dataset was removed, and the file system is the same, its workers are superseded.
        return None if self._device in (None, device) else _unmounted(self._run.destination)

    def check(self) -> None:
        """Raise that error. To be called before anything is made below the destination."""
        error = self.gone()
        if error is not None:
            raise error


def _device(path: str) -> int | None:
    """None where nothing is."""
    try:
        return os.stat(path).st_dev
    except (FileNotFoundError, NotADirectoryError):
        return None


def _unmounted(destination: str) -> ClusterError:
    return ClusterError(
        "not_mounted",
        f"The file system of {destination} was unmounted while this node copied: another one is in its place.",
        "Mount it again, and look who unmounted it (`journalctl`). Then run again: only what is missing will be copied.",
    )


__all__ = ["Place"]
