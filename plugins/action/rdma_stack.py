# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of rdma_stack: reboots the node where new kernel modules wait for that and it was agreed to."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._reboot import announcement, reboot
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import ModuleAction

_TIMEOUT_S = 1200


class ActionModule(ModuleAction):
    """See plugins/modules/rdma_stack.py for the documentation."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the module, and reboot if it asks for that, which it does with consent only."""
        result = super().run(tmp, task_vars)
        if result.get("failed") or not result.get("reboot_required") or self._task.check_mode:
            return result
        message = announcement("rdma_stack", ["new kernel modules wait for a reboot"])
        timeout_s = int(self._task.args.get("reboot_timeout_s", _TIMEOUT_S))
        rebooted = reboot(self, message, timeout_s, task_vars or {})
        if rebooted.get("failed"):
            return {**rebooted, "changed": True, "changes": result.get("changes")}
        return {**result, "rebooted": True}
