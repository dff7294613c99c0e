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
