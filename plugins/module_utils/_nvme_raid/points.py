# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Where a file system was mounted: ``/var/lib/nvme_raid/NAME.points.json``, a list of directories.

Each was kept from being written to (``bare``). When the mount point is changed, nothing else tells which directory has to be given
back: the settings on the node have the new one only.
"""

from __future__ import annotations

import contextlib
import json
import os
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.bare import is_immutable, protect
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.begun import FOLDER

# A name has no dot: no mark of a creation has such a name.
_SUFFIX = ".points.json"


def read_points(root: Path, name: str) -> tuple[str, ...]:
    """The directories that the file system of this name was mounted on."""
    return _read(_path(root, name))


def hold(root: Path, name: str, point: str) -> None:
    """Make the directory, and let nothing be written into it while nothing is mounted on it. It is written down before."""
    known = read_points(root, name)
    if point not in known:
        _write(_path(root, name), (*known, point))
    protect(point)


def left_behind(root: Path, name: str, point: str, mounted: t.Collection[str]) -> tuple[str, ...]:
    """The directories that still take nothing new and have no reason to any more.

    ``point`` is where the file system belongs now, ``mounted`` is where anything is. What a file system of another name was mounted
    on is that one's own.
    """
    mine = read_points(root, name)
    own = _path(root, name)
    theirs = {other for path in own.parent.glob(f"*{_SUFFIX}") if path != own for other in _read(path)}
    return tuple(old for old in mine if old not in {point, *theirs, *mounted} and _takes_nothing(root, old))


def tidy(root: Path, name: str, point: str = "") -> None:
    """Forget the directories that were given back, and remember where it is mounted, whoever did that.

    ``point`` is where the file system belongs, if anywhere. What something is mounted on is remembered: whether it was given back is
    seen only when nothing hides it.
    """
    known = read_points(root, name)
    left = tuple(
        old for old in dict.fromkeys((*known, point)) if os.path.ismount(old) or (old == point and old in known)
    )
    path = _path(root, name)
    if left == known:
        return
    if left:
        _write(path, left)
        return
    with contextlib.suppress(OSError):
        path.unlink()
        # Others may have theirs in it.
        path.parent.rmdir()


def _path(root: Path, name: str) -> Path:
    return root / FOLDER / f"{name}{_SUFFIX}"


def _read(path: Path) -> tuple[str, ...]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ()
    return tuple(value for value in values if isinstance(value, str)) if isinstance(values, list) else ()


def _write(path: Path, points: t.Sequence[str]) -> None:
    """Where nothing can be kept (a full disk, one that is read-only), the file system is mounted all the same."""
    draft = path.with_suffix(".new")
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        draft.write_text(json.dumps(points), encoding="utf-8")
        draft.replace(path)


def _takes_nothing(root: Path, point: str) -> bool:
    try:
        return is_immutable(str(root / point.lstrip("/")))
    except OSError:
        return False


__all__ = ["hold", "left_behind", "read_points", "tidy"]
