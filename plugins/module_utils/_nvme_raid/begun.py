# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The mark of a creation that has begun and not ended: ``/var/lib/nvme_raid/NAME.json``.

It is on disk before the first superblock is written, and goes when mkfs has ended, before anything is mounted, or where something
is mounted nevertheless. A power cut between the two leaves it, and with it the proof that what is half made is ours and never held
a file. It names the array by a UUID that was chosen for this one creation, and a disk by all names that go with it and not with
its slot, so that it says nothing of any other.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import Begun

FOLDER = "var/lib/nvme_raid"


def _path(root: Path, name: str) -> Path:
    return root / FOLDER / f"{name}.json"


def read_begun(root: Path, name: str) -> Begun | None:
    """The creation of this name that has begun; None where there is none, or its mark cannot be read."""
    try:
        with _path(root, name).open(encoding="utf-8") as handle:
            values = json.load(handle)
        return Begun(str(values["uuid"]), tuple(map(str, values["disks"])), values.get("bare") is True)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def begin(root: Path, name: str, begun: Begun) -> None:
    """Leave the mark. It has reached the disk when this returns."""
    path = _path(root, name)
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    with draft.open("w", encoding="utf-8") as handle:
        json.dump({"uuid": begun.uuid, "disks": begun.disks, "bare": begun.bare}, handle)
        handle.flush()
        os.fsync(handle.fileno())
    draft.replace(path)
    _sync(path.parent)


def end(root: Path, name: str) -> None:
    """Take the mark away, where there is one."""
    path = _path(root, name)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
        _sync(path.parent)
    # Arrays of other names may have theirs in it.
    with contextlib.suppress(OSError):
        path.parent.rmdir()


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


__all__ = ["FOLDER", "begin", "end", "read_begun"]
