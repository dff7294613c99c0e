# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests that run a whole module see what Ansible would: without secrets, and in JSON's types."""

from __future__ import annotations

import typing as t

import pytest
from ansible.module_utils.basic import AnsibleModule
from module_run import print_main, run_main

SECRET = "c2VjcmV0IG9mIHRoaXMgdGVzdA"
SPEC = {"token": {"type": "str", "no_log": True}, "fail": {"type": "bool", "default": False}}


def leaves(**result: t.Any) -> t.Callable[[], None]:
    """A module that returns this, with its secret in the middle of a sentence."""

    def main() -> None:
        module = AnsibleModule(argument_spec=SPEC)
        text = f"sent {module.params['token']} to the service"
        if module.params["fail"]:
            module.fail_json(msg=text, **result)
        module.exit_json(text=text, nested=[{"token": module.params["token"]}], **result)

    return main


def test_a_secret_is_masked_wherever_it_stands() -> None:
    arguments = {"token": SECRET}
    assert SECRET not in print_main(leaves(), arguments)
    result = run_main(leaves(), arguments)
    assert result["text"] == "sent ******** to the service"
    assert result["nested"] == [{"token": "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"}]


def test_a_secret_is_masked_in_a_failure() -> None:
    result = run_main(leaves(error_kind="refused"), {"token": SECRET, "fail": True})
    assert (result["failed"], result["msg"], result["error_kind"]) == (True, "sent ******** to the service", "refused")


def test_a_result_has_the_types_that_json_gives_back() -> None:
    result = run_main(leaves(pair=(1, 2), names={1: "one"}), {"token": SECRET})
    assert (result["failed"], result["pair"], result["names"]) == (False, [1, 2], {"1": "one"})


def test_what_json_does_not_know_ends_the_test() -> None:
    with pytest.raises(TypeError):
        run_main(leaves(odd=object()), {"token": SECRET})
