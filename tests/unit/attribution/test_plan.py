# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is named, over fleets whose faults are known: all of them, and nobody else."""

from __future__ import annotations

import itertools
import json
import random
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._attribution.plan import FaultFinder, worst_case
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from fleets import HANG, Fleet, check, names, seen
from hypothesis import given, settings
from hypothesis import strategies as st

FACTORS = (HANG, 0.45, 0.6, 0.8, 0.88)


def drawn(count: int, bad: int, seed: int, noise: float = 0.02) -> Fleet:
    chance = random.Random(seed)
    nodes = names(count)
    return Fleet(nodes, {node: chance.choice(FACTORS) for node in chance.sample(nodes, bad)}, noise=noise, seed=seed)


@pytest.mark.parametrize("noise", [0.01, 0.02, 0.05])
@pytest.mark.parametrize("count", [2, 5, 16, 64, 256, 1024])
def test_a_healthy_fleet_takes_one_launch(count: int, noise: float) -> None:
    rounds = []
    for seed in range(8):
        found = check(Fleet(names(count), noise=noise, seed=seed), seed=seed, noise=noise)
        assert not found.bad | found.links | found.domains | found.unknown
        assert found.verdict["accepted"] is True
        rounds.append(found.rounds)
    assert sum(rounds) / len(rounds) <= 1.25


@pytest.mark.parametrize("topology", [True, False])
@pytest.mark.parametrize(
    ("count", "bad"), [(16, 1), (17, 2), (64, 3), (65, 6), (256, 2), (256, 25), (1024, 1), (1024, 10), (1024, 51)]
)
def test_bad_nodes_are_named_in_few_rounds(count: int, bad: int, topology: bool) -> None:
    for seed in range(3):
        fleet = drawn(count, bad, seed)
        found = check(fleet, topology=topology, seed=seed)
        assert found.bad == set(fleet.slow), seed
        assert not found.links | found.domains | found.unknown
        assert found.verdict["accepted"] is True
        assert found.rounds <= 6


def test_a_thousand_nodes_take_few_launches() -> None:
    """Performance goal A3."""
    assert check(drawn(1024, 1, 1)).launches <= 90
    assert check(drawn(1024, 10, 2)).launches <= 230
    assert check(drawn(1024, 102, 3)).launches <= 1.2 * 1024
    found = check(drawn(1024, 10, 4), acceptance=False)
    assert found.node_launches <= 1.3 * 1024


@pytest.mark.parametrize("count", range(3, 9))
def test_small_fleets_with_every_bad_node_and_every_bad_pair(count: int) -> None:
    nodes = names(count)
    pairs = itertools.combinations(nodes, 2) if count > 4 else ()
    for bad in [*((node,) for node in nodes), *pairs]:
        for factor in (HANG, 0.6, 0.88):
            found = check(Fleet(nodes, dict.fromkeys(bad, factor), noise=0.01), topology=False, noise=0.01)
            assert found.bad == set(bad), (bad, factor)
            assert not found.links | found.unknown


def test_of_two_nodes_nobody_can_tell_which() -> None:
    found = check(Fleet(names(2), {"n0000": 0.5}))
    assert (found.bad, found.unknown) == (set(), {"n0000", "n0001"})


@pytest.mark.parametrize("factor", [HANG, 0.45, 0.88])
@pytest.mark.parametrize("count", [4, 16, 64, 256])
def test_a_bad_link_is_no_bad_node(count: int, factor: float) -> None:
    for seed in range(3):
        ends = random.Random(seed).sample(names(count), 2)
        fleet = Fleet(names(count), links={(ends[0], ends[1]): factor}, noise=0.02, seed=seed)
        found = check(fleet, seed=seed)
        assert found.links == {frozenset(ends)}, seed
        assert not found.bad | found.domains | found.unknown


