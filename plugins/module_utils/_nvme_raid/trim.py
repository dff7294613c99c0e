# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Tells disks which blocks of a mounted file system are free, as fstrim(8) does: flash that is never told so writes more slowly."""

from __future__ import annotations

import array
import errno
import fcntl
import os

# linux/fs.h: struct fstrim_range, three 64-bit words in bytes: start, length, and the shortest extent that counts.
_FITRIM = 0xC0185879
_TO_THE_END = (1 << 64) - 1


def trim(path: str) -> int | None:
    """How many bytes of free space the disks were told of; None where they cannot be told. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    words = array.array("Q", [0, _TO_THE_END, 0])
    try:
        fcntl.ioctl(handle, _FITRIM, words)
    except OSError as exc:
        if exc.errno not in (errno.EOPNOTSUPP, errno.ENOTTY):
            raise
        return None
    finally:
        os.close(handle)
    return words[1]


__all__ = ["trim"]
