# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action rdma_stack: it reboots where the module asks for it, and nowhere else."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.hpcai.gpu_cluster.plugins.action.rdma_stack import ActionModule

DONE = {"changed": True, "changes": [{"kind": "stack"}], "reboot_required": False}
WAITING = {**DONE, "reboot_required": True}


def play(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, t.Any], reboot: dict[str, t.Any], *, check: bool = False
) -> tuple[dict[str, t.Any], list[dict[str, t.Any]]]:
    """Run the action on what the module found, and play the reboot: the result, and the reboots with their options."""
    reboots: list[dict[str, t.Any]] = []

    class Reboot:
        def __init__(self, task: t.Any) -> None:
            self.task = task

        def run(self, task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
            reboots.append(self.task.args)
            return reboot

    monkeypatch.setattr(ActionBase, "run", lambda *_args: {})
    monkeypatch.setattr(ActionModule, "_execute_module", lambda _self, **_options: dict(found))
    action = object.__new__(ActionModule)
    copied = types.SimpleNamespace(args={})
    action._task = types.SimpleNamespace(args={"reboot_timeout_s": 300}, check_mode=check, copy=lambda: copied)
    loader = types.SimpleNamespace(
        get=lambda name, **options: {"ansible.builtin.reboot": Reboot}[name](options["task"])
    )
    action._shared_loader_obj = types.SimpleNamespace(action_loader=loader)
    action._connection = action._play_context = action._loader = action._templar = None
    return action.run(None, {}), reboots


def test_a_reboot_that_new_modules_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    result, reboots = play(monkeypatch, WAITING, {"rebooted": True})
    assert [one["reboot_timeout"] for one in reboots] == [300]
    assert (result["rebooted"], result["changed"], result["changes"]) == (True, True, WAITING["changes"])


@pytest.mark.parametrize(
    ("found", "check"), [(DONE, False), (WAITING, True), ({"failed": True, "reboot_required": True}, False)]
)
def test_nothing_is_rebooted(monkeypatch: pytest.MonkeyPatch, found: dict[str, t.Any], check: bool) -> None:
    result, reboots = play(monkeypatch, found, {}, check=check)
    assert reboots == []
    assert result == found


def test_a_node_that_does_not_come_back_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _reboots = play(monkeypatch, WAITING, {"failed": True, "msg": "Timed out"})
    assert (result["failed"], result["error_kind"], result["msg"]) == (True, "reboot_failed", "Timed out")
    assert result["changes"] == WAITING["changes"]
