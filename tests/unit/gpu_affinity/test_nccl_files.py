# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files for NCCL of the machine types that need some: read as NCCL reads them, and compared with what Azure's images ship.

What Azure ships is named in words here (azhpc-images at 8e9d055f, topology/*.xml), not copied.
"""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.foreign import MARK
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.nccl_files import (
    AUTO,
    FILES,
    also_written,
    folders,
    is_foreign,
    place,
    written_beside,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.options import (
    PLAN_OPTIONS,
    PlanRequest,
    plan_and_render,
)
from nccl_reader import GRAPHS, TOPOLOGY, Node, RejectedError, distance, link_gbytes_s, read

PROFILES = {
    path.stem: yaml.safe_load(path.read_text())
    for path in sorted((Path(__file__).parents[3] / "roles/node_profile/files/profiles").glob("*.yml"))
}
DEFAULTS = PlanRequest.of({name: option["default"] for name, option in PLAN_OPTIONS.items()})
NDV4 = ("Standard_ND96asr_v4", "Standard_ND96amsr_A100_v4")
NCV4, NDV2 = "Standard_NC96ads_A100_v4", "Standard_ND40rs_v2"
TOPOLOGY_FILE, GRAPH_FILE = FILES


def facts(profile: dict[str, t.Any], missing: int = -1) -> dict[str, t.Any]:
    """A node of this machine type as its facts have it: the kernel knows CPUs and addresses, but places no device (-1)."""
    gpus, fabric = profile["gpus"], profile.get("fabric", {}).get("hcas", [])
    name = gpus["models"][0]["name"]
    return {
        "numa": [{"id": node["id"], "cpus": node["cpus"]} for node in profile["numa"]["nodes"]],
        "cpus": {},
        "gpus": [
            {"index": index, "numa": None, "bus_id": bus_id, "name": name}
            for index, bus_id in enumerate(bus_id for at, bus_id in enumerate(gpus["bus_ids"]) if at != missing)
        ],
        "hcas": [{"device": hca["name"], "numa": None, **hca} for hca in fabric],
    }


def made(name: str, missing: int = -1) -> dict[str, t.Any]:
    """The plan of a node, from its facts and its profile."""
    profile = PROFILES[name]
    return plan_and_render(facts(profile, missing), profile, DEFAULTS)


def system(name: str, missing: int = -1) -> Node:
    return read(MARK + made(name, missing)["nccl_topology_xml"], TOPOLOGY)


@pytest.mark.parametrize("name", [name for name in PROFILES if place(AUTO, TOPOLOGY_FILE, PROFILES[name])])
def test_nccl_reads_the_topology_of_every_machine_type_that_needs_one(name: str) -> None:
    top, profile = system(name), PROFILES[name]
    placed = {
        int(cpu.attributes["numaid"]): {
            pci.attributes["busid"] for pci in cpu.all("pci") if pci.attributes["class"] != "0x060400"
        }
        for cpu in top.all("cpu")
    }
    hcas = {hca["name"]: hca["bus_id"] for hca in profile.get("fabric", {}).get("hcas", [])}
    assert placed == {
        node["id"]: {profile["gpus"]["bus_ids"][gpu] for gpu in node["gpus"]} | {hcas[hca] for hca in node["hcas"]}
        for node in profile["numa"]["nodes"]
    }
    # PCIe 4 with A100, 3 with V100: the speeds are words that NCCL knows.
    assert {link_gbytes_s(pci) for pci in top.all("pci")} == {12.0 if name == NDV2 else 24.0}
    busids = [pci.attributes["busid"] for pci in top.all("pci")]
    assert len(set(busids)) == len(busids)


def test_exactly_these_machine_types_need_a_file() -> None:
    assert {name for name in PROFILES if place(AUTO, TOPOLOGY_FILE, PROFILES[name])} == {*NDV4, NCV4, NDV2}


@pytest.mark.parametrize("name", NDV4)
def test_gpus_and_hcas_of_ndv4_are_near_enough_for_gpudirect(name: str) -> None:
    """NCCL uses GPUDirect RDMA over PXB or nearer by default; topology/ndv4-topo.xml has the same neighbours."""
    top, profile = system(name), PROFILES[name]
    gpus, hcas = profile["gpus"]["bus_ids"], [hca["bus_id"] for hca in profile["fabric"]["hcas"]]
    near = {gpu: [hca for hca in range(8) if distance(top, gpus[gpu], hcas[hca]) == "PIX"] for gpu in range(8)}
    assert near == {0: [0, 1], 1: [0, 1], 2: [2, 3], 3: [2, 3], 4: [4, 5], 5: [4, 5], 6: [6, 7], 7: [6, 7]}
    assert distance(top, gpus[0], hcas[2]) == "SYS"


def test_a_gpu_that_is_missing_changes_nothing_for_the_others() -> None:
    top, profile = system(NDV4[0], missing=3), PROFILES[NDV4[0]]
    gpus, hcas = profile["gpus"]["bus_ids"], [hca["bus_id"] for hca in profile["fabric"]["hcas"]]
    assert distance(top, gpus[2], hcas[2]) == "PIX"
    assert distance(top, gpus[7], hcas[7]) == "PIX"


def test_where_nothing_says_what_shares_a_switch_there_is_none() -> None:
    """topology/ncv4-topo.xml has a GPU on each NUMA node, topology/ndv2-topo.xml four and one HCA, all below the processor."""
    for name in (NCV4, NDV2):
        assert {pci.parent.name for pci in system(name).all("pci") if pci.parent} == {"cpu"}
    gpus = PROFILES[NDV2]["gpus"]["bus_ids"]
    assert distance(system(NDV2), gpus[0], "0101:00:00.0") == "PHB"
    assert distance(system(NDV2), gpus[0], gpus[4]) == "SYS"


def test_a_mask_that_nccl_could_not_read_is_not_written() -> None:
    """A value has 253 characters at most: 28 words of the mask."""
    node = {"numa": [{"id": 0, "cpus": "0-895"}], "cpus": {}, "hcas": []}
    node["gpus"] = [{"index": 0, "numa": 0, "bus_id": "0001:00:00.0", "name": "NVIDIA H100"}]
    assert read(plan_and_render(node, {}, DEFAULTS)["nccl_topology_xml"], TOPOLOGY)
    plan = plan_and_render({**node, "numa": [{"id": 0, "cpus": "0-896"}]}, {}, DEFAULTS)
    assert plan["nccl_topology_xml"] is None
    assert "nccl_topology_xml: NCCL reads masks of 896 CPUs at most, this node has 897" in plan["notes"]


# -- the graph -----------------------------------------------------------------------------------------------------------


def test_nccl_reads_the_channels_that_azure_ships_for_ncv4() -> None:
    """topology/ncv4-graph.xml: two rings, four trees, the same trees for CollNet, 12 GB/s each over the processors' link."""
    graphs = read(MARK + made(NCV4)["nccl_graph_xml"], GRAPHS).all("graph")
    # search.cc: a number in base 16 today, in base 0 before 2.24.
    orders = [
        [[int(gpu.attributes["dev"], 0) for gpu in channel.all("gpu")] for channel in graph.all("channel")]
        for graph in graphs
    ]
    trees = [[0, 1, 2, 3], [1, 0, 3, 2], [3, 2, 1, 0], [2, 3, 0, 1]]
    assert orders == [[[0, 1, 2, 3], [0, 3, 2, 1]], trees, trees]
    assert [(graph.attributes["id"], graph.attributes["pattern"]) for graph in graphs] == [
        ("0", "4"),
        ("1", "1"),
        ("2", "3"),
    ]
    assert [graph.attributes["nchannels"] for graph in graphs] == ["2", "4", "4"]
    for graph in graphs:
        told = graph.attributes
        assert (told["speedintra"], told["speedinter"], told["typeintra"], told["typeinter"]) == (
            "12",
            "12",
            "SYS",
            "PIX",
        )
        # search.cc asks for each of these.
        assert {"crossnic", "latencyinter", "samechannels"} < set(told)
        assert all(gpu.attributes["dev"].startswith("0x") for gpu in graph.all("gpu"))


def test_a_graph_is_only_for_all_the_gpus_that_it_names() -> None:
    plan = made(NCV4, missing=2)
    assert plan["nccl_graph_xml"] is None
    assert [note for note in plan["notes"] if note.startswith("nccl_graph_xml: ")] == [
        "nccl_graph_xml: the channels of the profile are for GPU 0-3, and the node has GPU 0-2; NCCL ends a job that lacks a GPU of "
        "its graph"
    ]
    # Machine types without channels need no excuse.
    plan = made(NDV4[0])
    assert "nccl_graph_xml" not in plan
    assert not [note for note in plan["notes"] if "nccl" in note]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rings", None),
        ("trees", "0123"),
        ("rings", [0, 1, 2, 3]),
        ("rings", [["0", "1", "2", "3"]]),
        ("trees", [[0.0, 1.0, 2.0, 3.0]]),
        ("trees", []),
        # NCCL has no place for the GPU that a channel lacks, nor for more channels than it knows.
        ("rings", [[0, 1, 2]]),
        ("rings", [[0, 1, 2, 2]]),
        ("rings", [[0, 1, 2, 3]] * 33),
        ("gbytes_s", "fast"),
        ("gbytes_s", 0),
        ("gbytes_s", '12" x="'),
    ],
)
def test_channels_that_are_none_are_refused_in_words(key: str, value: t.Any) -> None:
    """Some were a traceback, some a file that NCCL believes."""
    profile = PROFILES[NCV4]
    nccl = {**profile["nccl"], "channels": {**profile["nccl"]["channels"], key: value}}
    with pytest.raises(ClusterError, match=f"`channels` of its NCCL settings: .*`{key}`"):
        plan_and_render(facts(profile), {**profile, "nccl": nccl}, DEFAULTS)


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_no_profile_gives_all_jobs_a_graph(name: str) -> None:
    """NCCL ends every job where the file is missing, and every one that uses fewer GPUs (azhpc-images#327)."""
    assert place(AUTO, GRAPH_FILE, PROFILES[name]) == ""


# -- the reader that the tests above believe ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('<?xml version="1.0" encoding="UTF-8"?>\n<system version="1"></system>\n', "expected >|Mismatch|unterminated"),
        ('<system version="2"></system>', "wrong version"),
        ('<system version="1">', "unterminated system"),
        ('<system version="1"></cpu>', "Mismatch : system / cpu"),
        ("<system version=1></system>", "quote"),
        ("<!-- no end", "unterminated comment"),
        ('<system version="1"><cpu numaid="0" affinity="%s"/></system>' % ("f" * 254), "too long"),
        ("text", "expecting '<'"),
    ],
)
def test_what_nccl_refuses(text: str, words: str) -> None:
    with pytest.raises(RejectedError, match=words):
        read(text, TOPOLOGY)


def test_what_nccl_skips() -> None:
    top = read(
        '<!-- a > b --><system version="1">\n<!----><cpu numaid="0"><other><pci busid="1"/></other></cpu></system>',
        TOPOLOGY,
    )
    assert (top.name, top.children[0].attributes, top.all("pci")) == ("system", {"numaid": "0"}, [])


# -- where they lie, and whose they are -----------------------------------------------------------------------------------


def test_whose_a_file_is(tmp_path: Path) -> None:
    path = tmp_path / "topo.xml"
    assert not is_foreign(str(path))
    path.write_text(MARK + "<system/>\n")
    assert not is_foreign(str(path))
    # As Azure's images have it: a link to the file of the vendor.
    link = tmp_path / "link.xml"
    link.symlink_to(path)
    assert is_foreign(str(link))
    link.unlink()
    link.symlink_to(tmp_path / "nothing")
    assert is_foreign(str(link))
    path.write_text('<system version="1">\n')
    assert is_foreign(str(path))


def test_the_head_of_the_map_tells_what_was_written_beside_it() -> None:
    paths = ["/opt/microsoft/ncv4/topo.xml", "/opt/with blanks/graph.xml"]
    assert written_beside(f"# Ansible managed\n{also_written(paths)}# rank gpus\n0 0 0 0 - -\n") == paths
    assert written_beside("# Also written: topo.xml\n") == []


def test_which_directories_may_go_with_a_file() -> None:
    assert folders("/opt/microsoft/ndv4/topo.xml") == ["/opt/microsoft/ndv4", "/opt/microsoft"]
    assert folders("/usr/local/share/nccl/topo.xml") == ["/usr/local/share/nccl"]
    assert folders("/opt/topo.xml") == folders("/etc/topo.xml") == []
