# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of node_state: brings what the module finds missing, then calls it again."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.options import ARGUMENT_SPEC
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._node_state_action import NodeStateAction
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._own_role import misformed_here


class ActionModule(NodeStateAction):
    """See plugins/modules/node_state.py for the documentation."""

    MODULE = "hpcai.gpu_cluster.node_state"
    OPTIONS: t.ClassVar[dict[str, t.Any]] = ARGUMENT_SPEC

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the module, unless it would write files of a role with what no program could read."""
        refused = misformed_here(self, task_vars or {}) if self._task.args.get("files") else None
        return refused or super().run(tmp, task_vars)
