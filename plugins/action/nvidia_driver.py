# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of nvidia_driver: reboots the node when that was agreed to, and then lets the module finish."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.request import ARGUMENT_SPEC
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._plain_arguments import PlainArguments
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._reboot import announcement, reboot
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import names_role_variables

_MODULE = "hpcai.gpu_cluster.nvidia_driver"
# One for another driver, and one for modes of the GPUs that only this driver could set.
_MOST_REBOOTS = 2


def in_vain(result: dict[str, t.Any]) -> dict[str, t.Any]:
    """The result where a reboot did not bring what it was for."""
    return {
        **result,
        "failed": True,
        "error_kind": "reboot_in_vain",
        "msg": f"The node was rebooted, and still: {'; '.join(result['reboot_required'])}.",
        "remedy": "See `modinfo nvidia` and `dkms status`: an old module may lie beside the new one or in the initramfs. Modes of "
        "GPUs that a hypervisor passes through may wait until the machine is stopped and started.",
    }


def joined(first: dict[str, t.Any], second: dict[str, t.Any]) -> dict[str, t.Any]:
    """The result of two runs of the module with a reboot between them."""
    result = {**first, **second, "rebooted": True, "changed": True}
    for key in ("changes", "diff"):
        result[key] = [*(first.get(key) or []), *(second.get(key) or [])]
    return result


class ActionModule(PlainArguments):
    """One module call; a reboot and a second call only where the first one asks for it and may have it."""

    _supports_check_mode = True
    _supports_async = False

    @names_role_variables
    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the module, reboot if it has to be, and run it again."""
        super().run(tmp, task_vars)
        variables = task_vars or {}
        _spec, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        result = self._call(variables)
        if not args["allow_reboot"] or "configure" not in args["phases"] or self._task.check_mode:
            return result
        for _reboot in range(_MOST_REBOOTS):
            reasons = result.get("reboot_required")
            if result.get("failed") or not reasons:
                return result
            rebooted = reboot(self, announcement("nvidia_driver", reasons), args["reboot_timeout_s"], variables)
            if rebooted.get("failed"):
                return {**rebooted, "changes": result.get("changes")}
            result = joined(result, self._call(variables))
            if result.get("reboot_required") == reasons:
                break
        return in_vain(result) if result.get("reboot_required") and not result.get("failed") else result

    def _call(self, variables: dict[str, t.Any]) -> dict[str, t.Any]:
        return self._execute_module(module_name=_MODULE, module_args=dict(self._task.args), task_vars=variables)
