# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which volume is meant."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of the modules glusterfs_*."""

    DOCUMENTATION = r"""
options:
  volume:
    description: Name of the volume.
    type: str
    required: true
"""
