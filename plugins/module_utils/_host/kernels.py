# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Kernels besides the one that runs: an upgrade of the system may have brought the one that boots next."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Runner

# Debian and Ubuntu keep links to the newest kernel, which their boot loader takes.
_LINKS = ("vmlinuz", "boot/vmlinuz")


def next_kernel(host: Runner, root: Path = Path("/")) -> str:
    """The release of the kernel that boots by default; empty where that cannot be known."""
    # Without a login shell the path may lack the folders of the administrator's programs.
    grubby = shutil.which("grubby", path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"]))
    if grubby:
        _rc, out, _err = host.run_command([grubby, "--default-kernel"])
        return _release(out.strip())
    for link in _LINKS:
        path = root / link
        # A kernel that was removed may leave its link behind.
        if path.is_symlink() and path.exists():
            return _release(os.readlink(path))
    return ""


def _release(path: str) -> str:
    name = path.rpartition("/")[2]
    return name[len("vmlinuz-") :] if name.startswith("vmlinuz-") else ""


__all__ = ["next_kernel"]
