# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action rdma_stack: it reboots where the module asks for it, nowhere else, and looks whether that helped."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.hpcai.gpu_cluster.plugins.action.rdma_stack import ActionModule

DONE = {"changed": True, "changes": [{"kind": "stack"}], "diff": [{"after": "it"}], "reboot_required": False}
WAITING = {**DONE, "reboot_required": True}
RIGHT = {"changed": False, "changes": [], "diff": [], "reboot_required": False}
REBOOTED = {"rebooted": True}


class Play:
    """The action on a script of the module's results, with a reboot that is played: the calls, and the reboots with their options."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *script: dict[str, t.Any], reboot: dict[str, t.Any]) -> None:
        self.script, self.reboot = list(script), reboot
        self.calls: list[str] = []
        self.reboots: list[dict[str, t.Any]] = []
        monkeypatch.setattr(ActionBase, "run", lambda *_args: {})
        monkeypatch.setattr(ActionModule, "_execute_module", lambda _self, **_options: self._module())

    def _module(self) -> dict[str, t.Any]:
        self.calls.append("module")
        return dict(self.script[self.calls.count("module") - 1])

    def run(self, *, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
        """Run the action with these options of the module."""
        play = self

        class Reboot:
            def __init__(self, task: t.Any) -> None:
                self.task = task

            def run(self, task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
                play.calls.append("reboot")
                play.reboots.append(self.task.args)
                return play.reboot

        action = object.__new__(ActionModule)
        copied = types.SimpleNamespace(args={})
        action._task = types.SimpleNamespace(args=options, check_mode=check, copy=lambda: copied)
        loader = types.SimpleNamespace(
            get=lambda name, **given: {"ansible.builtin.reboot": Reboot}[name](given["task"])
        )
        action._shared_loader_obj = types.SimpleNamespace(action_loader=loader)
        action._connection = action._play_context = action._loader = action._templar = None
        return t.cast("dict[str, t.Any]", action.run(None, {}))


def test_a_reboot_that_new_modules_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(monkeypatch, WAITING, RIGHT, reboot=REBOOTED)
    result = play.run(reboot_timeout_s=300)
    assert play.calls == ["module", "reboot", "module"]
    assert [one["reboot_timeout"] for one in play.reboots] == [300]
    assert (result["rebooted"], result["reboot_required"], result["changed"]) == (True, False, True)
    assert (result["changes"], result["diff"]) == (WAITING["changes"], WAITING["diff"])


def test_what_is_done_after_the_reboot_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    later = {**DONE, "changes": [{"kind": "sysctl"}], "diff": []}
    result = Play(monkeypatch, WAITING, later, reboot=REBOOTED).run()
    assert result["changes"] == [{"kind": "stack"}, {"kind": "sysctl"}]


def test_a_reboot_that_brings_the_old_modules_again_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module plans the same reboot again, which is not made."""
    play = Play(monkeypatch, WAITING, {**WAITING, "changes": [{"what": "reboot"}]}, reboot=REBOOTED)
    result = play.run()
    assert play.calls == ["module", "reboot", "module"]
    assert (result["failed"], result["error_kind"]) == (True, "reboot_in_vain")
    assert "old RDMA modules are loaded again" in result["msg"]
    assert "`initramfs`" in result["msg"]
    assert (result["changed"], result["rebooted"], result["changes"]) == (True, True, WAITING["changes"])


def test_a_failure_after_the_reboot_tells_what_was_changed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = {"failed": True, "error_kind": "in_use", "msg": "busy"}
    result = Play(monkeypatch, WAITING, failure, reboot=REBOOTED).run()
    assert (result["failed"], result["error_kind"], result["msg"]) == (True, "in_use", "busy")
    assert (result["changed"], result["rebooted"], result["changes"]) == (True, True, WAITING["changes"])
    assert "reboot_required" not in result


@pytest.mark.parametrize(
    ("found", "check"), [(DONE, False), (WAITING, True), ({"failed": True, "reboot_required": True}, False)]
)
def test_nothing_is_rebooted(monkeypatch: pytest.MonkeyPatch, found: dict[str, t.Any], check: bool) -> None:
    play = Play(monkeypatch, found, reboot={})
    assert play.run(check=check) == found
    assert play.calls == ["module"]


def test_a_node_that_does_not_come_back_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    result = Play(monkeypatch, WAITING, reboot={"failed": True, "msg": "Timed out"}).run()
    assert (result["failed"], result["error_kind"], result["msg"]) == (True, "reboot_failed", "Timed out")
    assert result["changes"] == WAITING["changes"]


@pytest.mark.parametrize("timeout", [None, "soon"])
def test_options_are_looked_at_before_the_node_is_changed(monkeypatch: pytest.MonkeyPatch, timeout: t.Any) -> None:
    play = Play(monkeypatch, WAITING, reboot=REBOOTED)
    with pytest.raises(AnsibleActionFail, match="reboot_timeout_s"):
        play.run(reboot_timeout_s=timeout)
    assert play.calls == []
