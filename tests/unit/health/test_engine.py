# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rounds over fleets that print what nccl-tests prints: who is named, and why; and who never is."""

from __future__ import annotations

import json
import pathlib
import typing as t
import xml.etree.ElementTree as ET

import jsonschema
import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._health_run.document import junit, planned, summary
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._health_run.engine import HealthRun, Request
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._health_run.journal import Journal
from health_fleet import Fleet, check, finish, nodes, request, told

ONE = ("all_reduce",)
SCHEMA = json.loads((pathlib.Path(__file__).parents[3] / "docs/health.schema.json").read_text())


def members(document: dict[str, t.Any]) -> list[list[str]]:
    return [one["members"] for one in document["suspects"]]


def test_a_healthy_fleet_takes_one_launch_per_check() -> None:
    document = check(Fleet(nodes(16)))
    assert document["verdict"] == "ok"
    assert document["suspects"] == []
    assert [len(one["rounds"]) for one in document["checks"]] == [1, 1, 1]
    assert all(370 < one["value"] < 400 for one in document["checks"])


@pytest.mark.parametrize("count", [4, 5, 16, 64])
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (0.6, "GB/s instead of"),
        (0.88, "GB/s instead of"),
        ("hang", "it hung"),
        ("wrong", "wrong results"),
        ("crash", "it failed with 3"),
    ],
)
def test_the_bad_node_is_named_with_its_reason_and_nobody_else(count: int, fault: float | str, reason: str) -> None:
    document = check(Fleet(nodes(count), {"n2": fault}))
    assert document["verdict"] == "fail"
    assert {tuple(one) for one in members(document)} == {("n2",)}
    assert reason in document["suspects"][0]["reason"]
    assert all(one["unknown"] == [] for one in document["checks"])


def test_later_checks_leave_out_whom_an_earlier_one_named() -> None:
    document = check(Fleet(nodes(16), {"n2": 0.6}))
    first, *others = document["checks"]
    assert first["verdict"] == "fail"
    assert len(first["rounds"]) == 4
    assert [(one["verdict"], len(one["rounds"]), one["left_out"]) for one in others] == [
        ("ok", 2, {"n2": "named by all_reduce"})
    ] * 2
    assert members(document) == [["n2"]]


@pytest.mark.parametrize(
    "pair",
    [("hang", 0.6), ("wrong", "hang"), (0.88, 0.88), ("crash", "wrong")],
    ids=lambda pair: "+".join(map(str, pair)),
)
def test_two_faults_at_once(pair: tuple[float | str, float | str]) -> None:
    document = check(Fleet(nodes(16), {"n2": pair[0], "n9": pair[1]}), checks=ONE)
    assert sorted(members(document)) == [["n2"], ["n9"]]


@pytest.mark.parametrize("fault", ["missing", "garbage", "crash", "hang"])
@pytest.mark.parametrize("count", [4, 64])
def test_what_every_launch_suffers_from_blames_nobody(fault: str, count: int) -> None:
    document = check(Fleet(nodes(count), {"all": fault}))
    assert document["verdict"] == "incomplete"
    assert document["suspects"] == []
    assert all(one["bad_nodes"] == [] and one["findings"][0]["kind"] == "not_measured" for one in document["checks"])
    if count == 64:
        assert document["run"]["rounds"] <= 6


def test_a_node_whose_output_cannot_be_read_is_not_blamed() -> None:
    document = check(Fleet(nodes(16), {"n0": "garbage"}), checks=ONE)
    assert document["suspects"] == []
    assert document["verdict"] == "incomplete"


def test_a_node_that_does_not_answer_is_named_and_the_others_are_checked() -> None:
    document = check(Fleet(nodes(16), {"n3": "gone"}))
    assert members(document) == [["n3"]]
    assert "no route" in document["suspects"][0]["reason"]
    assert [one["verdict"] for one in document["checks"]] == ["ok"] * 3
    assert document["verdict"] == "fail"


def test_sockets_fail_the_check_and_blame_nobody() -> None:
    fleet = Fleet(nodes(8), dict.fromkeys(nodes(8), 0.1), network="Socket")
    document = check(fleet, checks=ONE)
    assert document["verdict"] == "fail"
    assert document["suspects"] == []
    assert document["checks"][0]["findings"][0]["kind"] == "configuration"
    assert document["run"]["rounds"] == 1
    assert check(Fleet(nodes(8), network="Socket"), rdma=False)["verdict"] == "ok"


def test_without_attribution_a_slow_fleet_fails_and_nobody_is_named() -> None:
    document = check(Fleet(nodes(16), {"n2": 0.6}), checks=ONE, attribution=False)
    assert (document["verdict"], document["suspects"]) == ("fail", [])
    assert document["run"]["launches"] == 1


