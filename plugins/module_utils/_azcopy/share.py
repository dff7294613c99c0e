# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The name of one share of a copy, and a directory that it has for itself while it runs."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import stat
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.argv import CopyRequest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.part_file import disk_errors
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.node_name import node_digest


def share_id(request: CopyRequest) -> str:
    """A stable name for one share of one copy, so that several shares can use one destination."""
    what = json.dumps([request.source, request.destination, request.include_pattern, request.file_list])
    return hashlib.sha256(what.encode()).hexdigest()[:16]


@contextlib.contextmanager
def private_directory(base: str, share: str) -> t.Iterator[str]:
    """A directory that only this user and this run use, below ``base`` ('' is one per user under /var/tmp).

    Nodes that share ``base`` have one each: plans in it would be taken for those of an AzCopy that was killed here.
    """
    base = base or f"/var/tmp/azcopy-{os.getuid()}"  # noqa: S108 - made with mode 0700, its owner is checked
    path = os.path.join(base, node_digest(share))
    with disk_errors(path, "log_dir"):
        # One after the other: makedirs has its mode for the last directory only.
        os.makedirs(base, mode=0o700, exist_ok=True)
        os.makedirs(path, mode=0o700, exist_ok=True)
        status = os.lstat(base)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise ClusterError("bad_input", f"`{base}` belongs to another user.", "Set log_dir to a directory of your own.")
    with open(os.path.join(path, "lock"), "w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as exc:
            raise ClusterError(
                "bad_input", "The same copy is already running on this node.", "Wait for it, or stop it first."
            ) from exc
        yield path


__all__ = ["private_directory", "share_id"]
