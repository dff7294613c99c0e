# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Where raw bytes land: one directory per destination and node below the landing path, one per batch in it.

The landing path may be a whole disk that others use too, so nothing is deleted there but what these names say is ours.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import StatePaths

_PREFIX = "dataset_staging-"
#: ``<run>-<batch>``, as ``new_run_id`` and ``plan_run`` name them.
_BATCH = re.compile(r"\d{8}T\d{6}-[0-9a-f]{6}-r\d{4,}b\d{2,}")


def landing_directory(landing_path: str, destination: str, host: str) -> str:
    """This host's own directory for one destination."""
    # Not by rank: --limit changes the ranks, and what the former rank left would stay.
    return os.path.join(landing_path, f"{_PREFIX}{_digest(os.path.normpath(destination), 16)}-{_digest(host, 8)}")


def landing_of(landing_path: str, destination: str, host: str) -> str:
    """Where this host's raw bytes land: below the landing path, "" for inside the destination."""
    if landing_path:
        return landing_directory(landing_path, destination, host)
    return os.path.join(StatePaths(destination).root, "landing", host)


def landing_directories(landing_path: str, destination: str) -> list[str]:
    """The own directories of all hosts for one destination that are there."""
    ours = re.compile(rf"{_PREFIX}{_digest(os.path.normpath(destination), 16)}-[0-9a-f]{{8}}")
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(landing_path) as entries:
        return sorted(e.path for e in entries if ours.fullmatch(e.name) and e.is_dir(follow_symlinks=False))
    return []


def sweep_landing(landing: str, keep_run: str) -> None:
    """Remove the batches that earlier runs left in an own directory."""
    with contextlib.suppress(FileNotFoundError), os.scandir(landing) as entries:
        for entry in entries:
            ours = _BATCH.fullmatch(entry.name) and not entry.name.startswith(f"{keep_run}-")
            if ours and entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)


def leave_landing(landing: str) -> None:
    """Remove an own directory that is empty."""
    with contextlib.suppress(OSError):  # a batch is in it, or none ever was
        os.rmdir(landing)


def words_for(landing: str, destination: str) -> str:
    """What a message calls the place of an own directory, which is in the destination where there is no landing path."""
    inside = landing.startswith(os.path.join(StatePaths(destination).root, ""))
    return "destination" if inside else "`landing_path`"


def _digest(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


__all__ = ["landing_directories", "landing_directory", "landing_of", "leave_landing", "sweep_landing", "words_for"]
