# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What has to be on disk before somebody relies on it, since power may fail at any moment.

A file is safe when its content is, and the entry in each directory that leads to it (fsync(2)). Every file and directory is asked
for by itself, many at a time so that a disk's journal writes them together: one ``syncfs`` for all would wait for what others
write, tells of no error before Linux 5.8 (syncfs(2)), and does nothing behind FUSE, where GlusterFS is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import typing as t
from concurrent.futures import ThreadPoolExecutor

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.beneath import parent_of

# They wait for the disk, not for a CPU.
_THREADS = 16
# File systems without a journal of directories refuse with EINVAL; a directory that may be entered but not read, above those
# of our own, with EACCES.
_NOT_OURS = (errno.EINVAL, errno.EACCES)
# Never waits, as a pipe in a file's place would.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def sync_directory(path: str) -> None:
    """Bring the entries of a directory to disk."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as exc:
        if exc.errno not in _NOT_OURS:
            raise
        return
    try:
        _sync_entries(descriptor)
    finally:
        os.close(descriptor)


def _sync_entries(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as exc:
        if exc.errno not in _NOT_OURS:
            raise


class DurableTree:
    """The files below one directory that others write to: no link is followed on the way to them (``beneath``)."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._safe = {""}  # directories whose own entry is on disk

    def sync(self, names: t.Collection[str]) -> None:
        """Bring files, by their names below the root, and all that leads to them to disk. Raises OSError where that fails."""
        files: dict[str, list[str]] = {}
        for name in names:
            files.setdefault(name.rpartition("/")[0], []).append(name)
        new = {directory for name in files for directory in _upwards(name)} - self._safe
        # A directory's entries are read through any name in it.
        entries = {**{name.rpartition("/")[0]: name for name in new}, **{name: some[0] for name, some in files.items()}}
        with ThreadPoolExecutor(max_workers=_THREADS) as pool:
            list(pool.map(self._sync_files, [part for some in files.values() for part in _parts(some)]))
            list(pool.map(self._sync_entries, entries.values()))
        self._safe |= new

    def _sync_files(self, names: t.Sequence[str]) -> None:
        """Those of one directory."""
        with parent_of(self._root, names[0]) as (parent, _last):
            for name in names:
                descriptor = os.open(name.rpartition("/")[2], _FILE, dir_fd=parent)
                try:
                    os.fsync(descriptor)
                finally:
                    with contextlib.suppress(OSError):  # nothing was written by it
                        os.close(descriptor)

    def _sync_entries(self, name: str) -> None:
        with parent_of(self._root, name) as (parent, _last):
            _sync_entries(parent)


def _parts(names: list[str]) -> t.Iterator[list[str]]:
    """One part for each thread."""
    size = -(-len(names) // _THREADS)
    return (names[start : start + size] for start in range(0, len(names), size))


def _upwards(directory: str) -> t.Iterator[str]:
    while directory:
        yield directory
        directory = directory.rpartition("/")[0]


__all__ = ["DurableTree", "sync_directory"]