def test_without_both_the_whole_is_launched_and_judged() -> None:
    document = check(Fleet(nodes(16), {"n2": 0.6}), checks=ONE, attribution=False, acceptance=False)
    assert (document["verdict"], document["run"]["launches"]) == ("fail", 1)


def test_where_no_node_answers_it_is_not_the_nodes() -> None:
    document = check(Fleet(nodes(4), dict.fromkeys(nodes(4), "gone")))
    assert (document["verdict"], document["suspects"], document["run"]["rounds"]) == ("incomplete", [], 3)
    assert "no node answers" in document["checks"][0]["findings"][0]["text"]


@pytest.mark.parametrize("bound", [{"max_launches": 4}, {"max_minutes": 0.1}])
def test_a_bound_ends_it_without_a_verdict(bound: dict[str, t.Any]) -> None:
    document = check(Fleet(nodes(64), {"n2": 0.6}), checks=ONE, **bound)
    assert document["verdict"] == "incomplete"
    assert document["suspects"] == []
    assert next(iter(bound)) in document["run"]["stopped"]


def test_more_nodes_than_allowed_are_refused() -> None:
    with pytest.raises(ClusterError) as refused:
        HealthRun(Request(nodes=nodes(3), max_nodes=2))
    assert refused.value.kind == "too_many_nodes"


def test_a_launch_hangs_when_it_takes_half_as_long_again_as_a_healthy_one() -> None:
    fleet = Fleet(nodes(16), {"n2": 0.6})
    run = HealthRun(request(fleet, checks=ONE, timeout_s=600, grace_s=5))
    assert {one.timeout_s for one in run.next_round()} == {600}
    finish(run, fleet, 1)
    assert all(one.timeout_s <= 20 for one in run.next_round())


@pytest.mark.parametrize("fault", [0.6, "hang", "gone"])
def test_an_interrupted_run_goes_on_with_the_same_rounds(tmp_path: pathlib.Path, fault: float | str) -> None:
    asked = request(Fleet(nodes(16), {"n2": fault}))
    whole, fleet = HealthRun(asked), Fleet(nodes(16), {"n2": fault})
    rounds = finish(whole, fleet)
    for killed_after in range(len(rounds) + 1):
        path = str(tmp_path / f"{killed_after}.journal")
        journal = Journal(path, asked, "first")
        assert journal.restore(HealthRun(asked)) == 0
        for outcomes in rounds[:killed_after]:
            journal.add(outcomes, 10.0)
        with open(path, "a", encoding="utf-8") as file:
            file.write('{"outcomes": [{"id"')  # cut off
        run, again = HealthRun(asked), Journal(path, asked, "second")
        assert again.restore(run) == killed_after
        assert again.run_id == "first"
        for outcomes in rounds[killed_after:]:
            assert {one.id for one in run.next_round()} == {one.id for one in outcomes}
            run.record(outcomes, 10.0)
        assert json.dumps(told(run)["suspects"]) == json.dumps(told(whole)["suspects"])
        again.end()
        assert Journal(path, asked, "third").restore(HealthRun(asked)) == 0


def test_another_request_begins_anew(tmp_path: pathlib.Path) -> None:
    fleet, path = Fleet(nodes(8)), str(tmp_path / "journal")
    asked, other = request(fleet), request(fleet, seed=1)
    journal = Journal(path, asked, "first")
    journal.restore(HealthRun(asked))
    for outcomes in finish(HealthRun(asked), fleet):
        journal.add(outcomes, 1.0)
    assert Journal(path, other, "second").restore(HealthRun(other)) == 0


def test_junit_has_a_case_for_each_node() -> None:
    document = check(Fleet(nodes(8), {"n2": 0.6}), checks=ONE)
    suite = ET.fromstring(junit(document)).find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("9", "2")
    assert {case.get("name") for case in suite.findall("testcase[failure]")} == {"fleet", "n2"}
    assert "n2" in summary(document)


@pytest.mark.parametrize(
    "faults",
    [
        {},
        {"n2": 0.6},
        {"n2": "hang", "n5": "wrong"},
        {"n3": "gone"},
        {"all": "missing"},
        {"all": "garbage"},
        {"n0": "garbage"},
    ],
    ids=str,
)
def test_the_document_is_what_its_schema_says(faults: dict[str, float | str]) -> None:
    document = check(Fleet(nodes(8), faults))
    jsonschema.validate(document, SCHEMA, jsonschema.Draft202012Validator)
    stopped = check(Fleet(nodes(8), {"n2": 0.6}), max_launches=2)
    jsonschema.validate(stopped, SCHEMA, jsonschema.Draft202012Validator)


def test_check_mode_tells_what_would_be_launched() -> None:
    plan = HealthRun(request(Fleet(nodes(64)))).plan()
    assert plan["healthy"] == {"rounds": 3, "launches": 3}
    assert plan["one_bad_node"]["rounds"] == 4
    assert "would launch over 64 nodes: all_reduce_perf -b 8G -e 8G" in planned(plan)[0]
