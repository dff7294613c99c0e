# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one way in which a role reboots a node: the action of its module does, when the module found that it is due and agreed to."""

from __future__ import annotations

import re
import typing as t

from ansible.plugins.action import ActionBase

Result = dict[str, t.Any]


def announcement(module: str, reasons: t.Sequence[str]) -> str:
    """What users of the node are told. The reboot hands it to a shell between double quotes, so nothing in it may end them."""
    return re.sub(r"[^\w .,:;()/=+-]", "", f"{module}: {'; '.join(reasons)}")


def reboot(action: ActionBase, message: str, timeout_s: int, variables: dict[str, t.Any]) -> Result:
    """Ansible's own reboot of the node that the action works on, and its result; ``error_kind`` is ``reboot_failed`` where it failed."""
    task = action._task.copy()
    task.args = {"reboot_timeout": timeout_s, "msg": message}
    reboot_action = action._shared_loader_obj.action_loader.get(
        "ansible.builtin.reboot",
        task=task,
        connection=action._connection,
        play_context=action._play_context,
        loader=action._loader,
        templar=action._templar,
        shared_loader_obj=action._shared_loader_obj,
    )
    result = t.cast(Result, reboot_action.run(task_vars=variables))
    return {**result, "error_kind": "reboot_failed"} if result.get("failed") else result


__all__ = ["announcement", "reboot"]
