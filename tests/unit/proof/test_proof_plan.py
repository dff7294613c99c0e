# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run consists of: nothing that was asked for is forgotten, and nothing comes before what it needs."""

from __future__ import annotations

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proof import steps
from proof.ledger import Proof
from proof.parts import BY_HAND, matcher
from proof.plan import Plan, make_plan
from proof.scenario import Scenario
from proof.scenarios import ANSIBLE_LINT, scenarios
from proof.timetable import timetable
from proof.tree import WorkTree

ROOT = pathlib.Path(__file__).resolve().parents[3]
KNOWN = scenarios(WorkTree(ROOT))
NOW = {one.name: f"digest of {one.name}" for one in KNOWN}
PROVEN = {name: Proof(digest, 60.0, "2026-11-01") for name, digest in NOW.items()}
STATIC = {"packages/shellcheck", *(step.name for step in steps.static_steps() if step.name.startswith("static/"))}
LABS = sorted(name for name in NOW if not name.startswith("unit/"))


def plan(mode: str, must: bool = False, **changed: str) -> Plan:
    """A plan where everything is proven but what is named with another date, or with none."""
    past = {**PROVEN, **{name.replace("__", "/"): Proof("of old", 60.0, date) for name, date in changed.items()}}
    return make_plan(mode, must, KNOWN, NOW, past)


def names(one: Plan) -> list[str]:
    return [step.name for step in one.steps]


def proven_by(one: Plan) -> set[str]:
    return {name for step in one.steps for name in step.proves}


def test_everything_is_part_of_a_full_run_whatever_was_proven() -> None:
    assert proven_by(plan("all")) == set(NOW)


def test_a_full_run_has_all_marks_of_the_lab_s_tests() -> None:
    commands = [word for step in plan("all").steps for argv in step.commands for word in argv]
    for mark in ("fresh", "teardown", "both", "not fresh and not teardown", "not fresh and not both"):
        assert mark in commands


def test_every_test_file_of_the_labs_is_run() -> None:
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests/scenarios").glob("*/test_*.py")}
    files -= set(filter(matcher(BY_HAND), files))
    roots = {root for one in KNOWN for root in one.roots}
    assert files <= roots


def test_nothing_but_static_checks_where_everything_is_proven() -> None:
    assert set(names(plan("affected"))) == STATIC - {ANSIBLE_LINT}


def test_what_lints_ansible_is_run_where_its_files_changed_and_before_every_landing() -> None:
    changed = {"static__ansible-lint": "2026-11-02"}
    for mode in ("quick", "affected"):
        assert ANSIBLE_LINT not in names(plan(mode))
        assert ANSIBLE_LINT in names(plan(mode, **changed))
    assert ANSIBLE_LINT in plan("affected", must=True).must
    assert ANSIBLE_LINT in names(plan("all"))


def test_the_longest_of_what_must_run_is_begun_first() -> None:
    found = names(plan("affected", must=True, unit__gzip="2026-11-02"))
    assert found.index("units") < min(found.index(name) for name in ("static/ruff", ANSIBLE_LINT, "cluster"))


def test_what_every_change_has_to_pass_is_run_though_it_was_proven() -> None:
    found = plan("affected", must=True)
    assert {"units", "cluster", "lab/up"} <= set(found.must)
    # Taking the lab down is tried again when the budget is over, and then is no debt.
    assert set(names(found)) - set(found.must) == {"lab/down"}
    units = next(step for step in found.steps if step.name == "units")
    assert (units.commands[0][-3:], units.proves) == (("-m", "not (slow or blob)", "tests/unit"), ())


def test_with_all_quick_unit_tests_the_slow_ones_of_affected_folders_are_run() -> None:
    found = plan("affected", must=True, unit__gzip="2026-11-02", unit__blob="2026-11-02")
    units = next(step for step in found.steps if step.name == "units")
    assert units.commands[0][-3:] == ("--slow-of", "tests/unit/blob,tests/unit/gzip", "tests/unit")
    assert set(units.proves) == {"unit/gzip", "unit/blob"}


def test_the_slow_unit_tests_take_their_time_beside_the_quick_ones() -> None:
    """Otherwise they would be taken to hang on a machine that is only busy, and they get no second run."""
    quick_s = steps.QUICK_UNIT_MINUTES * 60
    assert plan("affected", must=True).seconds["units"] == quick_s
    assert (
        plan("affected", must=True, unit__gzip="2026-11-02", unit__blob="2026-11-02").seconds["units"] == quick_s + 120
    )


