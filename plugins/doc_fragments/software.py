# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How software gets on a node, and into effect."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of modules that install software: container_runtime, nvidia_driver and rdma_stack."""

    PHASES = r"""
options:
  phases:
    description:
      - V(install) alone touches packages and files only, as when an image is built. V(configure) does that too, and
        brings them into effect on the node that runs. It loads kernel modules, restarts services and changes settings.
    type: list
    elements: str
    choices: [install, configure]
    default: [install, configure]
"""

    REBOOT = r"""
options:
  reboot_timeout_s:
    description: How long the reboot may take, in seconds.
    type: int
    default: 1200
"""

    REPOSITORY_KEY = r"""
options:
  repository_key:
    description:
      - The repository's key, as a URL or a path on the node. With O(repository_fingerprint) it is checked and copied,
        without it a path is used as it is.
    type: str
    default: ""
  repository_fingerprint:
    description: The fingerprint that the key must have.
    type: str
    default: ""
"""
