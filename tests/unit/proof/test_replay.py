# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The replay of a small history, and its figures."""

from __future__ import annotations

import pathlib

import pytest
from made_tree import MadeTree
from proof.ledger import Proof
from proof.replay import Cost, Replay, history, is_lab, summary
from proof.scenario import Scenario
from proof.scenarios import scenarios
from proof.tree import Objects, Tree
from small_repository import Repository


def table(tree: Tree) -> list[Scenario]:
    """A lab that came with the second commit."""
    late = [Scenario("role/late", ("late",), minutes=4.0)] if "late/x" in tree.paths() else []
    return [Scenario("unit/a", ("a",), minutes=0.5), Scenario("cluster", ("lab",), minutes=6.0), *late]


@pytest.fixture
def repository(tmp_path: pathlib.Path) -> Repository:
    made = Repository(tmp_path)
    for path, content in [
        ("a/x", "1"),
        ("lab/x", "1"),
        ("late/x", "1"),
        ("README.md", "1"),
        ("a/x", "2"),
        ("stray", "1"),
    ]:
        made.write(path, content)
        made.commit()
    return made


def test_each_commit_costs_what_it_changed(repository: Repository) -> None:
    commits = history(repository.root, 10)
    with Objects(repository.root) as objects:
        replay = Replay(repository.root, objects, table, {"cluster": Proof("", 420.0, "2026-11-22")})
        costs = [replay.cost(*commit).affected for commit in commits]
    everything = {"unit/a": 0.5, "cluster": 7.0, "role/late": 4.0}
    assert costs == [everything, {"unit/a": 0.5}, {}, {"role/late": 4.0}, {"cluster": 7.0}]


def test_minutes_by_the_clock_are_those_of_the_run_with_its_checks_and_labs(repository: Repository) -> None:
    """The history's last three changes: all scenarios, only a unit test, and a page."""
    with Objects(repository.root) as objects:
        replay = Replay(repository.root, objects, table, {})
        lab, unit, page = (replay.cost(*commit).clock_minutes for commit in history(repository.root, 3))
    assert lab > 6.0  # the site, on a lab that is brought up
    assert 0.5 < page <= unit < lab


def test_what_runs_in_any_case_is_not_counted(repository: Repository) -> None:
    with Objects(repository.root) as objects:
        replay = Replay(repository.root, objects, table, {}, always=["cluster"])
        assert [replay.cost(*commit).affected for commit in history(repository.root, 1)] == [
            {"unit/a": 0.5, "role/late": 4.0}
        ]


def test_the_very_first_commit_has_nothing_to_be_compared_with(repository: Repository) -> None:
    assert len(history(repository.root, 10)) == 5
    assert len(history(repository.root, 2)) == 2


def test_the_summary() -> None:
    costs = [Cost("", "", {"cluster": minutes}, minutes / 2) for minutes in (8.0, 4.0, 2.0)] + [
        Cost("", "", {"unit/a": 0.1}, 0.5),
        Cost("", "", {}, 0.5),
    ]
    assert summary(costs) == [
        "5 commits, one step after the other: median 2.0 min, quartiles 0.1 and 4.0 min, most 8.0 min",
        "by the clock, 2 steps at once: median 1.0 min, quartiles 0.5 and 2.0 min, most 4.0 min",
        "2 of them (40%) need no lab",
    ]
    assert summary(costs[:1])[0].startswith("1 commits, one step after the other: median 8.0 min")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("unit/a", False), ("unit", False), ("cluster", True), ("vm/test_a", True), ("role/unit", True)],
)
def test_what_needs_a_lab(name: str, expected: bool) -> None:
    assert is_lab(name) is expected


def test_scenarios_of_old_and_new_layouts() -> None:
    old = ["tests/integration/test_staging.py", "tests/unit/test_loose.py", "molecule/cluster/molecule.yml"]
    new = [
        *("tests/scenarios/cluster/test_teardown.py", "tests/scenarios/cluster/test_fresh_nodes.py"),
        *("tests/scenarios/vm/test_fresh_machines.py", "tests/scenarios/vm/test_slurm.py", "molecule/vm/molecule.yml"),
        *(
            "tests/unit/staging/test_x.py",
            "tests/unit/docs/test_y.py",
            "molecule/mofed/molecule.yml",
            "molecule/mofed/x.yml",
        ),
    ]
    assert [one.name for one in scenarios(MadeTree(dict.fromkeys(old, "")))] == [
        "unit",
        "cluster",
        "faults/test_staging",
    ]
    found = {one.name: one for one in scenarios(MadeTree(dict.fromkeys(new, "")))}
    assert list(found) == [
        *(
            "unit/docs",
            "unit/staging",
            "role/mofed",
            "cluster/fresh",
            "faults/test_teardown",
            "vm",
            "vm/test_fresh_machines",
        ),
        "vm/test_slurm",
    ]
    assert [name for name, one in found.items() if one.walks] == ["unit/docs"]
    assert found["vm/test_slurm"].parts == ("machines",)
    assert found["role/mofed"].parts == ("containers",)
