# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that drops out in the middle of a task changes nobody else's share, and every file is read once.

Hosts become unreachable at one task each, and come before those that stay.
"""

from __future__ import annotations

import pytest
from role_plays import (
    COLLECT,
    COMPARE,
    FOLLOW,
    LIST,
    OWN,
    READ,
    ROLE,
    START,
    UNREACHABLE,
    Calls,
    Play,
    run_plays,
    stay,
)

# All of them are one process, so that the newest ansible-core takes all or none.
pytestmark = [pytest.mark.slow, pytest.mark.newest]

STAY = ["first", "x", "y"]
SHARED = Play("shared", "shared", stay(*STAY, a=START, b=COLLECT, c=READ))
LOCAL = Play("local", "local", stay(*STAY, a=OWN, b=START, c=COLLECT, d=COMPARE))
#: Nothing of it is missing.
WHOLE = Play("whole", "shared", stay("first", "x"), missing=0)
#: One dataset is copied, then another one is verified.
OTHER = {"ansible.builtin.import_role": {**ROLE, "tasks_from": "verify"}, "vars": {"dataset_staging_destination": "/b"}}
COPIED = {"ansible.builtin.import_role": {**ROLE, "tasks_from": "configure"}}
TWO = Play("two", "shared", stay("first", "x", a=COMPARE), max_rounds=1, keywords={"tasks": [COPIED, OTHER]})


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Calls]:
    """What each play was told, by its name."""
    return run_plays(tmp_path_factory.mktemp("plays"), SHARED, LOCAL, WHOLE, TWO, ends_with=UNREACHABLE)


def test_ranks_of_a_shared_copy_are_those_of_the_plan(calls: dict[str, Calls]) -> None:
    told = calls["shared"]
    first, second = (plan["hosts"] for plan in told.of(LIST))
    assert first == ["first", "a", "b", "c", "x", "y"]
    assert second == STAY, "what is left is shared among those that are"
    started = told.of(START)
    for hosts, starts in ((first, started[: len(first)]), (second, started[len(first) :])):
        assert [(call["host"], call["rank"]) for call in starts] == [(host, rank) for rank, host in enumerate(hosts)]
    assert [call["hosts"] for call in told.of(FOLLOW)] == [first, second]


def test_a_part_to_read_is_not_looked_at_twice_or_by_nobody(calls: dict[str, Calls]) -> None:
    read = calls["shared"].of(READ)
    parts = [(call["host"], call["rank"], call["world_size"]) for call in read]
    assert parts == [("first", 0, 4), ("c", 1, 4), ("x", 2, 4), ("y", 3, 4)]
    assert all(call["content"] and call["mark_damaged"] for call in read)


@pytest.mark.parametrize("scope", ["shared", "local"])
def test_every_file_is_read_once_by_whoever_is_there(calls: dict[str, Calls], scope: str) -> None:
    """Not by the first node before the plan, and not by all again in the phase that verifies."""
    told = calls[scope]
    # The last of those that drop out does so while it reads, or after it.
    readers = ["first", "c" if scope == "shared" else "d", *STAY[1:]]
    assert [call["host"] for call in told.of(READ)] == readers
    read_again = [call["task"] for call in told if call["task"] != READ and call.get("content")]
    assert read_again == []
    tries = [call["tries_left"] for call in told.of(COMPARE) if call.get("report")]
    assert tries == ([1, 0] if scope == "shared" else [1] * len(readers) + [0] * len(STAY))
    assert [call["host"] for call in told.of(COMPARE) if not call.get("report")] == STAY[
        : 1 if scope == "shared" else 3
    ]


def test_a_dataset_that_lacks_nothing_is_read_all_the_same(calls: dict[str, Calls]) -> None:
    told = calls["whole"]
    assert [call["host"] for call in told.of(READ)] == ["first", "x"]
    assert told.of(START) == []
    assert [call["tries_left"] for call in told.of(COMPARE)][:1] == [1]


def test_what_was_read_of_one_dataset_was_not_read_of_another(calls: dict[str, Calls]) -> None:
    of_other = [call for call in calls["two"].of(COMPARE) if call["destination"] == "/b"]
    parts = [(call["host"], call["rank"], call["world_size"], call["content"]) for call in of_other]
    assert parts == [("first", 0, 3, True), ("a", 1, 3, True), ("x", 2, 3, True)]


def test_shares_of_nodes_stay_what_they_are_over_all_rounds(calls: dict[str, Calls]) -> None:
    told = calls["local"]
    hosts = ["first", "a", "b", "c", "d", "x", "y"]
    own = told.of(OWN)
    assert len(told.of(LIST)) == 2
    assert [call["host"] for call in own] == [*hosts, *STAY], "everybody, and in the second round those that are left"
    assert all((hosts[call["rank"]], call["world_size"]) == (call["host"], len(hosts)) for call in own)
    assert not any("hosts" in call for call in own), "a list of all for everybody is tens of megabytes at 1,000 nodes"
    for call in told.of(FOLLOW):
        assert call["runs"] == [f"run-{host}" for host in call["hosts"]]
