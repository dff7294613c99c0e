# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Workers that were killed: on which hosts, and what they left there."""

from __future__ import annotations

import contextlib
import os
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.landing import (
    landing_of,
    leave_landing,
    sweep_landing,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import (
    RankProgress,
    Run,
    read_progress,
    read_run,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import StatePaths, check_state

#: A worker shows a sign of life every two seconds, also while it ends.
_DEAD_AFTER_S = 6.0
_LOOK_S = 0.2


def killed_hosts(destination: str) -> list[str]:
    """Hosts whose worker never said that it ended, in any of the runs that are kept. It may still be at work."""
    return sorted({rank.host for _run, rank in _unended(destination)})


def sweep_killed(destination: str, landing_path: str, host: str) -> bool:
    """Remove what workers that were killed on this host left below the landing path; True when there was something.

    Nothing is touched while a worker of this host shows a sign of life. Takes six seconds to be sure of that.
    """
    check_state(destination)
    beats = _beats(destination, host)
    began = time.monotonic()
    while beats and time.monotonic() - began < _DEAD_AFTER_S:
        time.sleep(_LOOK_S)
        if _beats(destination, host) != beats:  # a sign of life, or a worker that has just begun
            return False
    landing = landing_of(landing_path, destination, host)
    left = os.path.isdir(landing)
    sweep_landing(landing, "")
    leave_landing(landing)
    for run, rank in _unended(destination):
        if rank.host == host:
            rank.state = "failed"
            rank.error = {
                "kind": "worker_lost",
                "message": "The worker was killed.",
                "remedy": "Nothing to do: what it left is removed.",
            }
            with contextlib.suppress(OSError):  # the dataset is whole, and the next run looks again
                rank.write(run)
    return left


def _beats(destination: str, host: str) -> dict[str, int]:
    return {run.id: rank.beat for run, rank in _unended(destination) if rank.host == host}


def _unended(destination: str) -> t.Iterator[tuple[Run, RankProgress]]:
    runs = StatePaths(destination).runs
    for run_id in os.listdir(runs) if os.path.isdir(runs) else []:
        run = read_run(destination, run_id)
        if run is not None:
            with contextlib.suppress(FileNotFoundError):
                yield from ((run, rank) for rank in read_progress(run) if not rank.ended)


__all__ = ["killed_hosts", "sweep_killed"]
