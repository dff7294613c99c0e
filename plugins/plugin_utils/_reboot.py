# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one way in which a role reboots a node: the action of its module does, when the module found that it is due and agreed to."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible.plugins.action import ActionBase
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._run_action import run_action

Result = dict[str, t.Any]


@dataclasses.dataclass(frozen=True)
class Reboots:
    """What a module has the node rebooted for.

    ``module`` is its full name, ``most`` how many reboots one task may make. ``reasons`` reads from a result why
    a reboot is due; empty: none is. ``in_vain`` gets the results before and after the last reboot, where that left a reason,
    and returns what the failure says: ``msg``, ``remedy``, and whatever else differs from the result after it.
    """

    module: str
    reasons: t.Callable[[Result], t.Sequence[str]]
    in_vain: t.Callable[[Result, Result], Result]
    most: int = 1


def announcement(module: str, reasons: t.Sequence[str]) -> str:
    """What users of the node are told. The reboot hands it to a shell between double quotes, so nothing in it may end them."""
    return re.sub(r"[^\w .,:;()/=+-]", "", f"{module}: {'; '.join(reasons)}")


def run_module(action: ActionBase, module: str, variables: dict[str, t.Any]) -> Result:
    """The result of the module of this full name, with the task's arguments."""
    return t.cast(
        Result, action._execute_module(module_name=module, module_args=dict(action._task.args), task_vars=variables)
    )


def run_and_reboot(action: ActionBase, reboots: Reboots, timeout_s: int, variables: dict[str, t.Any]) -> Result:
    """Run the module, and where it asks for a reboot, reboot and run it again. In check mode it is run once.

    ``timeout_s`` is for one reboot. A reboot that fails is ``reboot_failed``, one that was no help ``reboot_in_vain``.
    """
    result = run_module(action, reboots.module, variables)
    if action._task.check_mode:
        return result
    before = result
    for _number in range(reboots.most):
        reasons = _due(reboots, result)
        if not reasons:
            return result
        rebooted = _reboot(action, announcement(reboots.module.rpartition(".")[2], reasons), timeout_s, variables)
        if rebooted.get("failed"):
            return {**rebooted, "changed": result.get("changed", False), "changes": result.get("changes")}
        before, result = result, _joined(result, run_module(action, reboots.module, variables))
        if _due(reboots, result) == reasons:
            break
    if not _due(reboots, result):
        return result
    return {**result, "failed": True, "error_kind": "reboot_in_vain", **reboots.in_vain(before, result)}


def _due(reboots: Reboots, result: Result) -> t.Sequence[str]:
    """Why the node is to be rebooted now. After a failure it is not."""
    return () if result.get("failed") else reboots.reasons(result)


def _reboot(action: ActionBase, message: str, timeout_s: int, variables: dict[str, t.Any]) -> Result:
    """Ansible's own reboot of the node, and its result; ``error_kind`` is ``reboot_failed`` where it failed."""
    args = {"reboot_timeout": timeout_s, "msg": message}
    result = run_action(action, "ansible.builtin.reboot", args, variables)
    return {**result, "error_kind": "reboot_failed"} if result.get("failed") else result


def _joined(first: Result, second: Result) -> Result:
    """The result of two runs of the module with a reboot between them: what is so now, and what was changed by both."""
    told = {key: [*(first.get(key) or []), *(second.get(key) or [])] for key in ("changes", "diff")}
    return {**second, **told, "rebooted": True, "changed": True}


__all__ = ["Reboots", "announcement", "run_and_reboot", "run_module"]
