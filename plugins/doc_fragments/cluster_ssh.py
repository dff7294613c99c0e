# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which trust between nodes is meant."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of the modules cluster_ssh_*."""

    DOCUMENTATION = r"""
options:
  cluster:
    description: Name of the cluster. It is part of the name of the key file and marks our lines.
    type: str
    default: gpu_cluster
  user:
    description: The user whose logins between the nodes need no password.
    type: str
    default: root
"""

    PORT = r"""
options:
  port:
    description: The port that the nodes' sshd listens on.
    type: int
    default: 22
"""
