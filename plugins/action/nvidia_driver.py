# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of nvidia_driver: reboots the node when that was agreed to, and then lets the module finish."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import ARGUMENT_SPEC

_MODULE = "hpcai.gpu_cluster.nvidia_driver"


def joined(first: dict[str, t.Any], second: dict[str, t.Any]) -> dict[str, t.Any]:
    """The result of two runs of the module with a reboot between them."""
    result = {**first, **second, "rebooted": True, "changed": True}
    for key in ("changes", "diff"):
        result[key] = [*(first.get(key) or []), *(second.get(key) or [])]
    return result


class ActionModule(ActionBase):
    """One module call; a reboot and a second call only where the first one asks for it and may have it."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the module, reboot if it has to be, and run it again."""
        super().run(tmp, task_vars)
        variables = task_vars or {}
        _spec, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        first = self._call(variables)
        wants = first.get("reboot_required") and args["allow_reboot"] and "configure" in args["phases"]
        if first.get("failed") or not wants or self._task.check_mode:
            return first
        task = self._task.copy()
        task.args = {
            "reboot_timeout": args["reboot_timeout_s"],
            "msg": f"nvidia_driver: {'; '.join(first['reboot_required'])}",
        }
        action = self._shared_loader_obj.action_loader.get(
            "ansible.builtin.reboot",
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
        rebooted = action.run(task_vars=variables)
        if rebooted.get("failed"):
            return {**rebooted, "error_kind": "reboot_failed", "changes": first.get("changes")}
        return joined(first, self._call(variables))

    def _call(self, variables: dict[str, t.Any]) -> dict[str, t.Any]:
        return self._execute_module(module_name=_MODULE, module_args=dict(self._task.args), task_vars=variables)
