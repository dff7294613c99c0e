# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What comes out for the machine types that have a profile, compared with what their users run today."""

from __future__ import annotations

import re
import typing as t
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.options import (
    PLAN_OPTIONS,
    PlanRequest,
    plan_and_render,
)

PROFILES = Path(__file__).parents[3] / "roles/node_profile/files/profiles"
DEFAULTS = {name: option["default"] for name, option in PLAN_OPTIONS.items()}


def load(name: str) -> dict[str, t.Any]:
    return yaml.safe_load((PROFILES / f"{name}.yml").read_text())


def plan(name: str, **options: t.Any) -> dict[str, t.Any]:
    return plan_and_render({}, load(name), PlanRequest.of({**DEFAULTS, **options}))


def test_the_readme_names_hcas_as_mofed_does() -> None:
    """Its command, with its words. mofed's README promises these names on Azure."""
    readme = Path(__file__).parents[3] / "roles/numa_pinning/README.md"
    [words] = re.findall(
        r"^ansible localhost -m hpcai.gpu_cluster.gpu_affinity -a '?(.+?)'?$", readme.read_text(), re.MULTILINE
    )
    options = dict(word.split("=") for word in words.split())
    made = plan(options.pop("profile"), **options)
    assert [rank["hca"] for rank in made["ranks"]] == [f"mlx5_ib{number}" for number in range(8)]


@pytest.mark.parametrize("name", ["Standard_ND96asr_v4", "Standard_ND96amsr_A100_v4"])
def test_ndv4_is_what_its_users_run(name: str) -> None:
    made = plan(name)
    # The masks of the published srun line; its last one is a digit too long there.
    assert made["srun_cpu_bind"] == (
        "mask_cpu:ffffff000000,ffffff000000,ffffff,ffffff,"
        "ffffff000000000000000000,ffffff000000000000000000,ffffff000000000000,ffffff000000000000"
    )
    assert made["cuda_visible_devices"] == "2,3,0,1,6,7,4,5"
    assert made["mpirun_map_by"] == "ppr:2:numa"
    assert made["hpl"] == {
        "cpu_affinity": "24-35:36-47:0-11:12-23:72-83:84-95:48-59:60-71",
        "mem_affinity": "1:1:0:0:3:3:2:2",
        "gpu_affinity": "0:1:2:3:4:5:6:7",
        "ucx_affinity": ":".join(f"ibP{number}p0s0" for number in range(257, 265)),
    }
    assert [(rank["gpus"], rank["numa"], rank["cpus"]) for rank in made["ranks"]] == [
        ([0], [1], "24-47"),
        ([1], [1], "24-47"),
        ([2], [0], "0-23"),
        ([3], [0], "0-23"),
        ([4], [3], "72-95"),
        ([5], [3], "72-95"),
        ([6], [2], "48-71"),
        ([7], [2], "48-71"),
    ]
    # A profile does not know how a driver will number its devices.
    assert [note.partition(":")[0] for note in made["notes"]] == ["gres_conf"]


def test_ndv4_hybrid_ranks() -> None:
    made = plan("Standard_ND96asr_v4", threads_per_rank=12)
    assert made["mpirun_map_by"] == "ppr:2:numa:pe=12"
    assert made["binding"] == "cores"
    assert made["cpu_masks"][:2] == ["fff000000", "fff000000000"]
    assert made["intel_mpi_pin_domain"].startswith("[0xfff000000,0xfff000000000,0xfff,0xfff000,")
    assert plan("Standard_ND96asr_v4", threads_per_rank=8)["hpl"]["cpu_affinity"].startswith("24-31:36-43:0-7:12-19:")


@pytest.mark.parametrize("name", ["Standard_ND96isr_H100_v5", "Standard_ND96isr_H200_v5"])
def test_ndv5_has_two_numa_nodes(name: str) -> None:
    made = plan(name)
    assert made["srun_cpu_bind"] == "mask_cpu:" + ",".join(["f" * 12] * 4 + ["f" * 12 + "0" * 12] * 4)
    assert made["cuda_visible_devices"] == "0,1,2,3,4,5,6,7"
    assert made["mpirun_map_by"] == "ppr:4:numa"
    assert made["hpl"]["cpu_affinity"] == "0-11:12-23:24-35:36-47:48-59:60-71:72-83:84-95"
    assert made["hpl"]["mem_affinity"] == "0:0:0:0:1:1:1:1"
    # The Ethernet NIC of H200 machines is slower and serves storage: no rank uses it.
    assert made["hpl"]["ucx_affinity"] == ":".join(f"ibP{number}p0s0" for number in range(257, 265))
    assert made["gres_conf"] == (
        "Name=gpu File=/dev/nvidia[0-3] Cores=0-47\nName=gpu File=/dev/nvidia[4-7] Cores=48-95\n"
    )
    assert any("lowers results" in note for note in made["notes"])


