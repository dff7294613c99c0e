# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action beeond_software: a key of the controller is looked at there, before any node hears of it."""

from __future__ import annotations

import pathlib
import types
import typing as t

import pytest
from ansible.errors import AnsibleError
from ansible.plugins.action.normal import ActionModule as NormalAction
from ansible_collections.hpcai.gpu_cluster.plugins.action.beeond_software import ActionModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import openpgp
from beeond_node import FINGERPRINT, KEY

WISH = {"repository_suite": "noble", "repository_fingerprint": FINGERPRINT}
Play = t.Callable[..., tuple[dict[str, t.Any], list[dict[str, t.Any]]]]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Run the action; returns its result, and the arguments with which the module was called, if it was."""

    def run(**args: t.Any) -> tuple[dict[str, t.Any], list[dict[str, t.Any]]]:
        called: list[dict[str, t.Any]] = []
        action = object.__new__(ActionModule)
        action._task = types.SimpleNamespace(args=args, action="beeond_software", get_ds=dict)
        action._loader = types.SimpleNamespace(get_real_file=lambda path: path)

        def needle(_self: object, _folder: str, name: str) -> str:
            if not pathlib.Path(name).exists():
                raise AnsibleError(f"Could not find {name}")
            return name

        def normal(self: ActionModule, *_args: t.Any) -> dict[str, t.Any]:
            called.append(self._task.args)
            return {"changed": False}

        monkeypatch.setattr(ActionModule, "_find_needle", needle)
        monkeypatch.setattr(NormalAction, "run", normal)
        return action.run(None, {}), called

    return run


@pytest.fixture
def key(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "key").write_bytes(KEY)
    return tmp_path / "key"


def test_the_right_key_goes_to_the_node_as_text(play: Play, key: pathlib.Path) -> None:
    _result, [args] = play(**WISH, repository_key=str(key))
    assert openpgp.fingerprints(args["repository_key_text"].encode()) == [FINGERPRINT]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"repository_fingerprint": "0" * 40}, "wrong_key"),
        ({"repository_fingerprint": ""}, "bad_input"),
        ({"repository_key": "/no/such/key"}, "key_missing"),
        ({"repository_url": "https://user:word@mirror.example.org/beegfs"}, "bad_input"),
    ],
)
def test_no_node_is_asked_with_a_key_that_is_not_right(
    play: Play, key: pathlib.Path, change: dict[str, str], kind: str
) -> None:
    result, called = play(**{**WISH, "repository_key": str(key), **change})
    assert (result["error_kind"], called) == (kind, [])
    assert "word" not in result["msg"].replace("password", "")


@pytest.mark.parametrize(
    "change",
    [
        {"repository_key": "https://mirror.example.org/key"},
        {"repository_key": ""},
        {"repository_suite": ""},
    ],
)
def test_a_key_that_is_not_of_the_controller_is_left_to_the_node(play: Play, change: dict[str, str]) -> None:
    _result, [args] = play(**{**WISH, "repository_key": "/no/such/key", **change})
    assert "repository_key_text" not in args