@pytest.mark.parametrize("name", [one for one in LABS if one.startswith(("role/", "vm", "cluster", "faults/"))])
def test_what_runs_on_a_lab_can_be_run_once_more_on_new_nodes(name: str) -> None:
    step = steps.table(KNOWN)[name]
    assert step.renewal
    assert {*step.holds, *step.pool} <= set(step.renewal.holds)
    words = [word for argv in step.renewal.commands for word in argv]
    assert any("destroy" in word for word in words)
    assert any("create" in word for word in words)
    # One machine's name would leave the others of the lab unprepared.
    assert all(argv[:3] == ("env", "-u", "LAB_VM_NODE") for argv in step.renewal.commands if name.startswith("vm"))
    assert ("converge" in words) == (name.startswith("faults/") and name != "faults/test_teardown")


def test_what_needs_no_lab_gets_no_second_run() -> None:
    table = steps.table(KNOWN)
    again = {name for name, step in table.items() if step.renewal and step.proves}
    assert again == {
        name for name in LABS if name not in ("dnf", "apt", "sanity", "targets", "newest-core", ANSIBLE_LINT)
    }


def test_a_lab_is_set_up_right_before_what_needs_it() -> None:
    found = names(plan("affected", must=True, role__glusterfs="2026-10-01", vm__test_mofed="2026-10-02"))
    assert (
        found.index("cluster") < found.index("role/glusterfs") < found.index("vm/image") < found.index("vm/test_mofed")
    )


def test_only_the_affected_folders_of_unit_tests_are_run() -> None:
    units = next(step for step in plan("affected", unit__gzip="2026-11-02").steps if step.name == "units")
    assert (units.commands[0][-1], units.proves) == ("tests/unit/gzip", ("unit/gzip",))


def test_the_estimate_of_unit_tests_is_the_sum_of_their_folders() -> None:
    some = plan("affected", unit__gzip="2026-11-02", unit__blob="2026-11-02")
    assert some.seconds["units"] == 120.0
    never = make_plan("all", False, KNOWN, NOW, {})
    assert never.seconds["units"] == steps.unit_step([], ()).minutes * 60


def test_an_affected_scenario_brings_its_lab() -> None:
    found = names(plan("affected", vm__test_mofed="2026-11-02"))
    assert [name for name in found if name not in STATIC] == [
        "vm/down",
        "packages/vm",
        "vm/image",
        "vm/up",
        "vm/test_mofed",
    ]


def test_faults_find_a_site_that_is_up() -> None:
    found = names(plan("affected", faults__test_staging_faults="2026-11-02"))
    assert found.index("lab/up") < found.index("cluster") < found.index("faults/test_staging_faults")


def test_with_a_budget_what_must_run_is_first_and_then_what_was_unproven_for_longest() -> None:
    found = names(plan("affected", must=True, role__mofed="2026-10-03", role__glusterfs="2026-10-01", vm="2026-10-02"))
    last_must = max(found.index(name) for name in ("units", "cluster"))
    assert last_must < found.index("role/glusterfs") < found.index("vm") < found.index("role/mofed")


@given(st.sampled_from(["affected", "all"]), st.booleans(), st.sets(st.sampled_from(LABS)))
def test_nothing_comes_before_what_it_needs_and_nothing_is_lost(mode: str, must: bool, changed: set[str]) -> None:
    past = {name: proof for name, proof in PROVEN.items() if name not in changed}
    found = make_plan(mode, must and mode == "affected", KNOWN, NOW, past)
    order = names(found)
    assert len(order) == len(set(order))
    assert changed <= proven_by(found)
    for step in found.steps:
        assert all(order.index(need) < order.index(step.name) for need in step.needs)
        assert found.seconds[step.name] > 0


@given(st.sets(st.sampled_from(LABS), min_size=1))
def test_a_lab_goes_when_its_last_user_has_ended_and_not_before(changed: set[str]) -> None:
    found = make_plan("affected", False, KNOWN, NOW, {name: one for name, one in PROVEN.items() if name not in changed})
    ends = {slot.name: slot.end_s for slot in timetable(found.steps, found.seconds, 2)}
    begins = {slot.name: slot.begin_s for slot in timetable(found.steps, found.seconds, 2)}
    labs = {
        "lab": ("cluster", "faults/test_staging_faults"),
        "lab-roles": ("role/", "faults/test_teardown"),
        "vm": ("vm",),
    }
    for lab, users in labs.items():
        used = [ends[name] for name in ends if name.startswith(users) and not name.endswith("/down")]
        assert (f"{lab}/up" in ends) == (f"{lab}/down" in begins)
        assert not used or begins[f"{lab}/down"] >= max(used)


def test_an_unknown_scenario_is_an_error() -> None:
    with pytest.raises(ValueError, match="how nonsense is run"):
        steps.scenario_step(Scenario("nonsense", ()))
