# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of rdma_stack: reboots the node where new kernel modules wait for that and it was agreed to."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._reboot import announcement, reboot
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import names_role_variables

_MODULE = "hpcai.gpu_cluster.rdma_stack"
_TIMEOUT_S = 1200


class ActionModule(ActionBase):
    """See plugins/modules/rdma_stack.py for the documentation."""

    _supports_check_mode = True
    _supports_async = False

    @names_role_variables
    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the module, and reboot if it asks for that, which it does with consent only."""
        super().run(tmp, task_vars)
        variables = task_vars or {}
        options = dict(self._task.args)
        result: dict[str, t.Any] = self._execute_module(module_name=_MODULE, module_args=options, task_vars=variables)
        if result.get("failed") or not result.get("reboot_required") or self._task.check_mode:
            return result
        message = announcement("rdma_stack", ["new kernel modules wait for a reboot"])
        timeout_s = int(options.get("reboot_timeout_s", _TIMEOUT_S))
        rebooted = reboot(self, message, timeout_s, variables)
        if rebooted.get("failed"):
            return {**rebooted, "changed": True, "changes": result.get("changes")}
        return {**result, "rebooted": True}