@pytest.mark.parametrize("name", [path.stem for path in sorted(PROFILES.glob("*.yml"))])
def test_every_profile_gives_a_plan_or_a_reason(name: str) -> None:
    if "numa" not in load(name):
        with pytest.raises(ClusterError, match="no NUMA map") as caught:
            plan(name)
        assert caught.value.kind == "profile_without_numa"
        return
    made = plan(name)
    assert len(made["cpu_masks"]) == load(name)["gpus"]["count"]
    for key, value in made.items():
        if value is None:
            assert any(key.split("_")[0] in note for note in made["notes"]), f"{key} is null, and no note says why"


def test_threads_of_a_core_stay_together() -> None:
    made = plan("p4d.24xlarge", binding="cores")
    assert [rank["cpus"] for rank in made["ranks"]][:2] == ["0-5,48-53", "6-11,54-59"]
    assert [rank["hca"] for rank in made["ranks"]] == ["ibp16s27"] * 2 + ["ibp32s27"] * 2 + ["ibp144s27"] * 2 + [
        "ibp160s27"
    ] * 2
    # Slurm counts cores, of which there are 48.
    assert made["gres_conf"].splitlines()[1].endswith("Cores=24-47")
    single = plan("p4d.24xlarge", binding="cores", smt=False)
    assert [rank["cpus"] for rank in single["ranks"]][:2] == ["0-5", "6-11"]


def test_threads_per_rank_cuts_a_core_rather_than_give_more() -> None:
    made = plan("dgx_a100", threads_per_rank=3)
    assert made["ranks"][0]["cpus"] == "48-49,176"
    assert made["mpirun_map_by"] is None


def test_where_numa_nodes_have_no_gpu_open_mpi_has_no_words() -> None:
    made = plan("dgx_a100")
    assert made["mpirun_map_by"] is None
    assert made["cuda_visible_devices"] == "0,1,2,3,4,5,6,7"
    assert any("as many ranks on every NUMA node" in note for note in made["notes"])
    assert made["rankfile"].startswith("rank 0=+n0 slot=48-55,176-183\nrank 1=")


def test_one_hca_serves_all() -> None:
    assert plan("Standard_ND40rs_v2")["hpl"]["ucx_affinity"] == ":".join(["ibP257p0s0"] * 8)
    assert plan("Standard_ND40rs_v2", hca_names="device")["hpl"]["ucx_affinity"] == ":".join(["mlx5_ib0"] * 8)


def test_fewer_ranks_take_more_gpus_and_more_share_them() -> None:
    made = plan("Standard_ND96asr_v4", ranks_per_node=2)
    assert [(rank["gpus"], rank["numa"]) for rank in made["ranks"]] == [([0, 1, 2, 3], [0, 1]), ([4, 5, 6, 7], [2, 3])]
    assert made["mpirun_map_by"] is None
    made = plan("Standard_ND96asr_v4", ranks_per_node=4)
    assert made["mpirun_map_by"] == "ppr:1:numa"
    assert made["hpl"]["gpu_affinity"] == "0,1:2,3:4,5:6,7"
    assert made["cuda_visible_devices"] == "2,3,0,1,6,7,4,5"
    made = plan("Standard_ND96asr_v4", ranks_per_node=16, binding="cores")
    assert [rank["gpus"] for rank in made["ranks"]][:3] == [[0], [0], [1]]
    assert made["ranks"][1]["cpus"] == "30-35"
    assert made["mpirun_map_by"] == "ppr:4:numa"
    assert made["cuda_visible_devices"] == "2,3,0,1,6,7,4,5"
    made = plan("Standard_ND96asr_v4", ranks_per_node=4, gpus_per_rank=1)
    assert [rank["gpus"] for rank in made["ranks"]] == [[0], [1], [2], [3]]
    assert "GPU 4, 5, 6, 7 is used by no rank" in made["notes"]


