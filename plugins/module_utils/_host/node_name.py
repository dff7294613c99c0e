# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""This node's part of names in directories that several nodes may share: a home, or logs, on a network file system."""

from __future__ import annotations

import hashlib
import os


def node_digest(about: str = "", digits: int = 16) -> str:
    """Hexadecimal digits that differ from node to node, by the name that the kernel knows (uname(2)), and from text to text."""
    return hashlib.sha256(f"{os.uname().nodename}\0{about}".encode()).hexdigest()[:digits]


__all__ = ["node_digest"]
