# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a difference between a node and its profile is called."""

from __future__ import annotations

import copy
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.compare import compare, describe, worst
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.facts import collect
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.profile import CHECKS, Profile, deep_merge
from unit.node.fake_node import FakeNode, ndv4, ndv5, silent_vm, smi

PROFILES = Path(__file__).resolve().parents[3] / "roles/node_profile/files/profiles"


def profile(name: str = "Standard_ND96asr_v4") -> Profile:
    loaded: Profile = yaml.safe_load((PROFILES / f"{name}.yml").read_text(encoding="utf-8"))
    return loaded


def observed(tmp_path: Path, build: t.Callable[[Path], FakeNode] = ndv4, case: str = "ndv4") -> dict[str, t.Any]:
    program = smi(tmp_path, case) if case else str(tmp_path / "none")
    return collect(build(tmp_path / "root").root, nvidia_smi=program, metadata="never")


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, t.Any]:
    return observed(tmp_path_factory.mktemp("healthy"))


def judged(node: dict[str, t.Any], *checks: str, spec: Profile | None = None) -> list[tuple[str, str]]:
    return [
        (item["verdict"], item["what"])
        for item in compare(spec or profile(), node, checks or CHECKS)
        if item["verdict"] != "ok"
    ]


def test_a_healthy_node_is_ok_in_every_part(healthy: dict[str, t.Any]) -> None:
    verdicts = compare(profile(), healthy)
    assert [(item["check"], item["verdict"]) for item in verdicts] == [(check, "ok") for check in CHECKS]
    assert worst(verdicts) == "ok"


def test_a_healthy_ndv5_is_ok(tmp_path: Path) -> None:
    node = observed(tmp_path, ndv5, "h200_deprecated")
    node["hcas"].append(
        {**node["hcas"][0], "device": "mlx5_an0", "bus_id": "9:9", "rate_gbps": 100, "link_layer": "Ethernet"}
    )
    assert judged(node, spec=profile("Standard_ND96isr_H200_v5")) == []
    # The map of NDv4 does not fit NDv5.
    assert ("fail", "NUMA nodes and their CPUs") in judged(node, "numa")


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        ("0, 0, 0", ()),
        ("0, 0, 512", ()),
        ("1, 0, 1", ("fail", "memory rows of GPU 3 (0004:00:00.0)", "a remapping is pending", "reboot")),
        ("Yes, No, 1", ("fail", "memory rows of GPU 3 (0004:00:00.0)", "a remapping is pending", "reboot")),
        ("1, 1, 2", ("fail", "memory rows of GPU 3 (0004:00:00.0)", "a row could not be remapped", "Replace the GPU.")),
        ("0, 0, 513", ("fail", "memory rows of GPU 3 (0004:00:00.0)", "513 rows remapped", "Replace the GPU.")),
        # Of GPUs before Ampere, and of a driver that is lost in the middle of its answer.
        ("[N/A], [N/A], [N/A]", ()),
        ("0, [Unknown Error]", ()),
    ],
)
def test_a_gpu_whose_memory_fails_is_named(tmp_path: Path, row: str, verdict: tuple[str, ...]) -> None:
    program = smi(tmp_path, "ndv4", f"00000001:00:00.0, 0, 0, 0\n00000004:00:00.0, {row}\n")
    node = collect(ndv4(tmp_path / "root").root, nvidia_smi=program, metadata="never")
    assert node["gpus"][0]["remapped_rows"] == {"pending": False, "failure": False, "uncorrectable": 0}
    found = [item for item in compare(profile(), node) if item["verdict"] != "ok"]
    assert [(item["verdict"], item["what"], item["found"]) for item in found] == ([verdict[:3]] if verdict else [])
    assert all(verdict[3] in item["remedy"] for item in found)


def test_uncorrectable_errors_are_a_warning_and_no_reason_to_take_a_node_out(healthy: dict[str, t.Any]) -> None:
    node = copy.deepcopy(healthy)
    node["gpus"][5]["ecc"]["uncorrected"] = 2
    assert judged(node, "gpus") == [("warn", "uncorrectable ECC errors of GPU 5 (000c:00:00.0)")]


