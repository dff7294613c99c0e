# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Names below a directory that others may write to: nothing leads out of it, no ``..`` and no symbolic link.

Root works in directories of users. Every component below the directory is opened by itself and must be a directory
(``openat(2)`` with ``O_DIRECTORY | O_NOFOLLOW``), so that no link can be put there between a look and the deed. The
directory itself may be reached through links: its path is the operator's.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def is_proper(name: t.Any) -> bool:
    """Whether a relative name has no part that leads elsewhere: none is empty, ``.`` or ``..``."""
    return isinstance(name, str) and "\0" not in name and not {"", ".", ".."} & set(name.split("/"))


def is_utf8(name: str) -> bool:
    """Whether a name is text for others, too. Python keeps bytes that are none as surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


@contextlib.contextmanager
def parent_of(
    root: str, name: str, *, make: bool = False, on_made: t.Callable[[int], None] | None = None
) -> t.Iterator[tuple[int, str]]:
    """The descriptor of the directory that holds ``name`` below ``root``, and the last component of the name.

    ``make`` makes what is missing, open to all readers whatever the umask, or as ``on_made`` has it, which gets the
    descriptor of each directory that was made. Raises OSError where a directory is missing or
    is none, and ClusterError (``bad_input``) where the name leads out of ``root``.
    """
    if not is_proper(name):
        raise ClusterError(
            "bad_input", f"The name {name!r} leads out of `{root}`.", "Look who wrote it: nothing of ours does."
        )
    *directories, last = name.split("/")
    current = os.open(root, _DIRECTORY)
    try:
        for depth, directory in enumerate(directories):
            path = os.path.join(root, *directories[: depth + 1])
            following = _enter(current, directory, path, (on_made or _open_to_readers) if make else None)
            _close(current)
            current = following
        yield current, last
    finally:
        _close(current)


def _close(directory: int) -> None:
    with contextlib.suppress(OSError):  # nothing was written by it
        os.close(directory)


def _enter(parent: int, name: str, path: str, on_made: t.Callable[[int], None] | None) -> int:
    try:
        return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    except FileNotFoundError:
        if on_made is None:
            raise
    except OSError as exc:
        if exc.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(name, parent):
            raise _link(path) from exc
        raise
    with contextlib.suppress(FileExistsError):  # another thread or rank was quicker
        os.mkdir(name, 0o755, dir_fd=parent)
    made = _enter(parent, name, path, None)
    on_made(made)  # by its descriptor: a path could lead to a link that came in its place
    return made


def _open_to_readers(directory: int) -> None:
    os.fchmod(directory, stat.S_IMODE(os.fstat(directory).st_mode) | 0o755)  # keeps an inherited set-group-ID


def _link(path: str) -> ClusterError:
    return ClusterError(
        "bad_input",
        f"`{path}` is a symbolic link, which nothing is done through: it may lead anywhere.",
        "Put a directory in its place, or a bind mount where the data is to lie elsewhere.",
    )


def _is_link(name: str, parent: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except OSError:
        return False


def refuse_links(root: str, names: t.Iterable[str]) -> None:
    """Raise ClusterError (``bad_input``) where a directory of one of the names is a link. Who acts looks again."""
    seen = {""}
    for name in names:
        directory = name.rpartition("/")[0]
        while directory not in seen:
            seen.add(directory)
            path = os.path.join(root, directory)
            if os.path.islink(path):
                raise _link(path)
            directory = directory.rpartition("/")[0]


def look(root: str, name: str) -> os.stat_result | None:
    """What is at a name, a link itself and not what it points to; None where nothing is."""
    try:
        with parent_of(root, name) as (parent, last):
            return os.stat(last, dir_fd=parent, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def unlink(root: str, name: str) -> None:
    """Delete one file, or a link itself."""
    with parent_of(root, name) as (parent, last):
        try:
            os.unlink(last, dir_fd=parent)
        except OSError as exc:  # it knows the last component only
            raise OSError(exc.errno, exc.strerror, os.path.join(root, name)) from exc


def remove_tree(root: str, name: str) -> None:
    """Delete a directory and what is in it, as far as that can be done; a link in it goes, and what it points to stays."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), parent_of(root, name) as (parent, last):
        # rmtree takes no descriptor of the parent before Python 3.11.
        shutil.rmtree(f"/proc/self/fd/{parent}/{last}", ignore_errors=True)


__all__ = ["is_proper", "is_utf8", "look", "parent_of", "refuse_links", "remove_tree", "unlink"]
