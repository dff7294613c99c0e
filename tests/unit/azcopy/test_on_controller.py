# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of azcopy_copy that cannot work are refused on the controller, before the module is sent."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins import loader as plugins
from ansible.plugins.loader import connection_loader
from ansible.template import Templar
from ansible_collections.hpcai.gpu_cluster.plugins.action.azcopy_copy import ActionModule

URL = "https://account.blob.core.windows.net/cosmoflow"
SECRET = "U0VDUkVUc2VjcmV0U0VDUkVUc2VjcmV0"
WHOLE = {"source": URL, "destination": "/mnt/data"}


def action(**options: t.Any) -> ActionModule:
    loader = DataLoader()
    task = Task.load({"action": "hpcai.gpu_cluster.azcopy_copy"}, loader=loader)
    task.args = {**WHOLE, **options}
    connection = connection_loader.get("local", PlayContext())
    return ActionModule(task, connection, PlayContext(), loader, Templar(loader=loader), plugins)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"block_size_mib": 0.3}, "AzCopy takes whole bytes only"),
        ({"block_size_mib": "0.3"}, "AzCopy takes whole bytes only"),
        ({"timeout_s": -1}, "timeout_s is -1.0: it has to be a number, and not negative"),
        ({"stall_timeout_s": -5}, "stall_timeout_s is -5.0"),
        ({"processes": -2}, "processes is -2"),
        ({"destination": "/"}, "the root of the node's file system"),
        ({"destination": "data"}, "is relative"),
        ({"include_pattern": ""}, "copy everything"),
        ({"file_list": "[]"}, "file_list is empty"),
        ({"file_list": '["a", "../b"]'}, "'../b'"),
        ({"file_list": '["a", '}, "`file_list` is a text that begins as JSON does and is none"),
        ({"source": f"{URL}?sv=1&sig={SECRET}", "cap_mbps": -1}, "not negative"),
    ],
)
def test_what_cannot_work_is_not_sent(monkeypatch: pytest.MonkeyPatch, options: dict[str, t.Any], words: str) -> None:
    made = action(**options)
    monkeypatch.setattr(made, "_execute_module", lambda **_options: pytest.fail("it was sent"))
    result = made.run(task_vars={})
    assert (result["failed"], result["error_kind"]) == (True, "bad_input")
    assert words in result["msg"]
    assert result["remedy"]
    assert SECRET not in json.dumps(result)


@pytest.mark.parametrize(
    ("given", "expected"),
    [('["a, b", "c"]', ["a, b", "c"]), ("a,c", ["a", "c"]), (["a", "c"], ["a", "c"])],
)
def test_a_list_may_be_a_text(monkeypatch: pytest.MonkeyPatch, given: t.Any, expected: list[str]) -> None:
    sent: list[t.Any] = []
    made = action(file_list=given)

    def note(**_options: t.Any) -> dict[str, t.Any]:
        sent.append(made._task.args["file_list"])
        return {"changed": False}

    monkeypatch.setattr(made, "_execute_module", note)
    made.run(task_vars={})
    assert sent == [expected]
