# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is on a node now: at paths, and as numbers of users and groups."""

from __future__ import annotations

import grp
import os
import pwd
import stat
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.mounts import MountEntry, mount_below
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.archive import read_marker
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.plan import PathState
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.request import (
    Directory,
    File,
    directory_request,
)


def look(
    path: str, mounts: t.Iterable[MountEntry] = (), *, content: bool = False, leaving: t.Collection[str] = ()
) -> PathState:
    """What is at ``path`` now, without following a link. A directory counts as empty when all in it is ``leaving``."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return PathState()
    if stat.S_ISLNK(found.st_mode):
        return PathState("link", target=os.readlink(path))
    mode = f"{stat.S_IMODE(found.st_mode):04o}"
    if stat.S_ISREG(found.st_mode):
        data = None
        if content:
            with open(path, "rb") as handle:
                data = handle.read()
        return PathState("file", mode, found.st_uid, found.st_gid, data, mount=mount_below(path, mounts))
    if stat.S_ISDIR(found.st_mode):
        with os.scandir(path) as entries:
            empty = all(entry.path in leaving for entry in entries)
        archive, built = read_marker(path)
        return PathState(
            "directory",
            mode,
            found.st_uid,
            found.st_gid,
            empty=empty,
            mount=mount_below(path, mounts),
            archive=archive,
            built=built,
        )
    return PathState("other", mode, found.st_uid, found.st_gid)


def _identity(name: str, kind: str, tolerate: bool) -> int | None:
    """The number of a user or group; None when it is missing and a package may still bring it."""
    if name.isdigit():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid if kind == "user" else grp.getgrnam(name).gr_gid
    except KeyError:
        if tolerate:
            return None
        raise ClusterError(
            f"{kind}_missing", f"There is no {kind} {name} on this node.", f"Create the {kind} first, or name another."
        ) from None


def owner_ids(item: Directory | File, *, tolerate: bool) -> tuple[int | None, int | None]:
    """The numbers of an item's owner and group. With ``tolerate`` None is one that a package may still bring."""
    return _identity(item.owner, "user", tolerate), _identity(item.group, "group", tolerate)


def missing_parents(paths: t.Iterable[str], listed: t.Collection[str] = ()) -> list[dict[str, t.Any]]:
    """The directories that files at ``paths`` need and that neither exist nor are listed, as items of ``directories``."""
    parents = sorted({os.path.dirname(path) for path in paths} - set(listed))
    return [directory_request(parent) for parent in parents if not os.path.isdir(parent)]


__all__ = ["look", "missing_parents", "owner_ids"]
