# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which RDMA software is declared."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of the modules rdma_*."""

    DOCUMENTATION = r"""
options:
  source:
    description:
      - Where the RDMA software comes from. V(inbox) is the distribution, V(doca) and V(mlnx_ofed) are NVIDIA's.
      - V(preinstalled) is what the image brought, whichever that is. Nothing is installed or removed; it is looked at as any other.
    type: str
    choices: [inbox, doca, mlnx_ofed, preinstalled]
    default: inbox
  version:
    description:
      - The vendor's version, V(24.10-3.2.5.0) for MLNX_OFED or V(3.2.1-044000-25.10) for DOCA.
      - With O(source=preinstalled) the one that is expected. Empty for any.
    type: str
    default: ""
  user_space_only:
    description: Whether the kernel keeps its own modules, as in a container.
    type: bool
    default: false
"""
