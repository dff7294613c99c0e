# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Files that stand under their final names only when they are whole.

A file is written as ``.part`` beside its final name and renamed at the end, so a final name never holds wrong or half data.
What a killed process leaves behind carries a name that only this file makes, and can be swept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import itertools
import os
import re
import socket
import stat
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.beneath import parent_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.ownership import Ownership

AS_EVER = Ownership()
_COUNTER = itertools.count()
_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
# What the path, its owner and mode, or the kind of its file system is the reason of. What a disk, NFS, or the client of a parallel
# file system may say of its own trouble has no end: BeeGFS has ECOMM, and EINTR, EAGAIN, EBUSY and ENOMEM pass, too.
_FINAL_ERRNOS = (
    errno.EACCES,
    errno.EEXIST,
    errno.EFBIG,
    errno.EILSEQ,
    errno.EINVAL,
    errno.EISDIR,
    errno.ELOOP,
    errno.EMLINK,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOEXEC,
    errno.ENOSYS,
    errno.ENOTDIR,
    errno.ENOTEMPTY,
    errno.EOPNOTSUPP,
    errno.EPERM,
    errno.EROFS,
    errno.EXDEV,
)
_DIGITS = 12
# What ``_part_name`` makes: other people's hidden .part files are not ours to sweep.
_OUR_PART = re.compile(r"\.[0-9a-f]{12}\..*-\d+-\d+\.part")


def _always() -> None:
    """Nobody else has a say."""


@dataclasses.dataclass(frozen=True)
class Permit:
    """Who writes files, and whether it still may.

    ``tag`` stands in the names of unfinished files, so that others know whose they are. ``check`` is called when a file is about
    to get its final name, and raises ClusterError where it may not any more.
    """

    tag: str = ""
    check: t.Callable[[], None] = _always


ANYBODY = Permit()


def _part_name(name: str, tag: str = "") -> str:
    """A name beside ``name`` that no other node, process or thread uses; short, so that long names stay possible."""
    digest = hashlib.md5(os.fsencode(name), usedforsecurity=False).hexdigest()[:_DIGITS]
    return f".{digest}.{tag + '.' if tag else ''}{socket.gethostname()}-{os.getpid()}-{next(_COUNTER)}.part"


def is_part(name: str) -> bool:
    """Whether a file's name is one that only this file makes."""
    return bool(_OUR_PART.fullmatch(name))


def is_tagged(part: str, tag: str) -> bool:
    """Whether who wrote this ``.part`` file had this tag."""
    return bool(tag) and os.path.basename(part)[_DIGITS + 2 :].startswith(f"{tag}.")


def make_directories(path: str) -> None:
    """Make the directory and its missing parents. As the files in it they are open to all readers, whatever the umask."""
    parent = os.path.dirname(path)
    if parent != path and not os.path.exists(parent):
        make_directories(parent)
    try:
        os.mkdir(path, 0o755)
    except OSError:  # another thread or rank was quicker
        if not os.path.isdir(path):
            raise
    else:
        os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) | 0o755)  # noqa: S103 - keeps an inherited set-group-ID


@contextlib.contextmanager
def parent_of_file(
    root: str, dst: str, ownership: Ownership = AS_EVER, permit: Permit = ANYBODY
) -> t.Iterator[tuple[int, str]]:
    """The descriptor of a file's directory, made where it is missing, and the file's name in it.

    Who has a tag for his files has made the root before: where it is missing its file system is gone, and it is not made.
    No component below ``root`` may be a link (``_host.beneath``); without a root the directory of the file is its root.
    """
    root = root or os.path.dirname(dst)
    with contextlib.ExitStack() as stack:
        with disk_errors(dst):
            if not permit.tag and not os.path.isdir(root):
                make_directories(root)
            name = os.path.relpath(dst, root)
            parent = stack.enter_context(parent_of(root, name, make=True, on_made=ownership.give_to_directory))
        yield parent


def is_final(error: OSError) -> bool:
    """Whether the same call would fail again. All else is trouble that a file system or a node may get over."""
    return error.errno in _FINAL_ERRNOS


