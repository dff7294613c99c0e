# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choosing, overriding and validating profiles, and the files that are shipped."""

from __future__ import annotations

import copy
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.compare import compare
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.profile import (
    Profile,
    choose_profile,
    deep_merge,
    validate_profile,
)
from hypothesis import given, settings
from hypothesis import strategies as st

PROFILES = Path(__file__).resolve().parents[3] / "roles/node_profile/files/profiles"
SHIPPED = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in PROFILES.glob("*.yml")}
NAMES = {
    "Standard_ND96asr_v4",
    "Standard_ND96amsr_A100_v4",
    "Standard_ND96isr_H100_v5",
    "Standard_ND96isr_H200_v5",
    "Standard_ND40rs_v2",
    "Standard_NC24rs_v3",
    "Standard_NC96ads_A100_v4",
    "dgx_a100",
    "dgx_b200",
    "dgx_h100",
    "dgx_h200",
    "hgx_b200",
    "hgx_h100",
    "hgx_h200",
    "p4d.24xlarge",
    "p5.48xlarge",
    "p5e.48xlarge",
    "p5en.48xlarge",
    "a3-highgpu-8g",
    "a3-megagpu-8g",
    "generic",
}


# What node_facts tells of a GPU that has lost nothing.
SOUND = {"memory_mib": None, "remapped_rows": None, "ecc": {"uncorrected": 0}}


class Memory:
    """A library in memory that counts what it is asked for."""

    def __init__(self, profiles: dict[str, Profile], own: t.Collection[str] = ()) -> None:
        self.profiles = profiles
        self.own = own
        self.loaded: list[str] = []

    def load(self, name: str) -> Profile | None:
        self.loaded.append(name)
        return next((item for key, item in self.profiles.items() if key.casefold() == name.casefold()), None)

    def load_all(self) -> list[Profile]:
        self.loaded.append("*")
        return list(self.profiles.values())

    def load_own(self) -> list[Profile]:
        return [self.profiles[name] for name in self.own]


def facts(
    sku: str | None = None,
    product: str | None = None,
    gpus: t.Sequence[tuple[str, str]] = (),
    on_bus: t.Sequence[str] = (),
) -> dict[str, t.Any]:
    return {
        "platform": {"sku": sku, "product": product},
        "gpus": [{"index": index, "name": name, "bus_id": bus_id} for index, (name, bus_id) in enumerate(gpus)],
        "pci_gpus": [{"bus_id": bus_id} for bus_id in on_bus],
    }


def gpus_of(name: str, model: int = 0) -> list[tuple[str, str]]:
    section = SHIPPED[name]["gpus"]
    return [(section["models"][model]["name"], bus_id) for bus_id in section["bus_ids"]]


def chosen(node: dict[str, t.Any], requested: str = "") -> tuple[str, str]:
    choice = choose_profile(node, requested, Memory(SHIPPED))
    return choice.profile["name"], choice.by


# Shipped files


def test_every_machine_type_has_its_file() -> None:
    assert set(SHIPPED) == NAMES
    assert all(profile["name"] == stem for stem, profile in SHIPPED.items())


@pytest.mark.parametrize("name", sorted(NAMES))
def test_shipped_files_are_valid(name: str) -> None:
    assert validate_profile(SHIPPED[name]) == []


