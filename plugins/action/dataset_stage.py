# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of dataset_stage: no SAS in a URL, a SAS through stdin only, messages that name the role's variables."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._by_stdin import BackgroundModuleAction
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._places import PlacesModuleAction


class ActionModule(PlacesModuleAction, BackgroundModuleAction):
    """See plugins/modules/dataset_stage.py for the documentation."""
