# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of health_round: what it says names the variables of the role that called it."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import ModuleAction


class ActionModule(ModuleAction):
    """See plugins/modules/health_round.py for the documentation."""