def test_traps_are_not_repeated() -> None:
    for name in ("Standard_ND96isr_H100_v5", "Standard_ND96isr_H200_v5"):
        # The topology file lowers results there, and NDv5 has two NUMA nodes, not the four of NDv4.
        assert "NCCL_TOPO_FILE" not in SHIPPED[name]["nccl"]["env"]
        assert SHIPPED[name]["nccl"]["unset"] == ["NCCL_TOPO_FILE"]
        assert [node["cpus"] for node in SHIPPED[name]["numa"]["nodes"]] == ["0-47", "48-95"]
    assert SHIPPED["Standard_ND96asr_v4"]["nccl"]["env"]["NCCL_TOPO_FILE"] == "/opt/microsoft/ndv4/topo.xml"
    # azhpc-images#327: a graph ends every job that does not use all of its GPUs.
    assert all("NCCL_GRAPH_FILE" not in profile["nccl"]["env"] for profile in SHIPPED.values())
    assert SHIPPED["Standard_NC96ads_A100_v4"]["expected"]["nccl_allreduce_busbw_gbytes_s"]["value"] == 25
    assert [hca["rate_gbps"] for hca in SHIPPED["Standard_ND40rs_v2"]["fabric"]["hcas"]] == [100]
    numa = {gpu: node["id"] for node in SHIPPED["Standard_ND96asr_v4"]["numa"]["nodes"] for gpu in node["gpus"]}
    assert [numa[gpu] for gpu in range(8)] == [1, 1, 0, 0, 3, 3, 2, 2]


def test_units_are_in_the_names() -> None:
    suffixes = {"GB/s": "_gbytes_s", "Gb/s": "_gbps", "MHz": "_mhz", "TFLOPS": "_tflops", "errors": "_errors"}
    for profile in SHIPPED.values():
        for name, entry in profile["expected"].items():
            assert name.endswith(suffixes[entry["unit"]]), name


# Validation


def broken(path: str, value: object) -> Profile:
    profile: Profile = copy.deepcopy(SHIPPED["Standard_ND96asr_v4"])
    target: t.Any = profile
    *parents, last = path.split("/")
    for key in parents:
        target = target[int(key)] if isinstance(target, list) else target[key]
    if value is None:
        del target[last]
    else:
        target[int(last) if isinstance(target, list) else last] = value
    return profile


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("schema", 2, "schema: must be 1"),
        ("name", None, "name: is missing"),
        ("gpu", {}, "gpu: unknown section"),
        ("gpus/cuont", 8, "gpus.cuont: unknown key"),
        ("gpus/count", 7, "count is 7 but bus_ids has 8"),
        ("gpus/count", None, "gpus: count is missing"),
        ("gpus/bus_ids/0", "10:20", "not a PCI address"),
        ("gpus/bus_ids/0", "00000001:00:00.0", "write '00000001:00:00.0' as '0001:00:00.0'"),
        ("gpus/bus_ids/0", "0002:00:00.0", "appears twice"),
        ("gpus/models", "A100", "gpus.models: must be a list"),
        ("gpus", [], "gpus: must be a mapping"),
        ("cpu/source", None, "cpu: source is missing"),
        ("cpu/date", "yesterday", "cpu: date is missing or not YYYY-MM-DD"),
        ("cpu/threads", 97, "the nodes have 96 CPUs, cpu.threads says 97"),
        ("numa/verified", "maybe", "numa: verified must be true or false"),
        ("numa/nodes/0/cpus", "23-0", "not an ascending range"),
        ("numa/nodes/1/cpus", "0-23", "a CPU is in two nodes"),
        ("numa/nodes/1/gpus", [2, 3], "a device is in two nodes"),
        ("numa/nodes/1/gpus", [8], "GPU 8 does not exist among 8"),
        ("numa/nodes/1/hcas", ["mlx5_ib9"], "HCA 'mlx5_ib9' is not in fabric.hcas"),
        ("nccl/channels", {"rings": []}, "nccl.channels: must be a mapping of gbytes_s, rings, trees"),
        ("nccl/channels", {"gbytes_s": 0, "rings": [], "trees": []}, "gbytes_s: must be a number above 0"),
        ("nccl/channels", {"gbytes_s": 1, "rings": [[0]], "trees": 1}, "rings: must be a list of orders of all 8 GPUs"),
        ("nccl/channels", {"gbytes_s": 1, "rings": [0], "trees": []}, "trees: must be a list of orders of all 8 GPUs"),
        ("expected/hpl_tflops/unit", None, "expected.hpl_tflops: lacks unit"),
        ("expected/hpl_tflops/value", "95", "value must be a number"),
        ("expected/hpl_tflops/direction", "up", "direction must be one of"),
        ("expected/hpl_tflops/source", "", "source is missing"),
        ("expected", [], "expected: must be a mapping"),
    ],
)
def test_mistakes_in_a_file_are_named(path: str, value: object, words: str) -> None:
    assert words in "\n".join(validate_profile(broken(path, value)))


