# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What AzCopy logged on this node in earlier runs. Every run has a directory of its own below ``log_path``."""

from __future__ import annotations

import contextlib
import os
import re
import time

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.beneath import remove_tree

#: Names as ``new_run_id`` makes them.
_RUN = re.compile(r"\d{8}T\d{6}-[0-9a-f]{6}")
#: As long as the results of jobs in the background.
_KEEP_S = 7 * 86400


def prune_logs(log_path: str, run_id: str) -> None:
    """Delete the logs of runs that wrote nothing for a week. What cannot be deleted, or is nobody's run, stays."""
    with contextlib.suppress(OSError), os.scandir(log_path) as entries:
        for entry in entries:
            ours = _RUN.fullmatch(entry.name) and entry.name != run_id and entry.is_dir(follow_symlinks=False)
            if ours and time.time() - _written(entry.path) > _KEEP_S:
                remove_tree(log_path, entry.name)


def _written(directory: str) -> float:
    """When something in it was written last, in seconds since the epoch."""
    with os.scandir(directory) as entries:
        return max([os.lstat(directory).st_mtime, *(entry.stat(follow_symlinks=False).st_mtime for entry in entries)])


__all__ = ["prune_logs"]
