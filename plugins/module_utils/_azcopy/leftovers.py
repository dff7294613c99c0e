# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What killed AzCopy jobs leave behind: temporary files at the destination, and plans. Only what is ours is removed."""

from __future__ import annotations

import os
import shutil
import typing as t

TEMPORARY_PREFIX = ".azDownload-"


def jobs_of(plan_dir: str) -> set[str]:
    """Ids of jobs that left a plan in our own plan directory: their process is gone, their leftovers are ours."""
    try:
        return {name.split("--")[0] for name in os.listdir(plan_dir) if ".steV" in name}
    except OSError:
        return set()


def remove_plans(plan_dir: str, job_id: str) -> None:
    try:
        names = os.listdir(plan_dir) if job_id else []
    except OSError:
        return
    for name in names:
        if name.startswith(job_id):
            path = os.path.join(plan_dir, name)
            shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else _unlink(path)


def _unlink(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


def sweep_leftovers(directory: str, job_ids: t.Collection[str] | None = None) -> int:
    """Remove AzCopy's temporary files under ``directory`` and return how many.

    With ``job_ids`` only those jobs' files. None removes all of them, for a directory into which no other job copies.
    """
    if job_ids is not None and not job_ids:
        return 0
    prefixes = tuple(f"{TEMPORARY_PREFIX}{job}" for job in job_ids) if job_ids is not None else (TEMPORARY_PREFIX,)
    return sum(_unlink(os.path.join(folder, name)) for folder, name in list(find_files(directory, prefixes)))


def find_files(directory: str, prefixes: tuple[str, ...]) -> t.Iterator[tuple[str, str]]:
    """Folder and name of every file below ``directory`` whose name begins with one of the prefixes."""
    for folder, _folders, names in os.walk(directory):
        yield from ((folder, name) for name in names if name.startswith(prefixes))


__all__ = ["TEMPORARY_PREFIX", "find_files", "jobs_of", "remove_plans", "sweep_leftovers"]
