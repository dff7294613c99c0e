# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of nvidia_driver: reboots the node when that was agreed to, and then lets the module finish."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.repository import refuse_repository
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.request import ARGUMENT_SPEC
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._plain_arguments import PlainArguments
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._reboot import Reboots, run_and_reboot, run_module
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_forms import misformed
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import names_role_variables

_MODULE = "hpcai.gpu_cluster.nvidia_driver"


def reasons(result: dict[str, t.Any]) -> list[str]:
    """Why a reboot is due."""
    return result.get("reboot_required") or []


def in_vain(_before: dict[str, t.Any], after: dict[str, t.Any]) -> dict[str, t.Any]:
    """What is said where a reboot did not bring what it was for."""
    return {
        "msg": f"The node was rebooted, and still: {'; '.join(reasons(after))}.",
        "remedy": "See `modinfo nvidia` and `dkms status`: an old module may lie beside the new one or in the initramfs. Modes of "
        "GPUs that a hypervisor passes through may wait until the machine is stopped and started.",
    }


# Two: one for another driver, and one for modes of the GPUs that only this driver could set.
_REBOOTS = Reboots(_MODULE, reasons, in_vain, most=2)


class ActionModule(PlainArguments):
    """One module call; a reboot and a second call only where the first one asks for it and may have it."""

    _supports_check_mode = True
    _supports_async = False

    @names_role_variables
    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the module, reboot if it has to be, and run it again."""
        super().run(tmp, task_vars)
        variables = task_vars or {}
        for fault in misformed("quoted", self._task.args.get("version")):
            return {"failed": True, "changed": False, "msg": f"`version`: {fault}", "error_kind": "bad_input"}
        _spec, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        try:
            refuse_repository(args)
        except ClusterError as exc:
            return {"failed": True, "changed": False, **exc.as_result()}
        if not args["allow_reboot"] or "configure" not in args["phases"]:
            return run_module(self, _MODULE, variables)
        return run_and_reboot(self, _REBOOTS, args["reboot_timeout_s"], variables)
