# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of rdma_stack: reboots the node where new kernel modules wait for that, and looks whether they came."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.request import ARGUMENT_SPEC
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._plain_arguments import PlainArguments
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._reboot import announcement, reboot
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import names_role_variables

_MODULE = "hpcai.gpu_cluster.rdma_stack"
_LOOK = "Look at the initial ram disk (`initramfs`)."


def joined(first: dict[str, t.Any], second: dict[str, t.Any]) -> dict[str, t.Any]:
    """The result of two runs of the module with a reboot between them. One that asks for another reboot was in vain."""
    before = {"changed": True, "rebooted": True, "changes": first.get("changes"), "diff": first.get("diff")}
    if second.get("failed"):
        return {**second, **before}
    if second["reboot_required"]:
        msg = f"After the reboot the old RDMA modules are loaded again. {_LOOK}"
        return {**second, **before, "failed": True, "error_kind": "reboot_in_vain", "msg": msg, "remedy": _LOOK}
    told = {key: [*(first.get(key) or []), *(second.get(key) or [])] for key in ("changes", "diff")}
    return {**second, **before, **told}


class ActionModule(PlainArguments):
    """See plugins/modules/rdma_stack.py for the documentation."""

    _supports_check_mode = True
    _supports_async = False

    @names_role_variables
    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the module; where it asks for a reboot, which it does with consent only, reboot and run it once more."""
        super().run(tmp, task_vars)
        variables = task_vars or {}
        # Before the module: it changes the node.
        _spec, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        result = self._call(variables)
        if result.get("failed") or not result.get("reboot_required") or self._task.check_mode:
            return result
        message = announcement("rdma_stack", ["new kernel modules wait for a reboot"])
        rebooted = reboot(self, message, args["reboot_timeout_s"], variables)
        if rebooted.get("failed"):
            return {**rebooted, "changed": True, "changes": result.get("changes")}
        return joined(result, self._call(variables))

    def _call(self, variables: dict[str, t.Any]) -> dict[str, t.Any]:
        return self._execute_module(module_name=_MODULE, module_args=dict(self._task.args), task_vars=variables)
