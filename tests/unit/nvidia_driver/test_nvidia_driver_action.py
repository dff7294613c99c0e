# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action nvidia_driver: it reboots only where that was agreed to, and lets the module finish afterwards."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.hpcai.gpu_cluster.plugins.action.nvidia_driver import ActionModule
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._reboot import announcement

PENDING = {"changed": True, "changes": [{"name": "nvidia-open"}], "diff": [{}], "reboot_required": ["570 runs"]}
DONE = {"changed": False, "changes": [], "diff": [], "reboot_required": [], "loaded": "580.95.05"}


def play(
    monkeypatch: pytest.MonkeyPatch,
    script: list[dict[str, t.Any]],
    *,
    reboot: dict[str, t.Any] | None = None,
    check: bool = False,
    **args: t.Any,
) -> tuple[dict[str, t.Any], list[str]]:
    """Run the action. ``script`` holds the module's results; the reboot is played, too."""
    calls: list[str] = []

    def execute(_self: object, **_options: t.Any) -> dict[str, t.Any]:
        calls.append("module")
        return dict(script[calls.count("module") - 1])

    class Reboot:
        def __init__(self, task: t.Any) -> None:
            assert task.args["reboot_timeout"] == 1200
            assert "570 runs" in task.args["msg"]

        def run(self, task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
            calls.append("reboot")
            return reboot or {"rebooted": True}

    monkeypatch.setattr(ActionModule, "_execute_module", execute)
    monkeypatch.setattr(ActionBase, "run", lambda *_args: {})
    action = object.__new__(ActionModule)
    task = types.SimpleNamespace(args=args, check_mode=check, copy=lambda: types.SimpleNamespace(args={}))
    action._task = task
    loader = types.SimpleNamespace(get=lambda _name, **options: Reboot(options["task"]))
    action._shared_loader_obj = types.SimpleNamespace(action_loader=loader)
    action._connection = action._play_context = action._loader = action._templar = None
    monkeypatch.setattr(
        ActionModule,
        "validate_argument_spec",
        lambda *_args, **_options: (
            None,
            {"allow_reboot": False, "phases": ["install", "configure"], "reboot_timeout_s": 1200, **args},
        ),
    )
    return action.run(None, {}), calls


def test_nothing_pending_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    result, calls = play(monkeypatch, [DONE], allow_reboot=True)
    assert calls == ["module"]
    assert result["changed"] is False


def test_the_node_is_rebooted_and_the_module_finishes(monkeypatch: pytest.MonkeyPatch) -> None:
    result, calls = play(monkeypatch, [PENDING, DONE], allow_reboot=True)
    assert calls == ["module", "reboot", "module"]
    assert (result["changed"], result["rebooted"], result["loaded"]) == (True, True, "580.95.05")
    assert result["changes"] == PENDING["changes"]


@pytest.mark.parametrize(
    "parts",
    [{}, {"allow_reboot": False}, {"allow_reboot": True, "phases": ["install"]}, {"allow_reboot": True, "check": True}],
)
def test_no_reboot_without_consent_in_an_image_or_in_check_mode(
    monkeypatch: pytest.MonkeyPatch, parts: dict[str, t.Any]
) -> None:
    result, calls = play(monkeypatch, [PENDING], **parts)
    assert calls == ["module"]
    assert result["reboot_required"] == ["570 runs"]


def test_a_refusal_reboots_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _result, calls = play(monkeypatch, [{**PENDING, "failed": True}], allow_reboot=True)
    assert calls == ["module"]


def test_a_node_that_does_not_come_back_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    result, calls = play(monkeypatch, [PENDING], reboot={"failed": True, "msg": "Timed out"}, allow_reboot=True)
    assert calls == ["module", "reboot"]
    assert result["error_kind"] == "reboot_failed"
    # The driver was changed before.
    assert (result["changed"], result["changes"]) == (True, PENDING["changes"])


def test_a_reboot_that_changed_nothing_is_a_failure_and_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    result, calls = play(monkeypatch, [PENDING, PENDING], allow_reboot=True)
    assert calls == ["module", "reboot", "module"]
    assert (result["failed"], result["error_kind"]) == (True, "reboot_in_vain")
    assert "570 runs" in result["msg"]


def test_modes_that_only_the_new_driver_could_set_get_their_own_reboot(monkeypatch: pytest.MonkeyPatch) -> None:
    modes = {**PENDING, "changes": [{"name": "0 ecc"}], "reboot_required": ["570 runs no more; GPU 0: ecc on"]}
    result, calls = play(monkeypatch, [PENDING, modes, DONE], allow_reboot=True)
    assert calls == ["module", "reboot"] * 2 + ["module"]
    assert [change["name"] for change in result["changes"]] == ["nvidia-open", "0 ecc"]
    assert not result.get("failed")
    again = {**modes, "reboot_required": ["570 runs no more; GPU 1: ecc on"]}
    result, calls = play(monkeypatch, [PENDING, modes, again], allow_reboot=True)
    assert calls.count("reboot") == 2
    assert result["error_kind"] == "reboot_in_vain"


def test_a_failure_after_the_reboot_keeps_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {**DONE, "failed": True, "msg": "driver_wrong", "reboot_required": ["570 runs"]}
    result, _calls = play(monkeypatch, [PENDING, wrong], allow_reboot=True)
    assert (result["failed"], result["msg"]) == (True, "driver_wrong")
    assert (result["changed"], result["rebooted"], result["changes"]) == (True, True, PENDING["changes"])


def test_what_is_announced_cannot_leave_its_quotes() -> None:
    """An option's value comes from the inventory and may hold anything; RegistryDwords have quotes of their own."""
    said = announcement("nvidia_driver", ['runs with NVreg_RegistryDwords="A=1;", and $(id) `id` \\ is wanted\n'])
    assert said == "nvidia_driver: runs with NVreg_RegistryDwords=A=1;, and (id) id  is wanted"


def test_a_version_that_yaml_read_as_a_number_is_told_to_be_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    result, calls = play(monkeypatch, [DONE], version=580.95)
    assert calls == []
    assert result["msg"].startswith("`version`: it is the number 580.95")
    assert 'in quotes, "580.95"' in result["msg"]
    assert play(monkeypatch, [DONE], version="580.95")[1] == ["module"]