def test_a_rank_on_two_numa_nodes_gets_threads_from_both() -> None:
    made = plan("Standard_ND96asr_v4", ranks_per_node=2, threads_per_rank=5)
    assert made["ranks"][0]["cpus"] == "0-2,24-25"


def test_reserved_cpus_are_nobodys() -> None:
    made = plan("Standard_ND96asr_v4", reserve_cpus="0,24-25,48,72")
    assert made["ranks"][0]["cpus"] == "26-47"
    assert made["hpl"]["cpu_affinity"].startswith("26-36:37-47:1-12:13-23:")
    assert made["mpirun_map_by"] is None
    # One thread of a core is reserved: the other is not given to a rank either.
    assert plan("p4d.24xlarge", reserve_cpus="0")["ranks"][0]["cpus"] == "1-23,49-71"


def test_gres_conf_of_ndv4() -> None:
    assert plan("Standard_ND96asr_v4", gres_type="a100")["gres_conf"] == (
        "Name=gpu Type=a100 File=/dev/nvidia[0-1] Cores=24-47\n"
        "Name=gpu Type=a100 File=/dev/nvidia[2-3] Cores=0-23\n"
        "Name=gpu Type=a100 File=/dev/nvidia[4-5] Cores=72-95\n"
        "Name=gpu Type=a100 File=/dev/nvidia[6-7] Cores=48-71\n"
    )
    assert plan("Standard_NC96ads_A100_v4")["gres_conf"].splitlines()[3] == "Name=gpu File=/dev/nvidia3 Cores=72-95"


def tree(name: str, **options: t.Any) -> ET.Element:
    return ET.fromstring(plan(name, **options)["nccl_topology_xml"])


def test_nccl_topology_of_ndv4_places_what_azure_s_file_places() -> None:
    system = tree("Standard_ND96asr_v4")
    assert (system.tag, system.get("version")) == ("system", "1")
    places = {
        cpu.get("numaid"): (cpu.get("affinity"), [sorted(str(pci.get("busid")) for pci in bridge) for bridge in cpu])
        for cpu in system
    }
    # azhpc-images, topology/ndv4-topo.xml
    assert places == {
        "0": ("00000000,00000000,00ffffff", [["0003:00:00.0", "0004:00:00.0", "0103:00:00.0", "0104:00:00.0"]]),
        "1": ("00000000,0000ffff,ff000000", [["0001:00:00.0", "0002:00:00.0", "0101:00:00.0", "0102:00:00.0"]]),
        "2": ("000000ff,ffff0000,00000000", [["000d:00:00.0", "000e:00:00.0", "0107:00:00.0", "0108:00:00.0"]]),
        "3": ("ffffff00,00000000,00000000", [["000b:00:00.0", "000c:00:00.0", "0105:00:00.0", "0106:00:00.0"]]),
    }
    bridges = [bridge for cpu in system for bridge in cpu]
    assert {bridge.get("class") for bridge in bridges} == {"0x060400"}
    assert len({bridge.get("busid") for bridge in bridges}) == 4
    assert {pci.get("class") for bridge in bridges for pci in bridge} == {"0x030200", "0x020700"}


def test_nccl_topology_of_ndv5_is_in_pairs() -> None:
    pairs = [[pci.get("busid") for pci in bridge] for cpu in tree("Standard_ND96isr_H100_v5") for bridge in cpu]
    assert pairs[0] == ["0001:00:00.0", "0101:00:00.0"]
    assert pairs[3] == ["0008:00:00.0", "0104:00:00.0"]
    assert len(pairs) == 8
    speeds = {pci.get("link_speed") for pci in tree("Standard_ND96isr_H100_v5").iter("pci")}
    assert speeds == {"32.0 GT/s PCIe"}


def test_nccl_topology_can_be_asked_for_in_another_layout() -> None:
    assert [len(cpu) for cpu in tree("Standard_ND96asr_v4", pci_switches="pair")] == [2, 2, 2, 2]
    assert [len(cpu) for cpu in tree("Standard_ND96isr_H100_v5", pci_switches="numa")] == [1, 1]
