# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The directory below the mount: while nothing is mounted on it, nothing may write into it and fill the system's own disk."""

from __future__ import annotations

import array
import errno
import fcntl
import os

# linux/fs.h, on processors with 64 bits. The kernel reads and writes an int, whatever the size in the number says.
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
_IMMUTABLE = 0x10
# File systems without such flags (NFS, overlays, an old tmpfs), and containers, which may not set it.
_CANNOT = {errno.ENOTTY, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EACCES, errno.EROFS}


def is_immutable(path: str) -> bool:
    """Whether the directory takes nothing new; False also where its file system knows no such flag. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        flags = _flags(handle)
    finally:
        os.close(handle)
    return flags is not None and bool(flags & _IMMUTABLE)


def protect(path: str) -> None:
    """Make the directory where it is missing, and let nothing be written into it while nothing is mounted on it.

    One with files in it stays as it is: they could not be moved away any more. Raises OSError where it cannot be made.
    """
    os.makedirs(path, mode=0o755, exist_ok=True)
    if not os.path.ismount(path) and not os.listdir(path):
        _set_immutable(path, True)


def release(path: str) -> None:
    """Let the directory be written to, and removed, again."""
    if os.path.isdir(path) and not os.path.ismount(path):
        _set_immutable(path, False)


def _set_immutable(path: str, immutable: bool) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        flags = _flags(handle)
        if flags is None or bool(flags & _IMMUTABLE) == immutable:
            return
        fcntl.ioctl(handle, _SET_FLAGS, array.array("I", [flags ^ _IMMUTABLE, 0]))
    except OSError as exc:
        if exc.errno not in _CANNOT:
            raise
    finally:
        os.close(handle)


def _flags(handle: int) -> int | None:
    """The flags of an open file as chattr(1) knows them; None where its file system has none."""
    words = array.array("I", [0, 0])
    try:
        fcntl.ioctl(handle, _GET_FLAGS, words)
    except OSError as exc:
        if exc.errno not in _CANNOT:
            raise
        return None
    return words[0]


__all__ = ["is_immutable", "protect", "release"]
