# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What lies at a destination beside the files of the dataset: unfinished files and those of others, found in one walk."""

from __future__ import annotations

import contextlib
import os
import typing as t
from dataclasses import dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.in_time import allow_files
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import STATE_DIR, StatePaths
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.part_file import is_part, is_tagged


@dataclass
class Beside:
    """``unfinished`` are the paths of our ``.part`` files; ``extra_files`` counts what is neither that nor known."""

    unfinished: list[str] = field(default_factory=list)
    extra_files: int = 0


def look_beside(destination: str, known: t.Collection[str]) -> Beside:
    """Read every directory once. ``known`` are the relative names of the dataset's files; our own state is left out.

    A file of the dataset may be called as an unfinished one is, where the directory of another staging was uploaded.
    """
    found = Beside()
    for directory, directories, files in os.walk(destination):
        allow_files(1 + len(files))
        if directory == destination and STATE_DIR in directories:
            directories.remove(STATE_DIR)  # what has landed there is for its workers, whatever it is called
        relative = os.path.relpath(directory, destination)
        for name in files:
            if (name if relative == "." else f"{relative}/{name}") in known:
                continue
            path = os.path.join(directory, name)
            if is_part(name) and not _is_of_another(path, destination):
                found.unfinished.append(path)
            else:
                found.extra_files += 1
    return found


def _is_of_another(part: str, destination: str) -> bool:
    """Whether a run of another destination writes it: of one that lies inside of this one, or around it."""
    directory = os.path.dirname(part)
    while directory:
        if directory != destination:
            with contextlib.suppress(OSError):  # it is no destination
                if any(is_tagged(part, run_id) for run_id in os.listdir(StatePaths(directory).runs)):
                    return True
        directory = "" if directory == os.path.dirname(directory) else os.path.dirname(directory)
    return False


__all__ = ["Beside", "look_beside"]
