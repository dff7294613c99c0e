# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action node_state: how many calls it makes, and in which order. The modules it calls are played by a script."""

from __future__ import annotations

import copy
import hashlib
import types
import typing as t

import pytest
from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.action import ActionBase
from ansible.template import Templar, trust_as_template
from ansible_collections.hpcai.gpu_cluster.plugins.action.node_state import ActionModule

MODULE = "hpcai.gpu_cluster.node_state"
APT = "ansible.builtin.apt"
BIG = "x" * 5000
BIG_SUM = hashlib.sha256(BIG.encode()).hexdigest()
NEEDS = {"changed": False, "needs": {"packages": ["tool"], "package_manager": "dpkg", "archives": []}}
DONE = {"changed": False, "changes": [], "diff": []}


def play(
    monkeypatch: pytest.MonkeyPatch,
    script: list[tuple[str, dict[str, t.Any]]],
    defaults: dict[str, t.Any] | None = None,
    **args: t.Any,
) -> tuple[dict[str, t.Any], list[tuple[str, dict[str, t.Any]]]]:
    """Run the action; ``script`` holds the module that is expected next and its result."""
    calls: list[tuple[str, dict[str, t.Any]]] = []

    def execute(
        _self: object, module_name: str, module_args: dict[str, t.Any], task_vars: dict[str, t.Any]
    ) -> dict[str, t.Any]:
        expected, result = script[len(calls)]
        assert module_name == expected
        calls.append((module_name, copy.deepcopy(module_args)))
        return dict(result)

    monkeypatch.setattr(ActionModule, "_execute_module", execute)
    monkeypatch.setattr(ActionBase, "run", lambda *_args: {})
    action = object.__new__(ActionModule)
    parent = types.SimpleNamespace(_play=types.SimpleNamespace(_action_groups={APT: ["group"]}))
    action._task = types.SimpleNamespace(args=args, module_defaults=[defaults or {}], _parent=parent)
    action._templar = Templar(loader=DataLoader(), variables={"minutes": 7})
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


def test_what_the_module_asks_for_next_is_installed_after_what_it_asked_for_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds = [{**NEEDS, "needs": {**NEEDS["needs"], "packages": [name]}} for name in ("repository", "tool")]
    script = [(MODULE, rounds[0]), (APT, {}), (MODULE, rounds[1]), (APT, {}), (MODULE, DONE)]
    result, calls = play(monkeypatch, script, packages=["tool", {"name": "repository", "first": True}])
    assert [args["name"] for module, args in calls if module == APT] == [["repository"], ["tool"]]
    assert [change["name"] for change in result["changes"]] == ["repository", "tool"]


def test_the_lists_of_packages_are_read_again_only_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    script = [(MODULE, NEEDS), (APT, {"failed": True}), (APT, {}), (MODULE, DONE)]
    _result, calls = play(monkeypatch, script, packages=["tool"])
    assert [call[1].get("update_cache") for call in calls[1:3]] == [False, True]