@pytest.mark.parametrize("factor", [0.45, 0.8, 0.88])
@pytest.mark.parametrize("count", [16, 64, 256])
def test_a_bad_leaf_is_named_and_not_its_nodes(count: int, factor: float) -> None:
    for seed in range(4):
        fleet = Fleet(names(count), noise=0.02, seed=seed)
        leaf = random.Random(seed).choice(sorted({place["leaf"] for place in fleet.topology.values()}))
        fleet.leaves = {leaf: factor}
        found = check(fleet, seed=seed)
        assert found.domains == {f"leaf={leaf}"}, seed
        assert not found.bad | found.links | found.unknown


def test_a_link_between_two_leaves_of_a_rack_is_not_the_rack_s_fault() -> None:
    """Both ends lie in one rack: every launch with the whole rack is slow, and so is the rack by itself."""
    fleet = Fleet(names(64), links={("n0001", "n0006"): 0.6}, noise=0.02)
    found = check(fleet)
    assert found.links == {frozenset(("n0001", "n0006"))}
    assert not found.bad | found.domains | found.unknown


def test_a_fleet_that_is_bad_as_a_whole_is_named_only_against_an_expectation() -> None:
    everybody = dict.fromkeys(names(16), 0.6)
    known = check(Fleet(names(16), everybody), topology=False)
    assert known.bad == set()
    assert known.verdict["accepted"] is not True
    learned = check(Fleet(names(16), everybody), expected=False, topology=False)
    assert (learned.bad, learned.verdict["accepted"]) == (set(), None)


def test_without_an_expectation_a_slow_node_is_found_by_comparison() -> None:
    fleet = drawn(64, 2, 5)
    found = check(fleet, expected=False)
    assert found.bad == set(fleet.slow)
    assert not found.links | found.domains


@pytest.mark.parametrize("count", [4, 16, 256])
def test_what_cannot_be_measured_blames_nobody(count: int) -> None:
    finder = FaultFinder(names(count), expected_gbytes_s=400.0)
    while launches := finder.next_round():
        for launch in launches:
            finder.record(launch.nodes, None, incomplete=True)
    found = seen(finder)
    assert not found.bad | found.links | found.domains
    assert found.unknown == set(names(count))
    assert found.rounds <= 3


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_is_recorded_rounds_end_launches_are_disjoint_and_replays_are_the_same(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 40))
    options: dict[str, t.Any] = {
        "expected_gbytes_s": data.draw(st.sampled_from([None, 400.0])),
        "seed": data.draw(st.integers(0, 3)),
    }
    fleet = Fleet(names(count))
    first = FaultFinder(fleet.nodes, topology=fleet.topology, **options)
    again = FaultFinder(fleet.nodes, topology=fleet.topology, **options)
    incomplete: set[str] = set()
    measured: set[str] = set()
    chance = random.Random(data.draw(st.integers(0, 1000)))
    while launches := first.next_round():
        assert launches == again.next_round()
        busy = [node for launch in launches for node in launch.nodes]
        assert len(busy) == len(set(busy))
        assert set(busy) <= set(fleet.nodes)
        for launch in launches:
            kind = chance.choice(("fast", "fast", "slow", "hang", "incomplete"))
            value = (
                None
                if kind in ("hang", "incomplete")
                else [chance.uniform(0.98, 1.02) * (400 if kind == "fast" else 200)] * launch.samples
            )
            (incomplete if kind == "incomplete" else measured).update(launch.nodes)
            for finder in (first, again):
                finder.record(launch.nodes, value, incomplete=kind == "incomplete")
    verdict = first.verdict()
    assert verdict == again.verdict()
    assert json.loads(json.dumps(verdict)) == verdict
    assert verdict["rounds"] <= worst_case(count)["at_most"]["rounds"]
    blamed = {one["node"] for one in verdict["bad_nodes"]}
    assert blamed <= measured
    for one in verdict["bad_nodes"]:
        assert one["evidence"]
        assert all(one["node"] in run["nodes"] for run in one["evidence"])


def test_what_is_not_of_the_round_is_refused() -> None:
    finder = FaultFinder(names(4))
    with pytest.raises(ClusterError):
        finder.record(["n0000"], [1.0])
    with pytest.raises(ClusterError):
        FaultFinder(["a", "a"])
    with pytest.raises(ClusterError):
        FaultFinder([])