@contextlib.contextmanager
def disk_errors(dst: str, what: str = "destination") -> t.Iterator[None]:
    """Turn the operating system's errors about a destination into ours: ``disk_full``, ``io``, or ``bad_input``.

    ``what`` the remedies call it.
    """
    try:
        yield
    except OSError as exc:
        if exc.errno in _FULL_ERRNOS:
            raise ClusterError(
                "disk_full",
                f"No space is left for `{dst}`.",
                f"Free space or choose another {what}, then run again: only what is missing will be copied.",
            ) from exc
        if is_final(exc):
            raise ClusterError(
                "bad_input", f"`{dst}` cannot be written: {exc.strerror}.", f"Check owner, mode and type of the {what}."
            ) from exc
        raise ClusterError(
            "io",
            f"The file system of `{dst}` fails: {exc.strerror or exc}.",
            "Check that it is still mounted and its servers and disks are well, then run again.",
        ) from exc


@contextlib.contextmanager
def part_file(
    dst: str, root: str = "", ownership: Ownership = AS_EVER, permit: Permit = ANYBODY
) -> t.Iterator[tuple[t.Callable[[bytes], None], int]]:
    """Give a write function and the descriptor of a ``.part`` file, which gets the final name, or goes after an error.

    Between ``root`` and the file no link is followed.
    """
    with contextlib.ExitStack() as stack:
        parent, name = stack.enter_context(parent_of_file(root, dst, ownership, permit))
        yield stack.enter_context(_part(parent, name, dst, ownership, permit))


@contextlib.contextmanager
def _part(
    parent: int, name: str, dst: str, ownership: Ownership, permit: Permit
) -> t.Iterator[tuple[t.Callable[[bytes], None], int]]:
    part = _part_name(name, permit.tag)
    mode = 0o644 if ownership.mode is None else 0o600  # until it is what was asked for
    with disk_errors(dst):
        handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode, dir_fd=parent)  # O_EXCL follows no link

    def write(data: bytes) -> None:
        with disk_errors(dst):
            done = os.write(handle, data)
            while done < len(data):
                done += os.write(handle, memoryview(data)[done:])

    try:
        try:
            yield write, handle
            with disk_errors(dst):
                ownership.give_to_file(handle)
        finally:
            with disk_errors(dst):  # a network filesystem may only now find that it is full
                os.close(handle)
        _give_name(parent, part, name, dst, permit)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part, dir_fd=parent)
        raise


def take_in(src: str, parent: int, name: str, dst: str, permit: Permit) -> None:
    """Give a whole file from elsewhere on this filesystem its final name, as if it had been written beside it.

    Raises OSError with EXDEV where a border lies between the two: then ``src`` is still there.
    """
    part = _part_name(name, permit.tag)
    try:
        os.replace(src, part, dst_dir_fd=parent)
    except OSError as exc:
        if exc.errno == errno.EXDEV:
            raise
        with disk_errors(dst):
            raise
    try:
        _give_name(parent, part, name, dst, permit)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part, dir_fd=parent)
        raise


def _give_name(parent: int, part: str, name: str, dst: str, permit: Permit) -> None:
    """The one step after which others see the file. The permit is looked at when the ``.part`` file is there, not before."""
    with disk_errors(dst):
        permit.check()
        try:
            os.replace(part, name, src_dir_fd=parent, dst_dir_fd=parent)
        except FileNotFoundError as exc:
            permit.check()
            raise ClusterError(
                "io",
                f"The unfinished file of `{dst}` was taken away.",
                "Run again: only what is missing will be copied.",
            ) from exc


def part_files(directory: str) -> t.Iterator[str]:
    """Paths of the ``.part`` files below a directory."""
    for folder, _folders, names in os.walk(directory):
        yield from (os.path.join(folder, name) for name in names if is_part(name))


def sweep_parts(directory: str, *, older_than_s: float) -> int:
    """Remove ``.part`` files that were not written to for ``older_than_s``; returns how many."""
    removed = 0
    limit = time.time() - older_than_s
    for path in part_files(directory):
        with contextlib.suppress(FileNotFoundError):  # another run sweeps, or has finished the file
            if os.lstat(path).st_mtime <= limit:
                os.unlink(path)
                removed += 1
    return removed


__all__ = [
    "ANYBODY",
    "AS_EVER",
    "Permit",
    "disk_errors",
    "is_final",
    "is_part",
    "is_tagged",
    "make_directories",
    "parent_of_file",
    "part_file",
    "part_files",
    "sweep_parts",
    "take_in",
]
