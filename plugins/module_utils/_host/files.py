# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Small files of the kernel and of programs, and the kernel's directories.

What is fetched from elsewhere is in ``sources``, which brings Ansible's ``urls`` with it.
"""

from __future__ import annotations

import os.path
from pathlib import Path


def read_text(path: Path) -> str:
    """The stripped content of a small file, or "" when it cannot be read. A link is followed.

    What is no file is not opened: a pipe would keep its reader waiting for ever, and a device may act when it is opened.
    """
    if not os.path.isfile(path):
        return ""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        # A sysfs attribute may be absent, unreadable for this user, or fail with EIO while a device is in trouble.
        return ""


def read_int(path: Path) -> int | None:
    text = read_text(path)
    try:
        return int(text, 0)
    except ValueError:
        return None


def entry_names(path: Path) -> list[str]:
    """The sorted names in a directory, none where it cannot be read: drivers that are not loaded have none."""
    try:
        return sorted(entry.name for entry in path.iterdir())
    except OSError:
        return []


__all__ = ["entry_names", "read_int", "read_text"]
