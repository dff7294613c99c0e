# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of container_runtime: no password leaves the controller, and what is said names the role's variables."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.repository import refuse_repository
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import (
    ModuleAction,
    names_role_variables,
)


class ActionModule(ModuleAction):
    """See plugins/modules/container_runtime.py for the documentation."""

    @names_role_variables
    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the module on the node, where its options may be known there."""
        try:
            refuse_repository(self._task.args)
        except ClusterError as exc:
            return {"failed": True, "changed": False, **exc.as_result()}
        return super().run(tmp, task_vars)