@pytest.mark.parametrize(
    "text", ["null", "[]", "word", "{gpus: {models: [1]}}", "{expected: {a: 1}}", "{numa: {nodes: {}}}"]
)
def test_nonsense_is_refused_without_a_crash(text: str) -> None:
    assert validate_profile(yaml.safe_load(text))


# Overrides


@pytest.mark.parametrize(
    ("base", "override", "merged"),
    [
        ({}, {}, {}),
        ({"a": 1}, {}, {"a": 1}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}, {"a": {"b": 3, "c": 2}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": {"b": 1}, "c": 2}, {"a": None}, {"c": 2}),
        ({"a": 1}, {"a": {"b": 2}}, {"a": {"b": 2}}),
        ({}, {"a": {"b": None}}, {"a": {}}),
        ({"a": 1}, {"b": None}, {"a": 1}),
    ],
)
def test_deep_merge(base: Profile, override: Profile, merged: Profile) -> None:
    before = copy.deepcopy((base, override))
    assert deep_merge(base, override) == merged
    assert (base, override) == before


def devices(profile: Profile, kind: str) -> list[t.Any]:
    return [device for node in profile.get("numa", {}).get("nodes", []) for device in node[kind]]


@pytest.mark.parametrize("name", sorted(NAMES))
@pytest.mark.parametrize(
    ("override", "gone", "stays"),
    [
        ({"gpus": None}, "gpus", "hcas"),
        ({"fabric": None}, "hcas", "gpus"),
        ({"fabric": {"hcas": None}}, "hcas", "gpus"),
    ],
)
def test_devices_taken_away_leave_the_numa_map(name: str, override: Profile, gone: str, stays: str) -> None:
    fabric = {"source": "the test", "date": "2026-11-21"}
    merged = deep_merge({"fabric": fabric, **SHIPPED[name]}, override)
    assert validate_profile(merged) == []
    assert devices(merged, gone) == []
    assert devices(merged, stays) == devices(SHIPPED[name], stays)


def test_a_numa_map_of_the_override_is_not_touched() -> None:
    base = SHIPPED["Standard_ND96asr_v4"]
    nodes = [{**node, "hcas": []} for node in base["numa"]["nodes"]]
    assert deep_merge(base, {"fabric": None, "numa": {"nodes": nodes}})["numa"]["nodes"] is nodes
    wrong = deep_merge(base, {"fabric": None, "numa": {"nodes": base["numa"]["nodes"][:]}})
    assert "HCA 'mlx5_ib2' is not in fabric.hcas" in "\n".join(validate_profile(wrong))
    assert "numa" not in deep_merge(base, {"fabric": None, "numa": None})


@pytest.mark.parametrize("text", ["{fabric: 5, gpus: }", "{numa: 5, gpus: }", "{numa: {nodes: 5}, fabric: }"])
def test_a_nonsensical_override_is_refused_without_a_crash(text: str) -> None:
    before = copy.deepcopy(SHIPPED["Standard_ND96asr_v4"])
    assert validate_profile(deep_merge(SHIPPED["Standard_ND96asr_v4"], yaml.safe_load(text)))
    assert before == SHIPPED["Standard_ND96asr_v4"]


LEAVES = st.one_of(st.integers(0, 9), st.sampled_from(["", "x"]), st.booleans(), st.just([1, 2]))
LEVEL_1 = st.dictionaries(st.sampled_from("ab"), LEAVES, max_size=2)
LEVEL_2 = st.dictionaries(st.sampled_from("ab"), st.one_of(LEAVES, LEVEL_1), max_size=2)
MAPPINGS = st.dictionaries(st.sampled_from("abc"), st.one_of(LEAVES, LEVEL_1, LEVEL_2), max_size=3)


@given(MAPPINGS)
def test_merging_with_nothing_or_itself_changes_nothing(tree: Profile) -> None:
    assert deep_merge(tree, {}) == tree
    assert deep_merge({}, tree) == tree
    assert deep_merge(tree, tree) == tree


@given(MAPPINGS, MAPPINGS)
def test_the_override_wins_everywhere(base: Profile, override: Profile) -> None:
    def holds(merged: t.Any, wanted: t.Any) -> bool:
        if isinstance(wanted, dict):
            return isinstance(merged, dict) and all(key in merged and holds(merged[key], wanted[key]) for key in wanted)
        return bool(merged == wanted)

    merged = deep_merge(base, override)
    assert holds(merged, override)
    assert all(merged[key] == base[key] for key in base if key not in override)


# Choice


def test_the_inventory_wins() -> None:
    node = facts(sku="p4d.24xlarge", gpus=gpus_of("dgx_a100"))
    assert chosen(node, "Standard_ND40rs_v2") == ("Standard_ND40rs_v2", "its name")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ClusterError, match="There is no profile 'NDv4'") as caught:
        chosen(facts(), "NDv4")
    assert caught.value.kind == "profile_unknown"
    assert "Standard_ND96asr_v4" in caught.value.remedy


