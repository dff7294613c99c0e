# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What an upload takes from a directory: all but the state of a staging."""

from __future__ import annotations

import os

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.tree import Links, Tree, walk
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import STATE_DIR
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

#: One of these says that a directory of this name is the state of a staging.
_STATE_FILES = ("dataset.json", "manifest.jsonl", "receipts")


def read_tree(source: str, links: Links = "refuse") -> Tree:
    """Everything below ``source``. Raises ClusterError with names where something in it cannot be uploaded, or nothing is there."""
    tree = walk(source, links, passes_over=_is_state)
    if not tree.names:
        raise ClusterError("no_match", f"{source} holds no files.", "Check the path; nothing was uploaded.")
    return tree


def _is_state(directory: os.DirEntry[str]) -> bool:
    return directory.name == STATE_DIR and any(
        os.path.lexists(os.path.join(directory.path, file)) for file in _STATE_FILES
    )


__all__ = ["Links", "Tree", "read_tree"]
