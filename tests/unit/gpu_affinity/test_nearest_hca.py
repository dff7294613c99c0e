# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every GPU gets the HCA below its switch: on published layouts, and on any bus."""

from __future__ import annotations

import dataclasses
import typing as t
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.nearest import distance, nearest_hcas
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.options import (
    PLAN_OPTIONS,
    PlanRequest,
    plan_and_render,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.topology import (
    Gpu,
    Hca,
    NumaNode,
    Topology,
)
from hypothesis import given
from hypothesis import strategies as st

TOPO = Path(__file__).parent / "fixtures/topo"
WORDS = ("PIX", "PXB", "PHB", "NODE", "SYS")
DEFAULTS = {name: option["default"] for name, option in PLAN_OPTIONS.items()}


@dataclasses.dataclass(frozen=True)
class Layout:
    """A published table: the words of ``nvidia-smi topo -m`` and the NUMA node by GPU; addresses as on the machine."""

    words: list[list[str]]
    numa: list[int]
    gpus: list[str]
    hcas: list[str]
    names: str
    used: list[int]

    def facts(self) -> dict[str, t.Any]:
        """The facts of a node on which the words come true."""
        beside = {
            nic: gpu for gpu, row in enumerate(self.words) for nic, word in enumerate(row) if word in ("PIX", "PXB")
        }
        gpus = [
            {"index": gpu, "numa": self.numa[gpu], "bus_id": bus, "name": "NVIDIA H100 80GB HBM3", "uuid": f"GPU-{gpu}",
             "pci_path": chain(bus, f"gpu{gpu}" if gpu in beside.values() else None)}
            for gpu, bus in enumerate(self.gpus)
        ]  # fmt: skip
        half = len(self.hcas) // 2
        hcas = [
            {"device": self.names.format(nic), "port": 1, "rate_gbps": 400, "state": "ACTIVE", "bus_id": bus,
             "numa": self.numa[beside[nic]] if nic in beside else nic // half,
             "pci_path": chain(bus, f"gpu{beside[nic]}" if nic in beside else None)}
            for nic, bus in enumerate(self.hcas)
        ]  # fmt: skip
        numa = [{"id": 0, "cpus": "0-47"}, {"id": 1, "cpus": "48-95"}]
        return {"numa": numa, "cpus": {"cores": 96, "threads": 96}, "gpus": gpus, "hcas": hcas}


def chain(bus_id: str, switch: str | None) -> list[str]:
    """Bridges above a device: a host bridge and a switch for each GPU, or a host bridge alone."""
    if switch is None:
        return [f"pci{bus_id[:7]}"]
    return [f"pci-of-{switch}", f"port-of-{switch}", f"switch-of-{switch}", f"port-to-{bus_id}"]


def layout(name: str, gpus: list[str], hcas: list[str], names: str, used: list[int]) -> Layout:
    rows = [line.split("\t")[1:] for line in (TOPO / f"{name}.txt").read_text().splitlines()[1:]]
    return Layout([row[:-1] for row in rows], [int(row[-1]) for row in rows], gpus, hcas, names, used)


def on_bus_0(*buses: str) -> list[str]:
    return [f"0000:{bus}" if "." in bus else f"0000:{bus}:00.0" for bus in buses]


LAYOUTS = {
    "dgx_h100": layout(
        "dgx_h100",
        on_bus_0("1b", "43", "52", "61", "9d", "c3", "d1", "df"),
        on_bus_0("18", "29:00.0", "29:00.1", "40", "4f", "5e", "9a", "aa:00.0", "aa:00.1", "c0", "ce", "dc"),
        "mlx5_{}",
        [0, 3, 4, 5, 6, 9, 10, 11],
    ),
    "hgx_h100_storage": layout(
        "hgx_h100_storage",
        on_bus_0("19", "3b", "4c", "5d", "9b", "bb", "cb", "db"),
        on_bus_0("1a", "3c", "4d", "50", "51", "5e", "9c", "bc", "cc", "dc"),
        "mlx5_{}",
        [0, 1, 2, 5, 6, 7, 8, 9],
    ),
    "ndv5": layout(
        "ndv5",
        [f"{domain:04x}:00:00.0" for domain in (1, 2, 3, 8, 9, 0xA, 0xB, 0xC)],
        [f"{0x101 + number:04x}:00:00.0" for number in range(8)],
        "mlx5_ib{}",
        list(range(8)),
    ),
}


def made(facts: dict[str, t.Any], **options: t.Any) -> dict[str, t.Any]:
    return plan_and_render(facts, {}, PlanRequest.of({**DEFAULTS, **options}))


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_published_layout(name: str) -> None:
    one = LAYOUTS[name]
    plan = made(one.facts())
    expected = [one.names.format(nic) for nic in one.used]
    assert [rank["hca"] for rank in plan["ranks"]] == expected
    # What is published says so, too: none is nearer.
    for words, nic in zip(one.words, one.used):
        assert words[nic] == min(words, key=WORDS.index)
    # The same in everybody's words.
    assert plan["hpl"]["ucx_affinity"] == ":".join(expected)
    assert [line.split()[4] for line in plan["gpu_bind_map"].splitlines() if line[0].isdigit()] == expected
    assert neighbors(plan["nccl_topology_xml"]) == {gpu: one.hcas[nic] for gpu, nic in zip(one.gpus, one.used)}


def neighbors(text: str) -> dict[str, str]:
    """The HCA below the switch of each GPU in a topology file, where there is exactly one of both."""
    found = {}
    for bridge in ET.fromstring(text).iter("pci"):
        kinds = {pci.get("class"): pci.get("busid") or "" for pci in bridge}
        if len(bridge) == 2 and "0x030200" in kinds:
            found[kinds["0x030200"]] = kinds["0x020700"]
    return found


def test_a_gpu_whose_adapter_is_lost_uses_one_of_the_others_gpus_and_not_the_storage_s() -> None:
    facts = LAYOUTS["dgx_h100"].facts()
    facts["hcas"] = [hca for hca in facts["hcas"] if hca["device"] != "mlx5_3"]
    hcas = [rank["hca"] for rank in made(facts)["ranks"]]
    assert hcas == ["mlx5_0", "mlx5_0", *(f"mlx5_{nic}" for nic in (4, 5, 6, 9, 10, 11))]


STORAGE = ("mlx5_1", "mlx5_2", "mlx5_7", "mlx5_8")


@pytest.mark.parametrize(("compute", "storage"), [(10, 200), (200, 400), (None, 400), (400, 100)])
def test_ports_of_storage_do_not_say_how_fast_the_fabric_is(compute: int | None, storage: int) -> None:
    """InfiniBand that is down says 10 Gb/s, or nothing, beside Ethernet that is up; and storage may be a generation ahead."""
    facts = LAYOUTS["dgx_h100"].facts()
    facts["hcas"] = [{**hca, "rate_gbps": storage if hca["device"] in STORAGE else compute} for hca in facts["hcas"]]
    assert [rank["hca"] for rank in made(facts)["ranks"]] == [f"mlx5_{nic}" for nic in LAYOUTS["dgx_h100"].used]
    # A card for management below a switch is no fabric: the fast ones elsewhere are.
    facts["hcas"] = [{**hca, "rate_gbps": 25 if hca["device"] == "mlx5_0" else 400} for hca in facts["hcas"]]
    facts["hcas"] = [hca for hca in facts["hcas"] if hca["device"] in ("mlx5_0", *STORAGE)]
    assert {rank["hca"] for rank in made(facts)["ranks"]} == set(STORAGE)


def test_a_gpu_that_is_lost_changes_nothing_for_the_others() -> None:
    facts = LAYOUTS["dgx_h100"].facts()
    facts["gpus"] = [{**gpu, "index": index} for index, gpu in enumerate(facts["gpus"][:1] + facts["gpus"][2:])]
    assert [rank["hca"] for rank in made(facts)["ranks"]] == [f"mlx5_{nic}" for nic in (0, 4, 5, 6, 9, 10, 11)]


def test_two_gpus_below_a_switch_with_one_adapter_share_it() -> None:
    """p4d: two GPUs and an EFA on every host bridge, without a switch that the guest sees."""
    path = [f"pci0000:{bus}" for bus in ("10", "20", "90", "a0")]
    facts = {
        "numa": [{"id": 0, "cpus": "0-3"}, {"id": 1, "cpus": "4-7"}],
        "gpus": [
            {"index": index, "numa": index // 4, "bus_id": f"{path[index // 2][3:]}:1{'cd'[index % 2]}.0",
             "name": "NVIDIA A100-SXM4-40GB", "pci_path": [path[index // 2]]}
            for index in range(8)
        ],
        "hcas": [
            {"device": f"efa{number}", "numa": number // 2, "bus_id": f"{bridge[3:]}:1b.0", "pci_path": [bridge]}
            for number, bridge in enumerate(path)
        ],
    }  # fmt: skip
    assert [rank["hca"] for rank in made(facts)["ranks"]] == [f"efa{index // 2}" for index in range(8)]


# Any bus: GPUs and HCAs anywhere below a few host bridges, ports and switches, and on two NUMA nodes.
PATHS = st.lists(st.integers(0, 2), max_size=4).map(
    lambda turns: tuple("/".join(map(str, turns[:end])) for end in range(1, len(turns) + 1))
)
PLACES = st.tuples(PATHS, st.integers(0, 1))


@st.composite
def buses(draw: st.DrawFn) -> Topology:
    gpus = draw(st.lists(PLACES, min_size=1, max_size=8))
    hcas = draw(st.lists(PLACES, max_size=12))
    return Topology(
        "facts",
        tuple(NumaNode(number, (number,), ((number,),)) for number in range(2)),
        tuple(Gpu(index, numa, f"0000:{index:02x}:00.0", pci_path=path) for index, (path, numa) in enumerate(gpus)),
        tuple(
            Hca(f"mlx5_{number}", numa, f"0001:{number:02x}:00.0", 400, path)
            for number, (path, numa) in enumerate(hcas)
        ),
    )


@given(buses())
def test_no_hca_is_nearer_than_the_chosen_one(bus: Topology) -> None:
    chosen = nearest_hcas(bus)
    assert set(chosen) == ({gpu.index for gpu in bus.gpus} if bus.hcas else set())
    for gpu in bus.gpus if bus.hcas else ():
        assert distance(gpu, chosen[gpu.index]) == min(distance(gpu, hca) for hca in bus.hcas)


@given(buses(), st.randoms(use_true_random=False))
def test_the_order_on_the_bus_and_names_do_not_matter_where_one_hca_is_nearest(bus: Topology, random: t.Any) -> None:
    chosen = nearest_hcas(bus)
    numbers = list(range(len(bus.hcas)))
    random.shuffle(numbers)
    # The kernel names devices in the order of their addresses: both change.
    renamed = {
        hca: dataclasses.replace(hca, name=f"mlx5_{number}", bus_id=f"0001:{number:02x}:00.0")
        for hca, number in zip(bus.hcas, numbers)
    }
    moved = dataclasses.replace(bus, hcas=tuple(sorted(renamed.values(), key=lambda hca: hca.bus_id)))
    again = nearest_hcas(moved)
    for gpu in bus.gpus:
        far = sorted(distance(gpu, hca) for hca in bus.hcas)
        if far and far.count(far[0]) == 1:
            assert again[gpu.index] == renamed[chosen[gpu.index]]
    # With the addresses as they were names alone change nothing at all.
    alias = {hca: dataclasses.replace(hca, name=f"ib{number}") for number, hca in zip(numbers, bus.hcas)}
    named = nearest_hcas(dataclasses.replace(bus, hcas=tuple(alias.values())))
    assert named == {index: alias[hca] for index, hca in chosen.items()}