def test_the_defaults_of_the_play_for_apt_count(monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = {
        APT: {
            "lock_timeout": trust_as_template("{{ minutes * 60 }}"),
            "allow_unauthenticated": True,
            "state": "latest",
        },
        "group/group": {"install_recommends": False},
    }
    script = [(MODULE, NEEDS), (APT, {}), (MODULE, DONE)]
    _result, calls = play(monkeypatch, script, defaults, packages=["tool"])
    assert calls[1][1] == {
        "name": ["tool"],
        "state": "present",
        "lock_timeout": 420,
        "allow_unauthenticated": True,
        "install_recommends": False,
        "update_cache": False,
    }


@pytest.mark.parametrize("wish", [{"update_cache": False}, {"update_cache": True}, {"cache_valid_time": 3600}])
def test_a_play_that_says_when_lists_are_read_is_obeyed(
    monkeypatch: pytest.MonkeyPatch, wish: dict[str, t.Any]
) -> None:
    script = [(MODULE, NEEDS), (APT, {"failed": True, "msg": "No package matching 'tool'"})]
    result, calls = play(monkeypatch, script, {APT: wish}, packages=["tool"])
    assert result["error_kind"] == "package_failed"
    assert calls[1][1] == {"name": ["tool"], "state": "present", "lock_timeout": 300, **wish}


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
    files = [
        {"path": "/k", "content": "secret", "sensitive": "yes"},
        {"path": "/f", "content": "x"},
        {"path": "/d", "content": {"key": "secret", 3: [None, 1.5]}, "sensitive": True},
        {"path": "/n", "content": 4711, "sensitive": True},
    ]
    _result, calls = play(monkeypatch, [(MODULE, DONE)], files=files)
    assert calls[0][1]["files"] == [
        {"path": "/k", "sensitive": "yes", "secret_content": "secret"},
        {"path": "/f", "content": "x"},
        {"path": "/d", "sensitive": True, "secret_content": "{'key': 'secret', '3': [None, 1.5]}"},
        {"path": "/n", "sensitive": True, "secret_content": "4711"},
    ]
    assert files[0]["content"] == "secret"


def needs(*numbers: int, **parts: t.Any) -> dict[str, t.Any]:
    nothing = {"packages": [], "package_manager": "", "archives": [], "files": list(numbers)}
    return {"changed": False, "needs": {**nothing, **parts}}


def test_much_content_travels_only_where_it_is_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [{"path": "/a", "content": BIG, "mode": "0600"}, {"path": "/b", "content": "small"}]
    _result, calls = play(monkeypatch, [(MODULE, DONE)], files=files)
    assert calls[0][1]["files"][0] == {"path": "/a", "mode": "0600", "sha256": BIG_SUM}
    assert BIG not in str(calls)
    _result, calls = play(monkeypatch, [(MODULE, needs(0)), (MODULE, DONE)], files=files)
    assert calls[0][1]["files"][0]["sha256"] == BIG_SUM
    assert calls[1][1]["files"][0] == {"path": "/a", "mode": "0600", "content": BIG}
    assert set(calls[1][1]["files"][1]) == {"path", "sha256"}


def test_a_file_that_changes_between_two_calls_is_sent_with_the_third(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [{"path": "/a", "content": BIG}, {"path": "/b", "content": BIG}]
    _result, calls = play(monkeypatch, [(MODULE, needs(0)), (MODULE, needs(1)), (MODULE, DONE)], files=files)
    assert [["content" in item for item in call[1]["files"]] for call in calls] == [
        [False, False],
        [True, False],
        [True, True],
    ]


def test_a_node_that_asks_again_for_what_it_has_is_no_endless_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AnsibleActionFail, match="asks again"):
        play(monkeypatch, [(MODULE, needs(0)), (MODULE, needs(0))], files=[{"path": "/a", "content": BIG}])


def test_packages_come_before_bytes_and_are_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    script = [(MODULE, NEEDS), (APT, {}), (MODULE, needs(0)), (MODULE, {"changed": True, "changes": [], "diff": []})]
    result, _calls = play(monkeypatch, script, packages=["tool"], files=[{"path": "/a", "content": BIG}])
    assert [change["name"] for change in result["changes"]] == ["tool"]


def test_a_secret_travels_at_once_and_never_as_a_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [{"path": "/a", "content": BIG}, {"path": "/k", "content": BIG, "sensitive": True}]
    _result, calls = play(monkeypatch, [(MODULE, DONE)], files=files)
    assert calls[0][1]["files"][1] == {"path": "/k", "sensitive": True, "secret_content": BIG}


def test_what_a_diff_cannot_show_comes_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    _result, calls = play(monkeypatch, [(MODULE, DONE)], files=[{"path": "/a", "content": BIG * 21}])
    assert calls[0][1]["files"][0]["size"] == 105_000


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


@pytest.mark.parametrize("option", ["files", "archives"])
@pytest.mark.parametrize("shape", [str, lambda text: [text]], ids=["text", "list"])
def test_items_that_are_words_are_refused(
    monkeypatch: pytest.MonkeyPatch, option: str, shape: t.Callable[[str], t.Any]
) -> None:
    """Ansible would take them for mappings; the action looks into the items itself."""
    words = {"files": "path=/x content=y", "archives": f"path=/x src=/y sha256={'0' * 64}"}[option]
    with pytest.raises(AnsibleActionFail, match=f"^Item 1 of `{option}` is not a mapping. Write") as caught:
        play(monkeypatch, [], **{option: shape(words)})
    assert words not in str(caught.value)