@pytest.mark.parametrize("name", sorted(name for name in NAMES if SHIPPED[name]["match"].get("skus")))
def test_the_machine_type_of_the_cloud(name: str) -> None:
    # Azure is not consistent in its use of capitals.
    for sku in (name, name.lower()):
        assert chosen(facts(sku=sku)) == (name, f"instance metadata ({sku})")


def test_a_known_machine_type_reads_one_file() -> None:
    library = Memory(SHIPPED)
    choose_profile(facts(sku="Standard_ND96asr_v4"), "", library)
    assert library.loaded == ["Standard_ND96asr_v4"]


def test_a_site_file_may_serve_several_machine_types() -> None:
    site = {"fleet": {"name": "fleet", "match": {"skus": ["Standard_A", "Standard_B"]}}, "generic": SHIPPED["generic"]}
    assert choose_profile(facts(sku="standard_b"), "", Memory(site)).profile["name"] == "fleet"


@pytest.mark.parametrize("product", ["DGXA100 920-23687-2531-001", "dgxa100 920-23687-2530-000", "NVIDIA DGX A100"])
def test_the_product_name(product: str) -> None:
    assert chosen(facts(product=product)) == ("dgx_a100", f"product name ({product})")


@pytest.mark.parametrize("name", sorted(name for name in NAMES if SHIPPED[name].get("gpus", {}).get("bus_ids")))
def test_the_hardware(name: str) -> None:
    for model in range(len(SHIPPED[name]["gpus"]["models"])):
        gpus = gpus_of(name, model)
        assert chosen(facts(gpus=gpus)) == (name, "hardware")
        # Older drivers print the name without the maker.
        assert chosen(facts(gpus=[(gpu.replace("NVIDIA ", ""), bus_id) for gpu, bus_id in gpus]))[0] == name
        # A node that lost a GPU is still recognized, which is when it matters.
        assert chosen(facts(gpus=gpus[:3] + gpus[4:]))[0] == name


