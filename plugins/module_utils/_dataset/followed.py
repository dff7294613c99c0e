# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Whether a play follows the current run of a destination, so that another one does not take it away from it.

Who follows a run touches a file in it whenever it looks at the progress, about once a second. The workers alone say nothing: they go
on when their play is killed, and then the next play is welcome to begin anew.
"""

from __future__ import annotations

import contextlib
import os
import time

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import (
    Run,
    current_run_id,
    read_progress,
    read_run,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import StatePaths
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

#: Longer than between two looks, and than NFS keeps a file's attributes at least (`acregmin`, 3 s).
_PATIENCE_S = 6.0
_LOOK_S = 0.2


def mark_of(destination: str, run_id: str) -> str:
    """The file that is touched."""
    return os.path.join(StatePaths(destination).run(run_id), "followed")


def show_start(destination: str, run_id: str) -> None:
    """Touch the mark as a worker starts: until all of them have, nobody follows the run."""
    mark = mark_of(destination, run_id)
    with contextlib.suppress(OSError):
        os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
        os.utime(mark, follow_symlinks=False)


def refuse_if_followed(destination: str) -> None:
    """Raise ``busy`` while a play follows the current run. Takes six seconds where a run was left behind, else no time.

    The file's time is compared with itself only, so that clocks need not agree.
    """
    run_id = current_run_id(destination)
    run = read_run(destination, run_id) if run_id else None
    if run is None:
        return
    mark = mark_of(destination, run.id)
    before, began = _touched(mark), time.monotonic()
    while not _ended(run) and time.monotonic() - began < _PATIENCE_S:
        time.sleep(_LOOK_S)
        if _touched(mark) != before:
            raise ClusterError(
                "busy",
                f"Another play copies to {destination} at the moment (run {run.id}).",
                "Wait until it has ended, then run again: that copies only what is missing.",
            )


def _touched(mark: str) -> int:
    try:
        return os.stat(mark).st_mtime_ns
    except OSError:
        return 0


def _ended(run: Run) -> bool:
    """Whether every rank that began has said that it ended. A run that none has begun may be about to."""
    try:
        ranks = read_progress(run)
    except FileNotFoundError:
        return True
    return bool(ranks) and all(rank.ended for rank in ranks)


__all__ = ["mark_of", "refuse_if_followed", "show_start"]
