# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""One run at a time: the unit at boot and a play may meet."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

_LOCK = "/run/lock/nvme_raid.lock"
_PATIENCE_S = 120


@contextlib.contextmanager
def locked() -> t.Iterator[None]:
    """Wait for the others, at most two minutes. Where there is no place for the lock, as in a container, nobody is waited for."""
    if not os.path.isdir(os.path.dirname(_LOCK)):
        yield
        return
    with open(_LOCK, "w", encoding="utf-8") as handle:
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as exc:
                if time.monotonic() > until:
                    raise ClusterError(
                        "locked", "Another nvme_raid works on this node.", "Wait for it, and run again."
                    ) from exc
                time.sleep(0.5)
        yield


__all__ = ["locked"]
