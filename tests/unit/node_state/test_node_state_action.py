# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action node_state: how many calls it makes, and in which order. The modules it calls are played by a script."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.hpcai.gpu_cluster.plugins.action.node_state import ActionModule

MODULE = "hpcai.gpu_cluster.node_state"
APT = "ansible.builtin.apt"
NEEDS = {"changed": False, "needs": {"packages": ["tool"], "package_manager": "dpkg", "archives": []}}
DONE = {"changed": False, "changes": [], "diff": []}


def play(
    monkeypatch: pytest.MonkeyPatch, script: list[tuple[str, dict[str, t.Any]]], **args: t.Any
) -> tuple[dict[str, t.Any], list[tuple[str, dict[str, t.Any]]]]:
    """Run the action; ``script`` holds the module that is expected next and its result."""
    calls: list[tuple[str, dict[str, t.Any]]] = []

    def execute(
        _self: object, module_name: str, module_args: dict[str, t.Any], task_vars: dict[str, t.Any]
    ) -> dict[str, t.Any]:
        expected, result = script[len(calls)]
        assert module_name == expected
        calls.append((module_name, module_args))
        return dict(result)

    monkeypatch.setattr(ActionModule, "_execute_module", execute)
    monkeypatch.setattr(ActionBase, "run", lambda *_args: {})
    action = object.__new__(ActionModule)
    action._task = types.SimpleNamespace(args=args)
    result = action.run(None, {})
    assert len(calls) == len(script)
    return result, calls


def test_a_node_that_lacks_nothing_costs_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _calls = play(monkeypatch, [(MODULE, DONE)], packages=["tool"])
    assert result["changed"] is False


def test_missing_packages_are_installed_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    change = {"kind": "file", "name": "/f", "what": "create"}
    second = {"changed": True, "changes": [change], "diff": [{"after": "x"}]}
    result, calls = play(monkeypatch, [(MODULE, NEEDS), (APT, {}), (MODULE, second)], packages=["tool"])
    assert calls[1][1]["name"] == ["tool"]
    assert calls[1][1]["update_cache"] is False
    assert result["changed"] is True
    assert result["changes"] == [{"kind": "package", "name": "tool", "what": "install"}, change]
    assert len(result["diff"]) == 2


def test_the_lists_of_packages_are_read_again_only_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    script = [(MODULE, NEEDS), (APT, {"failed": True}), (APT, {}), (MODULE, DONE)]
    _result, calls = play(monkeypatch, script, packages=["tool"])
    assert [call[1].get("update_cache") for call in calls[1:3]] == [False, True]


def test_a_package_that_cannot_be_installed_ends_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    script = [(MODULE, NEEDS), (APT, {"failed": True}), (APT, {"failed": True, "msg": "No package matching 'tool'"})]
    result, _calls = play(monkeypatch, script, packages=["tool"])
    assert result["failed"] is True
    assert result["error_kind"] == "package_failed"


def test_a_package_that_stays_missing_is_no_endless_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AnsibleActionFail, match="tool is still missing"):
        play(monkeypatch, [(MODULE, NEEDS), (APT, {}), (MODULE, NEEDS)], packages=["tool"])


def test_a_failure_of_the_module_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _calls = play(monkeypatch, [(MODULE, {"failed": True, "msg": "no"})], packages=["tool"])
    assert result["msg"] == "no"


def test_misspelled_options_never_reach_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AnsibleActionFail, match="pakages"):
        play(monkeypatch, [], pakages=["tool"])


def test_items_that_do_not_count_never_travel_and_may_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [{"when": "no", "pth": ""}, {"when": "yes", "path": "/f", "content": "x"}]
    _result, calls = play(monkeypatch, [(MODULE, DONE)], files=files, packages=[{"name": "tool", "when": False}])
    assert calls[0][1] == {"files": [{"path": "/f", "content": "x"}], "packages": []}


def test_a_when_that_is_no_boolean_never_reaches_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AnsibleActionFail, match="not a boolean"):
        play(monkeypatch, [], files=[{"path": "/f", "content": "x", "when": "perhaps"}])


def test_sensitive_content_travels_in_the_hidden_option(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [{"path": "/k", "content": "secret", "sensitive": "yes"}, {"path": "/f", "content": "x"}]
    _result, calls = play(monkeypatch, [(MODULE, DONE)], files=files)
    assert calls[0][1]["files"] == [
        {"path": "/k", "sensitive": "yes", "secret_content": "secret"},
        {"path": "/f", "content": "x"},
    ]
    assert files[0]["content"] == "secret"


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ({"content": "x", "src": "y"}, "mutually exclusive"),
        ({"src": "x", "template": "y"}, "mutually exclusive"),
        ({"template_vars": {}, "content": "x"}, "template_vars"),
        ({}, "one of the following is required"),
    ],
)
def test_a_file_has_one_source(monkeypatch: pytest.MonkeyPatch, item: dict[str, t.Any], says: str) -> None:
    with pytest.raises(AnsibleActionFail, match=says):
        play(monkeypatch, [], files=[{"path": "/f", **item}])