def test_hardware_without_published_addresses() -> None:
    gpus = [("Tesla V100-PCIE-16GB", f"{number:04x}:00:00.0") for number in range(1, 5)]
    assert chosen(facts(gpus=gpus)) == ("Standard_NC24rs_v3", "hardware")
    # One that lost a GPU is the same machine; one with more is another.
    assert chosen(facts(gpus=gpus[:3]))[0] == "Standard_NC24rs_v3"
    assert chosen(facts(gpus=[*gpus, ("Tesla V100-PCIE-16GB", "0005:00:00.0")]))[0] == "generic"
    # Cards of this model are in many servers, and Azure sells machines with one or two of them.
    assert chosen(facts(gpus=gpus, product="PowerEdge R740"))[0] == "generic"
    assert chosen(facts(gpus=gpus[:1], sku="Standard_NC6s_v3", product="Virtual Machine"))[0] == "generic"


@pytest.mark.parametrize(
    ("model", "name"), [("NVIDIA H100 80GB HBM3", "hgx_h100"), ("NVIDIA H200", "hgx_h200"), ("NVIDIA B200", "hgx_b200")]
)
def test_a_board_in_a_server_that_neither_a_cloud_nor_its_firmware_names(model: str, name: str) -> None:
    gpus = [(model, f"0000:{bus}:00.0") for bus in ("19", "3b", "4c", "5d", "9b", "bb", "cb", "db")]
    assert chosen(facts(gpus=gpus)) == (name, "hardware")
    assert chosen(facts(gpus=gpus, product="PowerEdge XE9680")) == (name, "hardware")
    # With seven it is the same server, one GPU is missing.
    seven = facts(gpus=gpus[:7], product="PowerEdge XE9680")
    assert chosen(seven) == (name, "hardware")
    whole = {**seven, "unknown": [], "nvidia_smi": {"state": "answered"}}
    (verdict,) = compare(SHIPPED[name], {**whole, "gpus": [{**gpu, **SOUND} for gpu in whole["gpus"]]}, ["gpus"])
    assert (verdict["verdict"], verdict["what"], verdict["expected"], verdict["found"]) == (
        "fail",
        "number of GPUs",
        8,
        "7",
    )
    # A cloud has machine types with one, two or four GPUs of such a board, and tells which one this is.
    for few in (gpus, gpus[:7], gpus[:1]):
        assert chosen(facts(gpus=few, sku="p5.4xlarge", product="p5.4xlarge"))[0] == "generic"


@pytest.mark.parametrize("match", [None, {}, {"products": ["PowerEdge XE9680"]}])
def test_a_site_s_own_profile_comes_before_a_shipped_one_that_fits_as_well(match: t.Any) -> None:
    board = SHIPPED["hgx_h100"]
    own = {**board, "name": "fleet", **({} if match is None else {"match": match})}
    if match is None:
        own.pop("match")
    node = facts(gpus=[("NVIDIA H100 80GB HBM3", f"0000:{bus}:00.0") for bus in range(10, 18)])
    for profiles in ({**SHIPPED, "fleet": own}, {"fleet": own, **SHIPPED}):
        assert choose_profile(node, "", Memory(profiles, ["fleet"])).profile["name"] == "fleet"
    # Two of its own are not guessed between.
    both = {**SHIPPED, "fleet": own, "other": {**own, "name": "other"}}
    choice = choose_profile(node, "", Memory(both, ["fleet", "other"]))
    assert choice.notes == ("the hardware fits several profiles (fleet, other): set `name`",)


@pytest.mark.parametrize("generation", ["h100", "h200", "b200"])
def test_a_dgx_is_known_by_its_firmware(generation: str) -> None:
    product = f"DGX{generation.upper()}"
    assert chosen(facts(product=product)) == (f"dgx_{generation}", f"product name ({product})")


def test_addresses_alone_before_there_is_a_driver() -> None:
    assert chosen(facts(on_bus=SHIPPED["dgx_a100"]["gpus"]["bus_ids"])) == ("dgx_a100", "hardware")
    # Part of them is the same machine, unless the firmware gives it another name.
    assert chosen(facts(on_bus=SHIPPED["dgx_a100"]["gpus"]["bus_ids"][:5]))[0] == "dgx_a100"
    assert chosen(facts(on_bus=SHIPPED["dgx_a100"]["gpus"]["bus_ids"], product="PowerEdge R740"))[0] == "generic"
    # A few may be in any machine.
    assert chosen(facts(on_bus=["0000:07:00.0", "0000:0f:00.0"]))[0] == "generic"


