# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a module promises about how it runs."""

from __future__ import annotations


class ModuleDocFragment:
    """Attributes of all modules. Each module says itself how far it keeps them."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: In check mode the module makes no change, and its result tells what it would change.
  diff_mode:
    description: In diff mode the result shows what the module changes, or would change in check mode.
  idempotent:
    description: A second run with the same options reports no change, while the node was not changed by other means.
  platform:
    description: Operating systems on which the module runs.
    support: full
    platforms: linux
  action_group:
    description: Keywords such as C(group/hpcai.gpu_cluster.dataset) in C(module_defaults) set options of the whole group.
    support: full
"""

    # For modules that only look or compute.
    READ_ONLY = r"""
options: {}
attributes:
  check_mode:
    support: full
    details: The module changes nothing, and runs in check mode as it does otherwise.
  diff_mode:
    support: N/A
    details: The module changes nothing.
  idempotent:
    support: full
    details: The module changes nothing.
"""

    ACTION = r"""
options: {}
attributes:
  action:
    description: A part of the module runs on the controller.
    support: full
  async:
    description: The task can take the keyword C(async).
    support: none
    details: The controller's part has to wait for the node's.
"""
