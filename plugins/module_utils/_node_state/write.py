# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Put directories, files and links on a node and take paths away. What is replaced is replaced whole."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import shutil
import tempfile
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.label import label
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.read import owner_ids
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.request import Absent, Directory, File, Link

#: What says that a file can be written, but not replaced by another one: it is a mount of its own, or its directory is
#: read-only or somebody else's.
_IRREPLACEABLE = (errno.EBUSY, errno.EXDEV, errno.EROFS, errno.EACCES, errno.EPERM, errno.ETXTBSY)


def make_parents(path: str, host: Host) -> None:
    """The directories above a path, with mode 0755, each labelled."""
    parent = os.path.dirname(path)
    if os.path.isdir(parent):
        return
    make_parents(parent, host)
    _new_directory(parent, lambda made: os.chmod(made, 0o755), host)  # noqa: S103 - the way to what was asked for


def make_directory(directory: Directory, host: Host) -> None:
    """A directory and its mode and owner."""
    if os.path.isdir(directory.path):
        _own(directory.path, directory)
        return
    make_parents(directory.path, host)
    _new_directory(directory.path, lambda made: _own(made, directory), host)


def _new_directory(path: str, own: t.Callable[[str], None], host: Host) -> None:
    """An empty directory. It appears when it has its owner and its label."""
    parent, prefix = os.path.dirname(path), f".{os.path.basename(path)}.node_state-"
    # What a killed run left behind.
    for leftover in glob.glob(os.path.join(glob.escape(parent), glob.escape(prefix) + "*")):
        os.rmdir(leftover)
    work = tempfile.mkdtemp(prefix=prefix, dir=parent)
    try:
        own(work)
        label(work, path, host)
        os.rename(work, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(work)


def _own(path: str | int, item: Directory | File) -> None:
    uid, gid = owner_ids(item, tolerate=False)
    os.chown(path, t.cast(int, uid), t.cast(int, gid))
    os.chmod(path, int(item.mode, 8))


def own_file(file: File) -> None:
    """The mode and owner of a file whose content is right."""
    # Never what a link leads to that came there since.
    handle = os.open(file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        _own(handle, file)
    finally:
        os.close(handle)


def write_file(file: File, host: Host) -> None:
    """A file with its content, beside its destination first."""
    parent = os.path.dirname(file.path)
    if not os.path.isdir(parent):
        raise ClusterError("no_directory", f"{parent} does not exist.", f"List it under directories for {file.path}.")
    if file.content.data is None:
        raise ClusterError("changed_meanwhile", f"{file.path} changed while the module ran.", "Run the task again.")
    handle, temporary = _temporary(file, parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(file.content.data)
        _own(temporary, file)
        if file.validate:
            _validate(file, temporary, host)
        label(temporary, file.path, host)
        _replace(file, temporary, host)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _temporary(file: File, parent: str) -> tuple[int, str]:
    try:
        return tempfile.mkstemp(prefix=".node_state-", dir=parent)
    except OSError as exc:
        if not file.unsafe_writes or exc.errno not in _IRREPLACEABLE:
            raise
        return tempfile.mkstemp(prefix=".node_state-")


def _replace(file: File, temporary: str, host: Host) -> None:
    try:
        # Not AnsibleModule.atomic_move: that gives a new file mode 0644, whatever the mode of its source.
        os.replace(temporary, file.path)
    except OSError as exc:
        if exc.errno not in _IRREPLACEABLE:
            raise
        if not file.unsafe_writes:
            raise ClusterError(
                "cannot_replace",
                f"{file.path} cannot be replaced: {exc.strerror}. The old content is still in place.",
                "Where it is mounted by itself, set `unsafe_writes: true` for it to write into it.",
            ) from exc
        _overwrite(file)
        label(file.path, file.path, host)


def _overwrite(file: File) -> None:
    """Write into the file that is there. Whoever reads it meanwhile can see half of it."""
    with open(os.open(file.path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600), "wb") as stream:
        stream.write(t.cast(bytes, file.content.data))
        stream.truncate()
        _own(stream.fileno(), file)


def _validate(file: File, temporary: str, host: Host) -> None:
    argv = [word.replace("%s", temporary) for word in file.validate]
    rc, out, err = host.run_command(argv)
    if rc != 0:
        said = "(hidden)" if file.content.secret else (err or out).strip()[:2000]
        raise ClusterError(
            "invalid_content",
            f"{argv[0]} refused the new content of {file.path}: {said}",
            "The old content is still in place; correct the new one.",
        )


def make_link(link: Link, host: Host) -> None:
    """A symbolic link; another one in its place is replaced at once."""
    temporary = f"{link.path}.node_state-{os.getpid()}"
    os.symlink(link.target, temporary)
    try:
        label(temporary, link.path, host)
        os.replace(temporary, link.path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def remove(absent: Absent) -> None:
    """Take a path away, unless another node that shares the directory was quicker."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.isdir(absent.path) and not os.path.islink(absent.path):
            if absent.recursive:
                shutil.rmtree(absent.path)
            else:
                os.rmdir(absent.path)
        else:
            os.unlink(absent.path)


__all__ = ["make_directory", "make_link", "make_parents", "own_file", "remove", "write_file"]
