# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of dataset_plan: no SAS in a URL, a SAS through stdin only, messages that name the role's variables.

It knows the whole play, too, of which the node sees nothing.
"""

from __future__ import annotations

import typing as t

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._by_stdin import PipedModuleAction
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._places import PlacesModuleAction
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._play import whole_play


class ActionModule(PlacesModuleAction, PipedModuleAction):
    """See plugins/modules/dataset_plan.py for the documentation."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run it, for all hosts of the play where that is asked for."""
        if boolean(self._task.args.get("whole_play", False), strict=False):
            self._task.args["hosts"] = whole_play(self._task, task_vars or {})
        return super().run(tmp, task_vars)