KINDS = ("gpus", "pci_gpus", "hcas", "nvme", "numa")


def machine(name: str, identity: str, driver: bool) -> dict[str, t.Any]:
    """What a whole machine of a profile says of itself. ``identity``: by what it can be known besides its hardware."""
    profile = SHIPPED[name]
    section = profile["gpus"]
    bus_ids = section.get("bus_ids") or [f"0000:{0x19 + 0x11 * index:02x}:00.0" for index in range(section["count"])]
    match = profile["match"].get("skus" if identity == "sku" else "products") or [None]
    known = {identity: match[0].replace("*", "") if match[0] else None} if identity else {}
    node = facts(
        **known, gpus=[(section["models"][0]["name"], bus_id) for bus_id in bus_ids] if driver else (), on_bus=bus_ids
    )
    hcas = [{"device": f"mlx5_{number}", "port": 1} for number in range(8)]
    nvme = [{"path": f"/dev/nvme{number}n1"} for number in range(8)]
    numa = [{"id": number, "cpus": f"{number}"} for number in range(2)]
    return {**node, "hcas": hcas, "nvme": nvme, "numa": numa, "memory_mib": 2097152, "cpus": {"threads": 192}}


@settings(max_examples=40)
@given(
    st.sampled_from(sorted(name for name in NAMES if "gpus" in SHIPPED[name])),
    st.sampled_from(["", "sku", "product"]),
    st.booleans(),
    st.data(),
)
def test_what_is_lost_never_changes_what_is_expected(
    name: str, identity: str, driver: bool, data: st.DataObject
) -> None:
    whole = machine(name, identity, driver)
    named = bool(whole["platform"].get(identity))
    lacking = {**whole, "memory_mib": data.draw(st.sampled_from([None, 1024, 2097152])), "cpus": {}}
    for kind in KINDS:
        # Who lost the last GPU, too, is known by its name alone.
        least = 1 if "gpus" in kind and not named else 0
        places = st.sets(st.sampled_from(range(len(whole[kind]))), min_size=least) if whole[kind] else st.just(set())
        lacking[kind] = [whole[kind][place] for place in sorted(data.draw(places))]
    if driver or named:
        assert chosen(lacking) == chosen(whole)
    else:
        # A few addresses may be those of any machine: that is said, and none chosen.
        assert chosen(lacking)[0] in (chosen(whole)[0], "generic")


def test_two_profiles_that_fit_are_not_guessed_between() -> None:
    # 40 and 80 GB have the same addresses in Azure: without a driver they look alike.
    choice = choose_profile(facts(on_bus=SHIPPED["Standard_ND96asr_v4"]["gpus"]["bus_ids"]), "", Memory(SHIPPED))
    assert choice.profile["name"] == "generic"
    assert "Standard_ND96amsr_A100_v4, Standard_ND96asr_v4" in choice.notes[0]


def test_nothing_known_is_generic_and_says_so() -> None:
    choice = choose_profile(facts(sku="Standard_D2s_v5"), "", Memory(SHIPPED))
    assert choice.profile["name"] == "generic"
    assert choice.notes == ("there is no profile for the machine type Standard_D2s_v5", "the hardware fits no profile")


def test_an_unknown_machine_type_falls_back_to_hardware() -> None:
    choice = choose_profile(facts(sku="Standard_NEW", gpus=gpus_of("Standard_ND96isr_H200_v5")), "", Memory(SHIPPED))
    assert (choice.profile["name"], choice.by) == ("Standard_ND96isr_H200_v5", "hardware")
    assert choice.notes == ("there is no profile for the machine type Standard_NEW",)
