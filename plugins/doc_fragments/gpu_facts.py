# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a node's facts are gathered."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of node_facts and node_profile, and of other modules that ask the GPUs' driver."""

    DOCUMENTATION = r"""
options:
  nvidia_smi_timeout_s:
    description:
      - Seconds after which C(nvidia-smi) and everything it started are killed. Without persistence mode a first call
        initializes every GPU and may take more than ten seconds on a node with eight.
    type: float
    default: 20.0
  metadata:
    description:
      - Whether to ask the instance metadata service for the machine type.
      - V(auto) asks when the firmware names say that the node runs in Azure or AWS and do not already name the
        machine type.
    type: str
    choices: [auto, always, never]
    default: auto
  metadata_timeout_s:
    description:
      - Seconds to wait for each step of a metadata request.
    type: float
    default: 1.0
"""

    NVIDIA_SMI = r"""
options:
  nvidia_smi:
    description:
      - Name or absolute path of C(nvidia-smi). A name is looked up in E(PATH) and in the directories that NVIDIA's
        installers and container runtimes use.
    type: str
    default: nvidia-smi
"""
