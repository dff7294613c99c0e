# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of rdma_stack: reboots the node where new kernel modules wait for that, and looks whether they came."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.request import ARGUMENT_SPEC
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._plain_arguments import PlainArguments
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._reboot import Reboots, run_and_reboot
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import names_role_variables

_LOOK = "Look at the initial ram disk (`initramfs`)."


def reasons(result: dict[str, t.Any]) -> list[str]:
    """Why a reboot is due. The module asks for one with consent only."""
    return ["new kernel modules wait for a reboot"] if result.get("reboot_required") else []


def in_vain(before: dict[str, t.Any], _after: dict[str, t.Any]) -> dict[str, t.Any]:
    """What a second run says that asks for another reboot. It planned that one only, so its changes are none."""
    told = {"changes": before.get("changes"), "diff": before.get("diff")}
    return {**told, "msg": f"After the reboot the old RDMA modules are loaded again. {_LOOK}", "remedy": _LOOK}


_REBOOTS = Reboots("hpcai.gpu_cluster.rdma_stack", reasons, in_vain)


class ActionModule(PlainArguments):
    """See plugins/modules/rdma_stack.py for the documentation."""

    _supports_check_mode = True
    _supports_async = False

    @names_role_variables
    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the module; where it asks for a reboot, which it does with consent only, reboot and run it once more."""
        super().run(tmp, task_vars)
        # Before the module: it changes the node.
        _spec, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        return run_and_reboot(self, _REBOOTS, args["reboot_timeout_s"], task_vars or {})
