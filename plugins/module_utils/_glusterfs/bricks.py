# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The directories on this node that were made as bricks of a volume, in use or left over."""

from __future__ import annotations

import os
import re
import shutil

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError


def brick_directories(bricks: str, volume: str) -> list[str]:
    """Directories that were made as bricks of the volume on this node, in use or left over."""
    try:
        names = sorted(os.listdir(bricks))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [os.path.join(bricks, name) for name in names if re.fullmatch(rf"{re.escape(volume)}-[0-9a-f]{{8}}", name)]


def holds_data(brick: str) -> bool:
    """Whether anybody's file or directory lies on a brick; gluster's own are hidden ones."""
    return any(name not in (".glusterfs", ".trashcan") for name in os.listdir(brick))


def check_consent(bricks: str, volume: str, *, allowed: bool) -> None:
    """Refuse to delete bricks on which files lie, unless that is allowed."""
    full = [path for path in brick_directories(bricks, volume) if holds_data(path)]
    if full and not allowed:
        raise ClusterError(
            "consent_missing",
            f"Files of {volume} lie in {', '.join(full)} on {os.uname().nodename}. Nothing was removed.",
            "Set `allow_data_loss: true` to delete them.",
        )


def clean(bricks: str, volume: str, path: str, *, check: bool) -> list[str]:
    """Remove this node's bricks and the directories that were made for them and for the mount."""
    done = []
    for brick in brick_directories(bricks, volume):
        done.append(f"delete {brick}")
        if not check:
            shutil.rmtree(brick)
    for directory in (bricks, path):
        if os.path.isdir(directory) and not os.path.ismount(directory) and not os.listdir(directory):
            done.append(f"remove the empty directory {directory}")
            if not check:
                os.rmdir(directory)
    return done


__all__ = ["brick_directories", "check_consent", "clean", "holds_data"]