def test_every_verdict_says_all_there_is(tmp_path: Path) -> None:
    item = next(item for item in compare(profile(), observed(tmp_path, case="no_handle")) if item["verdict"] == "fail")
    assert set(item) == {"check", "verdict", "what", "expected", "found", "source", "remedy"}
    assert item["what"] == "GPU 3 (0004:00:00.0)"
    assert "Unable to determine the device handle" in item["found"]
    assert "azhpc-images" in item["source"]
    assert "2025-01-31" in item["source"]
    assert item["remedy"]


@pytest.mark.parametrize(
    ("case", "verdicts"),
    [
        ("gpu_lost", [("fail", "GPU 3 (0004:00:00.0)")]),
        ("no_handle", [("fail", "GPU 3 (0004:00:00.0)")]),
        # The program spoke about the hardware but named no GPU.
        ("fell_off_bus", [("fail", "GPUs")]),
        ("no_devices", [("fail", "GPUs")]),
        ("inforom", []),
        # The program could not look: nothing is known about the GPUs.
        ("", [("incomplete", "GPU 0, 1, 2, 3, 4, 5, 6, 7")]),
        ("driver_not_loaded", [("incomplete", "GPU 0, 1, 2, 3, 4, 5, 6, 7")]),
        ("no_permission", [("incomplete", "GPU 0, 1, 2, 3, 4, 5, 6, 7")]),
        ("cut_short", [("incomplete", "GPU 2, 3, 4, 5, 6, 7")]),
    ],
)
def test_missing_gpus(tmp_path: Path, case: str, verdicts: list[tuple[str, str]]) -> None:
    assert judged(observed(tmp_path, case=case), "gpus") == verdicts


def test_a_lost_gpu_is_named_with_what_the_driver_said(tmp_path: Path) -> None:
    text = describe(compare(profile(), observed(tmp_path, case="gpu_lost"), ["gpus"]), "fail")
    assert "GPU 3 (0004:00:00.0): expected present, found the driver answers 'GPU is lost' for it." in text


def test_a_gpu_that_is_not_on_the_bus_is_missing_without_any_driver(tmp_path: Path) -> None:
    node = observed(tmp_path, case="")
    node["pci_gpus"] = [gpu for gpu in node["pci_gpus"] if gpu["bus_id"] != "000d:00:00.0"]
    assert judged(node, "gpus") == [
        ("fail", "GPU 6 (000d:00:00.0)"),
        ("incomplete", "GPU 0, 1, 2, 3, 4, 5, 7"),
    ]


def test_without_a_driver_a_bus_that_shows_no_gpu_proves_nothing(tmp_path: Path) -> None:
    """As in a container."""
    node = observed(tmp_path, case="")
    for shown in ([], None):
        node["pci_gpus"] = shown
        assert judged(node, "gpus") == [("incomplete", "GPU 0, 1, 2, 3, 4, 5, 6, 7")]


