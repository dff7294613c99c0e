# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Directories of our own in places that others may write to, and what is read and written in them.

What lies in a directory is as trustworthy as whoever may write to it. Where root keeps something beside the data of users, the
directory has to be root's, and no link: else its owner decides what root reads, writes and deletes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import stat
import uuid

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def check_own_directory(path: str) -> None:
    """Raise ClusterError (``bad_input``) where another user owns the directory or may write to it, or a link is in its place.

    One that is missing is right. Whoever is not root believes what root owns, too.
    """
    with contextlib.suppress(FileNotFoundError):
        handle = _open(path)
        try:
            found = os.fstat(handle)
            _check_owner(path, handle, found)
            # The group of ours is who we let in by our own umask; that of a shared directory is anybody of a project.
            shared = stat.S_IWOTH | (stat.S_IWGRP if found.st_gid not in (0, os.getegid()) else 0)
            if found.st_mode & shared:
                raise ClusterError(
                    "bad_input",
                    f"Others may write to `{path}`, so that its contents may be anyone's.",
                    f"Look at what is in it, then `chmod go-w {path}`; or delete it.",
                )
        finally:
            os.close(handle)


def make_own_directory(path: str) -> None:
    """Make a directory that no other user reads or writes, or take one that is ours. Its parents are the operator's choice.

    Raises OSError, and ClusterError (``bad_input``) where it is somebody else's, or a link.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    handle = _open(path)
    try:
        found = os.fstat(handle)
        _check_owner(path, handle, found)
        if stat.S_IMODE(found.st_mode) & 0o077:
            os.fchmod(handle, 0o700)
    finally:
        os.close(handle)


def _open(path: str) -> int:
    try:
        return os.open(path, _DIRECTORY)
    except OSError as exc:
        if exc.errno in (errno.ELOOP, errno.ENOTDIR) and os.path.islink(path):
            raise ClusterError(
                "bad_input",
                f"`{path}` is a symbolic link, where a directory of our own belongs: it may lead anywhere.",
                "Look who made it, and remove it.",
            ) from exc
        if exc.errno == errno.ENOTDIR and os.path.lexists(path) and not os.path.isdir(path):
            raise ClusterError(
                "bad_input",
                f"`{path}` is no directory, where one of our own belongs.",
                "Look at what it is, then rename or remove it.",
            ) from exc
        raise


def _check_owner(path: str, directory: int, found: os.stat_result) -> None:
    if found.st_uid in (0, os.geteuid()) or found.st_uid == _our_uid(directory):
        return
    raise ClusterError(
        "bad_input",
        f"`{path}` belongs to {_name(found.st_uid)}, not to {_name(os.geteuid())}: what is in it may be anything.",
        f"Run this as {_name(found.st_uid)}, or look at what is in it, and `chown -R` it or delete it.",
    )


def _our_uid(directory: int) -> int | None:
    """Who owns what we make there: a server of NFS makes root's files those of somebody else. None where we may not write."""
    name = f".owner-{uuid.uuid4().hex}"
    try:
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
    except OSError:
        return None
    try:
        return os.fstat(handle).st_uid
    finally:
        os.close(handle)
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=directory)


def _name(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (user {uid})"
    except KeyError:
        return f"user {uid}"


def regular(path: str, flags: int) -> int:
    """An ``opener`` for ``open``: only regular files, never through a link at the last component, and nobody keeps us waiting.

    Raises OSError, whose text names the path.
    """
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as exc:
        if exc.errno == errno.ELOOP and os.path.islink(path):
            raise OSError(errno.ELOOP, f"`{path}` is a symbolic link", path) from exc
        raise
    kind = os.fstat(handle).st_mode
    if stat.S_ISREG(kind):
        return handle
    os.close(handle)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, f"`{path}` is a directory", path)
    raise OSError(errno.EINVAL, f"`{path}` is no regular file", path)


__all__ = ["check_own_directory", "make_own_directory", "regular"]
