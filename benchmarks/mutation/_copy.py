# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A copy of the working tree to break things in: whatever ends a run, no mutant is left in the clone."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def copy_tree(root: Path, target: Path) -> None:
    """Copy what git knows or would take, and give the copy a collections path that leads to itself."""
    argv = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (root / name).is_symlink() or (root / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name, follow_symlinks=False)
    link = target / ".venv/collections/ansible_collections/hpcai/gpu_cluster"
    link.parent.mkdir(parents=True)
    link.symlink_to(target)


__all__ = ["copy_tree"]
