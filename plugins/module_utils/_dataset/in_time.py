# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""How long one node may look at a destination: by how many files it looks at, and how many bytes it reads of them.

The rates are floors, far below what a file system that works gives to a node that is one of many, so that only one that hangs is late.
"""

from __future__ import annotations

import socket
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.part_file import disk_errors
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.deadline import OverdueError, allow, run_within

#: For everything that takes its time whatever the number of files. A server of NFS that starts again makes all wait 90 s.
_START_S = 600.0
_FILE_S = 0.005
_BYTES_PER_SECOND = 20e6


def allow_files(count: int) -> None:
    """So many files are about to be looked at."""
    allow(count * _FILE_S)


def allow_bytes(count: int) -> None:
    """So many bytes are about to be read."""
    allow(count / _BYTES_PER_SECOND)


def look_within(destination: str, timeout_s: float, look: t.Callable[[], dict[str, t.Any]]) -> dict[str, t.Any]:
    """What ``look`` returns, which works below ``destination``. 0 for ``timeout_s``: as long as its work may take.

    Raises ClusterError: ``timeout`` where it takes longer, what ``look`` raises, and what its OSErrors mean.
    """

    def work() -> dict[str, t.Any]:
        with disk_errors(destination):
            return look()

    try:
        return run_within(work, timeout_s=timeout_s, start_s=_START_S)
    except OverdueError as late:
        ended = "was killed" if late.killed else "cannot even be killed"
        raise ClusterError(
            "timeout",
            f"{socket.gethostname()} was not done with {destination} within {late.limit_s:.0f} s: the file system hangs, or is very slow. "
            f"Process {late.pid}, which worked there, {ended}.",
            f"Look at `dmesg` and `findmnt -T {destination}` there, and at the file system's servers. Then run again"
            f"{', or raise `timeout_s`' if timeout_s else ''}.",
        ) from late


__all__ = ["allow_bytes", "allow_files", "look_within"]
