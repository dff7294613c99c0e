# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The room that work has here: CPUs and free space."""

from __future__ import annotations

import os
import shutil


def available_cpus() -> int:
    """CPUs that this process may use (not those of the machine)."""
    return len(os.sched_getaffinity(0)) or 1


def free_bytes(directory: str) -> int:
    """Free space for ordinary users on the filesystem of ``directory``."""
    return shutil.disk_usage(directory).free


__all__ = ["available_cpus", "free_bytes"]
