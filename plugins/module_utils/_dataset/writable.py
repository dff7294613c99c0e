# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Whether a directory can be written to, or made, asked before the copy begins. Nothing is written to find out."""

from __future__ import annotations

import os

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError


def check_directory(option: str, path: str) -> str:
    """The directory of this path, or the nearest above it that is there. Raise ``bad_input`` where a file is in its way."""
    existing = os.path.normpath(path)
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    if os.path.isdir(existing):
        return existing
    raise _unsuitable(option, path, f"{existing} is no directory", "Remove that")


def check_writable(option: str, path: str) -> None:
    """Raise ``bad_input``, which names the ``option``, unless there can be a directory of this path that we may write to."""
    existing = check_directory(option, path)
    if os.access(existing, os.W_OK | os.X_OK):  # of a file system that is read-only it tells root, too
        return
    if os.statvfs(existing).f_flag & os.ST_RDONLY:
        raise _unsuitable(option, path, f"the file system of {existing} is mounted read-only", "Mount it for writing")
    raise _unsuitable(option, path, f"this user may not write to {existing}", "Change its owner or mode")


def _unsuitable(option: str, path: str, why: str, remedy: str) -> ClusterError:
    return ClusterError("bad_input", f"`{option}` is {path}, but {why}.", f"{remedy}, or choose another directory.")


__all__ = ["check_directory", "check_writable"]
