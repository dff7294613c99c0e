# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""dataset_plan, the role's first step, where the service refuses or does not answer: what it prints, and that it leaves nothing."""

from __future__ import annotations

import json
import threading
import types
import typing as t
import urllib.parse

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob import catalogue, listing
from ansible_collections.hpcai.gpu_cluster.plugins.modules import dataset_plan
from lab.blob.service import free_port
from module_run import print_main

pytestmark = pytest.mark.blob

Plan = t.Callable[[t.Mapping[str, t.Any]], dict[str, t.Any]]


@pytest.fixture
def plan(staging) -> Plan:
    """The module with these parts of a source replaced, check mode or not; what it prints is in no case the signature."""

    def work(change: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        options = staging.params()
        source = {**options["sources"][0], **change}
        wanted = {"sources": [source], "destination": options["destination"], "hosts": options["hosts"]}
        for check_mode in (True, False):
            output = print_main(dataset_plan.main, {**wanted, "_ansible_check_mode": check_mode})
            signature = source["sas"].partition("sig=")[2].partition("&")[0]
            assert signature not in output
            assert urllib.parse.unquote(signature) not in output
        assert not (staging.destination / "data").exists()
        return t.cast("dict[str, t.Any]", json.loads(output))

    return work


@pytest.mark.parametrize("kind", ["sas_expired", "auth_failed", "container_missing"])
def test_a_refusal_is_named_and_nothing_is_made(staging, plan: Plan, kind: str) -> None:
    staging.fill(2)
    change = {
        "sas_expired": {"sas": staging.service.sas("rl", -3600)},
        "auth_failed": {"sas": staging.service.sas("rl").replace("sig=", "sig=AAAA")},
        "container_missing": {"url": staging.service.url("nothing-here")},
    }[kind]
    result = plan(change)
    assert (result["failed"], result["error_kind"]) == (True, kind), result["msg"]
    assert result["remedy"]


@pytest.mark.usefixtures("in_this_process")
def test_an_endpoint_that_does_not_answer_is_given_up_in_time(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the limits that the module itself sets, by a clock that goes on by the pauses between the tries."""
    paused: list[float] = []

    class Event(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            paused.append(timeout or 0)
            return self.is_set()

    names = {**vars(threading), "Event": Event}
    monkeypatch.setattr(catalogue, "threading", types.SimpleNamespace(**names))
    monkeypatch.setattr(listing, "time", types.SimpleNamespace(monotonic=lambda: sum(paused)))
    result = plan({"url": f"http://127.0.0.1:{free_port()}/account/data"})
    assert (result["failed"], result["error_kind"]) == (True, "unreachable"), result["msg"]
    per_run = sum(paused) / 2
    assert 1 < per_run < 80, paused
