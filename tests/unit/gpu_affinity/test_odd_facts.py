# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts and profiles that are not as they should be: planning ends with a plan or a refusal in words, never in a traceback."""

from __future__ import annotations

import copy
import pathlib
import typing as t

import pytest
import yaml
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.binding import (
    SOURCES,
    map_text,
    nothing_to_pin,
    probes,
    sources,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.options import (
    PLAN_OPTIONS,
    PlanRequest,
    plan_and_render,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.shapes import require_shapes
from ansible_collections.hpcai.gpu_cluster.plugins.modules import gpu_binding
from hypothesis import given
from hypothesis import strategies as st
from module_run import run_main

PROFILES = pathlib.Path(__file__).parents[3] / "roles/node_profile/files/profiles"
PROFILE = yaml.safe_load((PROFILES / "Standard_NC96ads_A100_v4.yml").read_text(encoding="utf-8"))
DEFAULTS = {name: option["default"] for name, option in PLAN_OPTIONS.items()}
FACTS: dict[str, t.Any] = {
    "cpus": {"cores": 96, "threads": 96, "siblings": []},
    "numa": [{"id": node["id"], "cpus": node["cpus"], "memory_mib": 1024} for node in PROFILE["numa"]["nodes"]],
    "gpus": [
        {
            "index": index,
            "numa": numa,
            "bus_id": f"000{index + 1}:00:00.0",
            "uuid": f"GPU-{index}",
            "name": "NVIDIA A100 80GB PCIe",
            "minor": index,
            "mig": {"enabled": False},
        }
        for index, numa in enumerate([0, 1, -1, None])
    ],
    "hcas": [{"device": "mlx5_0", "numa": 0, "bus_id": "0101:00:00.0", "rate_gbps": 200}],
}
ODD = [
    None,
    "",
    "x",
    "0",
    "0-3",
    "3-0",
    "0-9999999999",
    -1,
    0,
    7,
    10**12,
    1.5,
    float("nan"),
    True,
    [],
    [None],
    ["x"],
    [[]],
    {},
    {"x": 1},
]


def places(value: t.Any, path: tuple[t.Any, ...] = ()) -> t.Iterator[tuple[t.Any, ...]]:
    """Every place in a document, as the keys that lead there."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from places(child, (*path, key))


def odd(document: dict[str, t.Any], draw: st.DrawFn) -> dict[str, t.Any]:
    """The document with up to two places taken away, doubled, or filled with something else."""
    document = copy.deepcopy(document)
    for _time in range(draw(st.integers(0, 2))):
        *way, last = draw(st.sampled_from(list(places(document)) or [("gpus",)]))
        parent: t.Any = document
        for key in way:
            parent = parent[key]
        what = draw(st.sampled_from(["take", "double", "fill", "fill"]))
        if what == "take":
            parent.pop(last, None) if isinstance(parent, dict) else parent.pop(last)
        elif what == "double" and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[last]))
        else:
            parent[last] = copy.deepcopy(draw(st.sampled_from(ODD)))
    return document


@st.composite
def inputs(draw: st.DrawFn) -> tuple[dict[str, t.Any], dict[str, t.Any], dict[str, t.Any]]:
    options = {
        "unplaced": draw(st.sampled_from(["refuse", "any"])),
        "ranks_per_node": draw(st.sampled_from([0, 0, 2, 5])),
    }
    profile = draw(st.sampled_from([PROFILE, {}]))
    return odd(FACTS, draw), odd(profile, draw) if profile else {}, {**DEFAULTS, **options}


def planned(work: t.Callable[[], t.Any]) -> t.Any:
    """What planning gives; None where it ends with a reason and a remedy."""
    try:
        return work()
    except ClusterError as exc:
        said = exc
    assert said.message.endswith(".")
    assert said.remedy
    return None


def empty(document: dict[str, t.Any], way: tuple[t.Any, ...]) -> dict[str, t.Any]:
    """The document with nothing at one place."""
    document = copy.deepcopy(document)
    parent: t.Any = document
    for key in way[:-1]:
        parent = parent[key]
    parent[way[-1]] = None
    return document


@pytest.mark.parametrize("unplaced", ["refuse", "any"])
@pytest.mark.parametrize("source", SOURCES)
def test_an_empty_place_ends_in_a_plan_or_words(source: str, unplaced: str) -> None:
    request = PlanRequest.of({**DEFAULTS, "unplaced": unplaced})
    for facts, profile in [
        *((empty(FACTS, way), PROFILE) for way in places(FACTS)),
        *((FACTS, empty(PROFILE, way)) for way in places(PROFILE)),
    ]:

        def work(facts: t.Any = facts, profile: t.Any = profile) -> t.Any:
            require_shapes(facts, profile)
            return plan_and_render(*sources(source, facts, profile), request)

        planned(work)


@given(inputs(), st.sampled_from(SOURCES))
def test_whatever_the_facts_are_the_end_is_a_plan_or_words(
    given_: tuple[dict[str, t.Any], dict[str, t.Any], dict[str, t.Any]], source: str
) -> None:
    facts, profile, options = given_

    def work() -> t.Any:
        require_shapes(facts, profile)
        if nothing_to_pin(facts, profile):
            return None
        return plan_and_render(*sources(source, facts, profile), PlanRequest.of(options))

    if plan := planned(work):
        assert map_text(plan)
        assert probes(plan)


@given(inputs())
def test_planning_without_a_node_does_so_too(
    given_: tuple[dict[str, t.Any], dict[str, t.Any], dict[str, t.Any]],
) -> None:
    facts, profile, options = given_
    for seen in (facts, {}):
        plan = planned(lambda seen=seen: plan_and_render(seen, profile, PlanRequest.of(options)))  # type: ignore[misc]
        assert plan is None or plan["ranks"]


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("gpus", 1, "index"), "1", "gpus[1].index has to be a number from 0 to 65535, and is '1'"),
        (("gpus", 1, "index"), None, "gpus[1].index is missing"),
        (("gpus", 1, "index"), 0, "GPU 0 is there twice"),
        (("gpus", 1), "GPU 1", "gpus[1] has to be a mapping, and is 'GPU 1'"),
        (("gpus", 1), None, "gpus[1] is missing"),
        (("gpus",), {"count": 4}, "gpus has to be a list"),
        (("numa", 0, "id"), None, "numa[0].id is missing"),
        (("numa", 0, "cpus"), "0-9999999999", "numa[0].cpus has to be a list of CPUs such as 0-3,8, each below 65536"),
        (("numa",), None, "The facts name no CPU"),
        (("hcas", 0, "device"), None, "hcas[0].device is missing"),
        (("cpus", "cores"), "many", "cpus.cores has to be a number"),
    ],
)
def test_the_module_says_which_fact_is_wrong_and_what_to_do(
    tmp_path: pathlib.Path, place: tuple[t.Any, ...], value: t.Any, said: str
) -> None:
    facts = copy.deepcopy(FACTS)
    parent: t.Any = facts
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = value
    result = run_main(gpu_binding.main, {"facts": facts, "map": str(tmp_path / "map"), "unplaced": "any"})
    assert (result["failed"], result["error_kind"]) == (True, "bad_topology")
    assert said in result["msg"]
    assert "node_facts" in result["remedy"]
    assert list(tmp_path.iterdir()) == []