def test_a_hang_is_incomplete(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexec sleep 600\n", encoding="utf-8")
    program.chmod(0o755)
    node = collect(ndv4(tmp_path / "root").root, nvidia_smi=str(program), nvidia_smi_timeout_s=0.2, metadata="never")
    verdicts = compare(profile(), node)
    assert [(item["check"], item["verdict"]) for item in verdicts if item["verdict"] != "ok"] == [
        ("gpus", "incomplete")
    ]
    assert "did not answer in time" in describe(verdicts, "incomplete")


Change = t.Callable[[dict[str, t.Any]], None]


def change(path: str, value: t.Any) -> Change:
    def apply(node: dict[str, t.Any]) -> None:
        target: t.Any = node
        *parents, last = path.split("/")
        for key in parents:
            target = target[int(key)] if isinstance(target, list) else target[key]
        target[last] = value

    return apply


def drop(kind: str, index: int) -> Change:
    def apply(node: dict[str, t.Any]) -> None:
        del node[kind][index]

    return apply


@pytest.mark.parametrize(
    ("apply", "verdicts"),
    [
        (change("cpus/cores", 95), [("fail", "CPU cores")]),
        (change("cpus/sockets", None), [("incomplete", "CPU sockets")]),
        (change("memory_mib", 900000), []),
        (change("memory_mib", 870000), [("fail", "memory")]),
        (change("memory_mib", None), [("incomplete", "memory")]),
        (change("swap_mib", 2048), [("warn", "swap")]),
        (change("gpus/2/name", "NVIDIA A100-SXM4-80GB"), [("fail", "model of GPU 2 (0003:00:00.0)")]),
        (change("gpus/2/name", "A100-SXM4-40GB"), []),
        (change("gpus/2/memory_mib", 40537), []),
        (change("gpus/2/memory_mib", 20470), [("fail", "memory of GPU 2 (0003:00:00.0)")]),
        # A GPU that lost a tenth of its memory is no GPU of this type.
        (change("gpus/2/memory_mib", 36864), [("fail", "memory of GPU 2 (0003:00:00.0)")]),
        (change("gpus/2/memory_mib", None), []),
        (change("gpus/2/numa", 3), [("fail", "NUMA node of GPU 2 (0003:00:00.0)")]),
        (change("gpus/2/numa", None), [("incomplete", "NUMA node of GPU 2 (0003:00:00.0)")]),
        (change("numa/1/cpus", "24-46"), [("fail", "NUMA node 1")]),
        # The same CPUs, written in another way.
        (change("numa/1/cpus", "24,25-47"), []),
        (drop("numa", 3), [("fail", "NUMA nodes and their CPUs")]),
        (drop("hcas", 5), [("fail", "HCA mlx5_ib5 (0106:00:00.0)")]),
        # Another name at the same address is the same adapter.
        (change("hcas/5/device", "ibp262s0"), []),
        # An adapter that moved keeps its name.
        (change("hcas/5/bus_id", None), []),
        (change("hcas/5/state", "DOWN"), [("fail", "port of HCA mlx5_ib5 (0106:00:00.0)")]),
        (change("hcas/5/rate_gbps", 100), [("fail", "rate of HCA mlx5_ib5 (0106:00:00.0)")]),
        (change("hcas/5/rate_gbps", 400), []),
        (change("hcas/5/state", None), []),
        (change("hcas/5/link_layer", "Ethernet"), [("fail", "link layer of HCA mlx5_ib5 (0106:00:00.0)")]),
        (change("hcas/5/numa", 0), [("fail", "NUMA node of HCA mlx5_ib5")]),
        (drop("nvme", 0), [("fail", "NVMe disks")]),
    ],
)
def test_one_difference_gives_one_verdict(
    healthy: dict[str, t.Any], apply: Change, verdicts: list[tuple[str, str]]
) -> None:
    node = copy.deepcopy(healthy)
    apply(node)
    assert judged(node) == verdicts


def test_a_port_whose_rate_cannot_be_read_is_neither_fast_nor_slow(healthy: dict[str, t.Any]) -> None:
    node = copy.deepcopy(healthy)
    node["hcas"][5]["rate_gbps"] = None
    assert judged(node) == [("incomplete", "rate of HCA mlx5_ib5 (0106:00:00.0)")]
    spec = profile()
    spec["fabric"] = {"count": 8, "rate_gbps": 200}
    assert judged(node, "fabric", spec=spec) == [("incomplete", "HCA ports")]
    # Were it fast, there would still be too few.
    node["hcas"][6]["rate_gbps"] = 100
    assert judged(node, "fabric", spec=spec) == [("fail", "HCA ports")]


@pytest.mark.parametrize(
    ("section", "found", "fails"),
    [
        ({"mib": 1000, "tolerance_percent": 5}, 950, False),
        ({"mib": 1000, "tolerance_percent": 5}, 949, True),
        ({"mib": 1000, "tolerance_percent": 5}, 1050, False),
        ({"mib": 1000, "tolerance_percent": 5}, 1051, True),
        # Where a profile names no tolerance.
        ({"mib": 1000}, 970, False),
        ({"mib": 1000}, 969, True),
    ],
)
def test_memory_may_differ_as_far_as_the_profile_says(
    healthy: dict[str, t.Any], section: dict[str, int], found: int, fails: bool
) -> None:
    spec = {**profile(), "memory": section}
    assert judged({**healthy, "memory_mib": found}, "memory", spec=spec) == ([("fail", "memory")] if fails else [])


def test_swap_is_worth_a_warning_only_beyond_what_is_allowed(healthy: dict[str, t.Any]) -> None:
    spec = {**profile(), "memory": {"swap_mib": 2048}}
    for found, verdicts in {0: [], 2048: [], 2049: [("warn", "swap")], None: []}.items():
        assert judged({**healthy, "swap_mib": found}, "memory", spec=spec) == verdicts


@pytest.mark.parametrize(
    ("section", "right", "wrong"),
    [({"count": 3}, [3], [2, 4, 0]), ({"min_count": 3}, [3, 4, 8], [2, 0]), ({"count": 0}, [0], [1])],
)
def test_disks_are_counted(
    healthy: dict[str, t.Any], section: dict[str, int], right: list[int], wrong: list[int]
) -> None:
    spec = {**profile(), "nvme": section}
    for count in (*right, *wrong):
        node = {**healthy, "nvme": (healthy["nvme"] * 2)[:count]}
        assert judged(node, "nvme", spec=spec) == ([] if count in right else [("fail", "NVMe disks")]), count
    words = {"count": f"{right[0]} disks", "min_count": "at least 3 disks"}[next(iter(section))]
    assert f"expected {words}, found" in describe(
        compare(spec, {**healthy, "nvme": healthy["nvme"][: wrong[0]]}, ["nvme"]), "fail"
    )


def test_memory_without_cpus_is_no_numa_node_of_the_profile(healthy: dict[str, t.Any]) -> None:
    node = {**healthy, "numa": [*healthy["numa"], {**healthy["numa"][0], "id": 4, "cpus": ""}]}
    assert judged(node, "numa") == []


def test_any_of_a_profiles_models_fits_with_its_own_memory(healthy: dict[str, t.Any]) -> None:
    spec = profile()
    spec["gpus"]["models"].insert(0, {"name": "NVIDIA A100-SXM4-80GB", "memory_mib": 81920})
    assert judged(healthy, "gpus", spec=spec) == []
    node = copy.deepcopy(healthy)
    node["gpus"][1]["name"] = "NVIDIA A100-SXM4-80GB"
    assert judged(node, "gpus", spec=spec) == [("fail", "memory of GPU 1 (0002:00:00.0)")]
    node["gpus"][1]["memory_mib"] = 81920
    assert judged(node, "gpus", spec=spec) == []


def test_an_extra_gpu_and_foreign_addresses(healthy: dict[str, t.Any]) -> None:
    extra = copy.deepcopy(healthy)
    extra["gpus"].append({**extra["gpus"][0], "index": 8, "bus_id": "000f:00:00.0"})
    assert judged(extra, "gpus") == [("fail", "GPU at 000f:00:00.0")]
    foreign = copy.deepcopy(healthy)
    for gpu in foreign["gpus"]:
        gpu["bus_id"] = gpu["bus_id"].replace(":00:00.0", ":01:00.0")
    assert judged(foreign, "gpus") == [("fail", "PCI addresses of the GPUs")]
    # With one of them lost it is no longer sure that the list is for another machine: each is told.
    del foreign["gpus"][0]
    assert len(judged(foreign, "gpus")) == 8 + 7


def test_disks_of_another_size(healthy: dict[str, t.Any]) -> None:
    spec = profile()
    spec["nvme"]["bytes"] = 960_000_000_000
    assert judged(healthy, "nvme", spec=spec) == []
    node = copy.deepcopy(healthy)
    node["nvme"][2]["bytes"] //= 2
    assert judged(node, "nvme", spec=spec) == [("fail", "size of /dev/nvme2n1")]


@pytest.mark.parametrize("section", ["gpus", "fabric"])
def test_a_section_that_an_override_takes_away_is_expected_nowhere(healthy: dict[str, t.Any], section: str) -> None:
    node = {**healthy, "hcas" if section == "fabric" else "gpus": []}
    verdicts = compare(deep_merge(profile(), {section: None}), node)
    assert [(item["check"], item["verdict"]) for item in verdicts] == [(c, "ok") for c in CHECKS if c != section]


def test_without_addresses_gpus_are_counted(healthy: dict[str, t.Any], tmp_path: Path) -> None:
    spec = profile()
    del spec["gpus"]["bus_ids"]
    assert judged(healthy, "gpus", "numa", spec=spec) == []
    assert judged(observed(tmp_path, case="gpu_lost"), "gpus", spec=spec) == [("fail", "number of GPUs")]


def test_without_addresses_an_unanswered_question_stays_open(tmp_path: Path) -> None:
    spec = profile()
    del spec["gpus"]["bus_ids"]
    assert judged(observed(tmp_path, case="driver_not_loaded"), "gpus", spec=spec) == [("incomplete", "number of GPUs")]


def test_a_gpu_too_many_is_told_also_where_others_may_be_hidden(tmp_path: Path) -> None:
    spec = profile()
    del spec["gpus"]["bus_ids"]
    spec["gpus"]["count"] = 1
    assert judged(observed(tmp_path, case="cut_short"), "gpus", spec=spec) == [("fail", "number of GPUs")]


def test_ports_can_be_counted_instead_of_named(healthy: dict[str, t.Any]) -> None:
    spec = profile("dgx_a100")
    del spec["fabric"]["verified"]
    assert judged(healthy, "fabric", spec=spec) == []
    node = copy.deepcopy(healthy)
    node["hcas"].append({**node["hcas"][0], "device": "mlx5_an0", "bus_id": "9:9"})
    assert judged(node, "fabric", spec=spec) == []
    del node["hcas"][:2]
    assert judged(node, "fabric", spec=spec) == [("fail", "HCA ports")]
    node = copy.deepcopy(healthy)
    node["hcas"][0]["rate_gbps"] = 100
    assert judged(node, "fabric", spec=spec) == [("fail", "HCA ports")]


def test_what_is_not_verified_never_fails(healthy: dict[str, t.Any]) -> None:
    node = copy.deepcopy(healthy)
    node["nvme"] = node["nvme"][:3]
    spec = profile("Standard_ND96amsr_A100_v4")
    assert judged(node, "nvme", spec=spec) == [("warn", "NVMe disks")]
    assert "not verified" in describe(compare(spec, node, ["nvme"]), "warn")


def test_silent_hardware_is_incomplete_and_not_wrong(tmp_path: Path) -> None:
    """The lab: GPUs without PCI devices on a node with several NUMA nodes."""

    def lab(root: Path) -> FakeNode:
        node = silent_vm(root, 4)
        for number in range(4):
            node.numa(number, f"{number * 24}-{number * 24 + 23}", 1024)
        return node

    node = observed(tmp_path, lab)
    assert judged(node, "gpus") == []
    expected = ", ".join(f"GPU {gpu} ({bus_id})" for gpu, bus_id in _in_numa_order())
    assert judged(node, "numa") == [("incomplete", f"NUMA node of {expected}")]


def _in_numa_order() -> list[tuple[int, str]]:
    spec = profile()
    return [(gpu, spec["gpus"]["bus_ids"][gpu]) for node in spec["numa"]["nodes"] for gpu in node["gpus"]]


@pytest.mark.parametrize("kind", ["hcas", "nvme"])
def test_a_driver_that_is_not_loaded_is_incomplete(tmp_path: Path, kind: str) -> None:
    def bare(root: Path) -> FakeNode:
        node = FakeNode(root)
        node.cpus(2, 96, 96)
        return node

    verdicts = judged(observed(tmp_path, bare), "fabric" if kind == "hcas" else "nvme")
    assert [verdict for verdict, _what in verdicts] == ["incomplete"]


def test_only_what_is_asked_for_is_judged(healthy: dict[str, t.Any]) -> None:
    node = copy.deepcopy(healthy)
    node["memory_mib"] = 1
    assert judged(node, "gpus", "fabric") == []
    assert judged(node, "memory") == [("fail", "memory")]


def test_generic_expects_nothing(healthy: dict[str, t.Any]) -> None:
    assert compare(profile("generic"), healthy) == []


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ([], "ok"),
        (["ok", "ok"], "ok"),
        (["ok", "warn"], "warn"),
        (["warn", "incomplete", "ok"], "incomplete"),
        (["incomplete", "fail", "warn"], "fail"),
    ],
)
def test_the_worst_verdict(levels: list[str], expected: str) -> None:
    assert worst({"verdict": level} for level in levels) == expected
