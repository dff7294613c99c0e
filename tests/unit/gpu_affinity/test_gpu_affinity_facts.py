# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans from what nodes say of themselves: every shape of node, and every refusal."""

from __future__ import annotations

import copy
import pathlib
import re
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.formats import (
    cpu_mask,
    mask_cpus,
    pci_name,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.nccl import kernel_mask, link_speed
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.options import (
    PLAN_OPTIONS,
    PlanRequest,
    plan_and_render,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.plan import Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.topology import (
    cores_of,
    from_facts,
    from_profile,
)
from hypothesis import given
from hypothesis import strategies as st

Facts = dict[str, t.Any]
DEFAULTS = {name: option["default"] for name, option in PLAN_OPTIONS.items()}


def facts(cpus: list[str], gpus: list[int | None], **cpu: t.Any) -> Facts:
    """A node with these CPUs on NUMA nodes 0, 1, ..., and a GPU for every NUMA node named."""
    return {
        "numa": [{"id": number, "cpus": text} for number, text in enumerate(cpus)],
        "cpus": cpu,
        "gpus": [
            {
                "index": index,
                "numa": numa,
                "bus_id": f"0000:{index + 1:02x}:00.0",
                "uuid": f"GPU-{index}",
                "name": "A100",
            }
            for index, numa in enumerate(gpus)
        ],
        "hcas": [],
    }


def plan(node: Facts, profile: Facts | None = None, **options: t.Any) -> dict[str, t.Any]:
    return plan_and_render(node, profile or {}, PlanRequest.of({**DEFAULTS, **options}))


def refusal(node: Facts, profile: Facts | None = None, **options: t.Any) -> ClusterError:
    with pytest.raises(ClusterError) as caught:
        plan(node, profile, **options)
    assert caught.value.remedy
    return caught.value


NDV4_LIKE: Facts = {
    "name": "site",
    "cpu": {"cores": 4, "threads": 4},
    "numa": {"nodes": [{"id": 0, "cpus": "0-1", "gpus": [1]}, {"id": 1, "cpus": "2-3", "gpus": [0]}]},
    "gpus": {"count": 2, "bus_ids": ["0000:01:00.0", "0000:02:00.0"]},
}


def test_one_gpu_on_one_numa_node() -> None:
    made = plan(facts(["0-7"], [0]))
    assert (made["cpu_masks"], made["mpirun_map_by"], made["rankfile"]) == (
        ["ff"],
        "ppr:1:numa",
        "rank 0=+n0 slot=0-7\n",
    )


def test_gpus_without_numa_node_on_a_node_that_has_one() -> None:
    assert plan(facts(["0-3"], [None, -1]))["cpu_masks"] == ["f", "f"]


def test_memory_only_numa_nodes_do_not_count() -> None:
    made = plan(facts(["0-3", ""], [None, 0]))
    assert made["mpirun_map_by"] == "ppr:2:numa"


def test_sixteen_gpus_on_eight_numa_nodes() -> None:
    node = facts([f"{first}-{first + 7}" for first in range(0, 64, 8)], [index // 2 for index in range(16)])
    made = plan(node)
    assert made["mpirun_map_by"] == "ppr:2:numa"
    assert made["ranks"][15]["own_cpus"] == "60-63"
    assert made["cuda_visible_devices"] == ",".join(map(str, range(16)))


def test_uneven_numa_nodes() -> None:
    made = plan(facts(["0-3", "4-15"], [0, 1, 1, 1]))
    assert [rank["own_cpus"] for rank in made["ranks"]] == ["0-3", "4-7", "8-11", "12-15"]
    assert made["mpirun_map_by"] is None
    assert "1 on 0, 3 on 1" in made["notes"][0]
    assert made["cuda_visible_devices"] == "0,1,2,3"


def test_unknown_numa_nodes_are_refused_without_a_profile() -> None:
    error = refusal(facts(["0-1", "2-3"], [None, -1]))
    assert error.kind == "gpu_numa_unknown"
    assert "GPU 0, 1" in error.message
    assert "profile" in error.remedy


def test_gpus_that_nobody_places_may_run_anywhere_if_asked_for() -> None:
    made = plan(facts(["0-1", "2-3"], [None, 1]), unplaced="any")
    assert made["cpu_masks"] == ["f", "c"]
    assert (made["hpl"]["mem_affinity"], made["mpirun_map_by"], made["nccl_topology_xml"]) == ("0-1:1", None, None)
    assert made["gres_conf"] == "Name=gpu File=/dev/nvidia0\nName=gpu File=/dev/nvidia1 Cores=2-3\n"
    assert any("may run anywhere" in note for note in made["notes"])
    # Memory without CPUs is nowhere to run, and one rank may have GPUs of both kinds.
    assert plan(facts(["0-1", "2-3", ""], [None, 1]), unplaced="any")["cpu_masks"] == ["f", "c"]
    assert plan(facts(["0-1", "2-3"], [None, 1]), unplaced="any", ranks_per_node=1)["cpu_masks"] == ["f"]
    # A profile for another machine is no reason to fail then, one for this machine is followed.
    assert plan(facts(["0-3", "4-7"], [None, None]), NDV4_LIKE, unplaced="any")["cpu_masks"] == ["ff", "ff"]
    assert plan(facts(["0-1", "2-3"], [None, None]), NDV4_LIKE, unplaced="any")["cpu_masks"] == ["c", "3"]


def test_a_profile_places_what_the_kernel_does_not() -> None:
    made = plan(facts(["0-1", "2-3"], [None, None]), NDV4_LIKE)
    assert made["source"] == "facts+profile"
    assert made["cpu_masks"] == ["c", "3"]
    assert "taken from the profile" in made["notes"][0]


def test_a_missing_gpu_does_not_shift_the_others() -> None:
    node = facts(["0-1", "2-3"], [None, None])
    # The first GPU fell off the bus: the second is now index 0 but still at its address.
    node["gpus"] = [{**node["gpus"][1], "index": 0}]
    assert plan(node, NDV4_LIKE)["cpu_masks"] == ["3"]


def test_numa_nodes_without_cpus_are_no_difference_to_the_profile() -> None:
    assert plan(facts(["0-1", "2-3", ""], [None, None]), NDV4_LIKE)["cpu_masks"] == ["c", "3"]


def test_what_the_kernel_says_comes_before_the_profile() -> None:
    made = plan(facts(["0-1", "2-3"], [0, 1]), NDV4_LIKE)
    assert (made["source"], made["cpu_masks"]) == ("facts", ["3", "c"])


def test_a_profile_for_other_cpus_is_refused() -> None:
    error = refusal(facts(["0-3", "4-7"], [None, None]), NDV4_LIKE)
    assert error.kind == "profile_does_not_fit"
    assert "site" in error.message


def test_a_gpu_that_not_even_the_profile_knows() -> None:
    error = refusal(facts(["0-1", "2-3"], [None, None, None]), NDV4_LIKE)
    assert (error.kind, "GPU 2" in error.message) == ("gpu_numa_unknown", True)


def test_a_gpu_on_a_numa_node_without_cpus_is_refused() -> None:
    node = facts(["0-3", "4-7", ""], [0, 1, 2])
    assert refusal(node).kind == "numa_without_cpus"


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"ranks_per_node": 3}, "bad_input", "cannot be spread evenly over 3 ranks"),
        ({"ranks_per_node": 6}, "bad_input", "6 ranks cannot share 4 GPUs"),
        ({"ranks_per_node": 3, "gpus_per_rank": 2}, "bad_input", "3 ranks with 2 GPUs each need more than the 4"),
        ({"gpus_per_rank": 5}, "bad_input", "1 ranks with 5 GPUs each need more than the 4"),
        ({"ranks_per_node": 8, "gpus_per_rank": 2}, "bad_input", "8 ranks cannot share 4 GPUs"),
        ({"threads_per_rank": -1}, "bad_input", "`threads_per_rank` is -1"),
        ({"gpus_per_rank": -1}, "bad_input", "`gpus_per_rank` is -1"),
        ({"binding": "core"}, "bad_input", "`binding` is 'core'"),
        ({"ranks_per_node": -1}, "bad_input", "`ranks_per_node` is -1"),
        ({"threads_per_rank": 3}, "too_few_cpus", "its share of NUMA node 0 is 2"),
        ({"threads_per_rank": 2, "binding": "numa"}, "bad_input", "`threads_per_rank` asks"),
        ({"ranks_per_node": 16, "binding": "cores"}, "too_few_cpus", "4 usable cores for 8 ranks"),
        ({"reserve_cpus": "0-3"}, "too_few_cpus", "leaves NUMA node 0 no CPU"),
        ({"reserve_cpus": "9"}, "bad_input", "CPU 9, which the node does not have"),
        ({"reserve_cpus": "3-1"}, "bad_input", "reserve_cpus"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(options: dict[str, t.Any], kind: str, words: str) -> None:
    error = refusal(facts(["0-3", "4-7"], [0, 0, 1, 1]), **options)
    assert (error.kind, words in error.message) == (kind, True), error.message


def test_gpus_per_rank_say_how_many_ranks_there_are() -> None:
    node = facts(["0-3", "4-7"], [0, 0, 1, 1])
    assert [rank["gpus"] for rank in plan(node, gpus_per_rank=2)["ranks"]] == [[0, 1], [2, 3]]
    made = plan(node, gpus_per_rank=3)
    assert [rank["gpus"] for rank in made["ranks"]] == [[0, 1, 2]]
    assert "GPU 3 is used by no rank" in made["notes"]
    # All of them, by one rank.
    made = plan(node, gpus_per_rank=4)
    assert ([rank["cpus"] for rank in made["ranks"]], "is used by no rank" in str(made["notes"])) == (["0-7"], False)
    shared = plan(node, ranks_per_node=8, gpus_per_rank=1)
    assert [rank["gpus"] for rank in shared["ranks"]] == [[0], [0], [1], [1], [2], [2], [3], [3]]
    assert any("start NVIDIA MPS" in note for note in shared["notes"])


def test_a_rank_on_unequal_numa_nodes_takes_what_it_asks_for_from_the_one_that_has_more() -> None:
    node = facts(["0-1", "2-7"], [0, 1])
    for threads, cpus in {2: "0,2", 4: "0-3", 6: "0-5", 8: "0-7"}.items():
        assert plan(node, ranks_per_node=1, threads_per_rank=threads)["ranks"][0]["cpus"] == cpus


def test_the_adapter_of_a_rank_is_next_to_its_first_gpu() -> None:
    node = facts(["0-3", "4-7"], [0, 1])
    node["hcas"] = fabric(0, 1)
    assert [rank["hca"] for rank in plan(node, ranks_per_node=1, hca_names="device")["ranks"]] == ["mlx5_0"]


def test_a_request_that_says_nothing_has_the_options_defaults() -> None:
    assert Request() == Request(**{name: DEFAULTS[name] for name in Request.__dataclass_fields__})


def test_a_rank_across_numa_nodes_is_told() -> None:
    node = facts(["0-3", "4-7"], [0, 0, 0, 1])
    for ranks, told in {4: False, 2: True, 1: True}.items():
        notes = plan(node, ranks_per_node=ranks)["notes"]
        assert any("far from each GPU" in note for note in notes) is told, ranks


def test_no_gpus_and_no_input_are_refused() -> None:
    assert refusal(facts(["0-3"], [])).kind == "no_gpus"
    assert refusal({}).kind == "bad_input"
    assert refusal({"numa": [], "gpus": []}).kind == "bad_topology"


def test_what_is_not_a_list_of_cpus_is_refused_with_its_place() -> None:
    error = refusal(facts(["0-3", "7-4"], [0]))
    assert (error.kind, "facts: NUMA node 1: '7-4'" in error.message) == ("bad_topology", True), error.message
    error = refusal(facts(["0-3"], [0], cores=2, threads=4, siblings=["0,x"]))
    assert (error.kind, "facts.siblings: '0,x'" in error.message) == ("bad_topology", True), error.message


def test_too_few_cpus_for_own_ones_still_gives_a_shared_plan() -> None:
    made = plan(facts(["0-1"], [0] * 8))
    assert made["cpu_masks"] == ["3"] * 8
    assert (made["rankfile"], made["intel_mpi_pin_domain"], made["hpl"]["cpu_affinity"]) == (None, None, None)
    assert any("2 usable cores for 8 ranks" in note for note in made["notes"])


def test_unknown_siblings_are_not_guessed() -> None:
    node = facts(["0-7"], [0, 0], cores=4, threads=8)
    made = plan(node)
    assert (made["cpu_masks"], made["gres_conf"], made["rankfile"]) == (["ff", "ff"], None, None)
    assert refusal(node, smt=False).kind == "smt_unknown"
    assert refusal(node, binding="cores").kind == "too_few_cpus"
    # To know it of some NUMA nodes is not enough.
    half = facts(["0-3", "4-7"], [0, 1], cores=4, threads=8, siblings=["0-1", "2-3"])
    assert refusal(half, smt=False).kind == "smt_unknown"
    node["cpus"]["siblings"] = ["0-1", "2-3", "4-5", "6-7"]
    assert plan(node, binding="cores")["cpu_masks"] == ["f", "f0"]
    assert plan(node, binding="cores", smt=False)["cpu_masks"] == ["5", "50"]
    assert plan(node)["gres_conf"] == "Name=gpu File=/dev/nvidia[0-1] Cores=0-3\n"
    del node["cpus"]["siblings"]
    assert plan(node, reserve_cpus="0")["cpu_masks"] == ["fe", "fe"]


def test_cores_from_siblings_and_from_runs() -> None:
    assert cores_of([0, 1, 4, 5], 2, []) == ((0, 4), (1, 5))
    assert cores_of([0, 1, 2, 3], 2, []) is None
    assert cores_of([0, 1, 2, 3], 2, [[0, 2], [1, 3], [4, 6]]) == ((0, 2), (1, 3))
    assert cores_of([0, 1, 2, 3], 2, [[0, 2]]) is None
    # With one thread per core gaps mean nothing.
    assert cores_of([0, 1, 4, 5], 1, []) == ((0,), (1,), (4,), (5,))


def test_hcas_slower_than_the_fabric_and_ports_of_one_device() -> None:
    node = facts(["0-3", "4-7"], [0, 1])
    node["hcas"] = [
        {"device": "mlx5_0", "numa": 0, "bus_id": "0000:10:00.0", "rate_gbps": 200},
        {"device": "mlx5_0", "numa": 0, "bus_id": "0000:10:00.0", "rate_gbps": 200},
        {"device": "mlx5_1", "numa": 1, "bus_id": "0000:20:00.0", "rate_gbps": 200},
        {"device": "eth_rdma", "numa": 1, "bus_id": "0000:05:00.0", "rate_gbps": 25},
    ]
    assert plan(node)["hpl"]["ucx_affinity"] == "mlx5_0:mlx5_1"
    assert plan(node, hca_names="pci")["hpl"]["ucx_affinity"] == "ibp16s0:ibp32s0"


def test_a_profile_that_does_not_place_all_of_its_gpus_is_refused() -> None:
    error = refusal({}, {**NDV4_LIKE, "gpus": {"count": 4}})
    assert (error.kind, "GPU 2, 3 is not known" in error.message) == ("gpu_numa_unknown", True), error.message
    without = {name: section for name, section in NDV4_LIKE.items() if name != "gpus"}
    assert [gpu.index for gpu in from_profile(without).gpus] == [0, 1]


def test_gpus_of_a_profile_are_of_the_first_model_that_it_names() -> None:
    gpus = {**NDV4_LIKE["gpus"], "models": [{"name": "A100"}, {"name": "A30"}]}
    assert [gpu.model for gpu in from_profile({**NDV4_LIKE, "gpus": gpus}).gpus] == ["A100", "A100"]
    assert [gpu.model for gpu in from_profile(NDV4_LIKE).gpus] == ["", ""]


@pytest.mark.parametrize(
    "told", [{}, {"threads": 4}, {"cores": 4}, {"cores": 4, "threads": 4}, {"cores": 8, "threads": 4}]
)
def test_without_more_threads_than_cores_each_cpu_is_a_core(told: dict[str, int]) -> None:
    (node,) = from_facts(facts(["0-3"], [0], **told)).nodes
    assert node.cores == ((0,), (1,), (2,), (3,))


def test_adapters_that_the_kernel_does_not_place_are_placed_by_the_profile_with_the_gpus() -> None:
    node = facts(["0-1", "2-3"], [None, None], cores=4, threads=4)
    node["hcas"] = [{**port, "numa": numa} for port, numa in zip(fabric(0, 0, 0), (None, -1, 0))]
    profile = copy.deepcopy(NDV4_LIKE)
    profile["numa"]["nodes"][1]["hcas"] = ["ib0", "ib1", "ib2"]
    addresses = [port["bus_id"] for port in node["hcas"]]
    profile["fabric"] = {"hcas": [{"name": f"ib{number}", "bus_id": bus} for number, bus in enumerate(addresses)]}
    planned = from_facts(node, profile)
    assert [(hca.name, hca.numa) for hca in planned.hcas] == [("mlx5_0", 1), ("mlx5_1", 1), ("mlx5_2", 0)]
    assert [hca.rate_gbps for hca in from_profile(profile).hcas] == [0, 0, 0], "no rate is told"
    assert [(gpu.numa, gpu.model, gpu.uuid) for gpu in planned.gpus] == [(1, "A100", "GPU-0"), (0, "A100", "GPU-1")]
    # Where the kernel places all GPUs the profile is not asked.
    node["gpus"] = facts(["0-1", "2-3"], [0, 1])["gpus"]
    assert [hca.name for hca in from_facts(node, profile).hcas] == ["mlx5_2"]


def fabric(*homes: int) -> list[dict[str, t.Any]]:
    return [
        {"device": f"mlx5_{number}", "numa": numa, "bus_id": f"0000:{number + 16:x}:00.0", "rate_gbps": 200}
        for number, numa in enumerate(homes)
    ]


@pytest.mark.parametrize(
    ("gpus", "hcas", "used"),
    [
        # None is near the first two GPUs: they take turns rather than crowd one.
        ([0, 0, 1, 1], [1, 1], [0, 1, 0, 1]),
        ([0, 0, 0, 0], [1, 1, 1], [0, 1, 2, 0]),
        # As many near as GPUs, fewer, more.
        ([0, 0, 1, 1], [0, 0, 1, 1], [0, 1, 2, 3]),
        ([0, 0, 0, 0], [0, 0], [0, 0, 1, 1]),
        ([0, 0], [0, 0, 0, 0], [0, 2]),
        # The order of GPUs on a NUMA node counts, not their number on the machine.
        ([1, 0, 1, 0], [0, 0, 1, 1], [2, 0, 3, 1]),
    ],
)
def test_ranks_share_the_adapters_evenly(gpus: list[int | None], hcas: list[int], used: list[int]) -> None:
    node = facts(["0-3", "4-7"], gpus)
    node["hcas"] = fabric(*hcas)
    assert [rank["hca"] for rank in plan(node, hca_names="device")["ranks"]] == [f"mlx5_{number}" for number in used]


def test_mig_is_mentioned() -> None:
    node = facts(["0-3"], [0])
    node["gpus"][0]["mig"] = {"enabled": True}
    assert any("MIG" in note for note in plan(node)["notes"])


def test_the_map_of_gpu_bind() -> None:
    made = plan(facts(["0-1", "2-3"], [1, 0]))
    assert made["gpu_bind_map"] == ("# rank gpus cpus memory hca uuids\n0 0 2-3 1 - GPU-0\n1 1 0-1 0 - GPU-1\n")


def numbered(minors: list[int | None], homes: list[int | None], **cpu: t.Any) -> Facts:
    """Two NUMA nodes with two cores each, and GPUs whose device files have these numbers."""
    node = facts(["0-1", "2-3"], homes, **cpu)
    for gpu, minor in zip(node["gpus"], minors):
        gpu["minor"] = minor
    return node


def assumed(made: dict[str, t.Any]) -> list[str]:
    return [note for note in made["notes"] if note.startswith("gres_conf: ")]


@pytest.mark.parametrize(
    ("minors", "homes", "lines"),
    [
        # The driver's order is that of NUMA nodes: every device file has the cores of another GPU than its number says.
        ([2, 3, 0, 1], [1, 1, 0, 0], ["[2-3] Cores=2-3", "[0-1] Cores=0-1"]),
        ([0, 1, 2, 3], [1, 1, 0, 0], ["[0-1] Cores=2-3", "[2-3] Cores=0-1"]),
        # Slurm numbers GPUs by the order of the lines, so that is the order of indexes, and runs are not turned around.
        ([3, 2, 1, 0], [1, 1, 0, 0], ["3 Cores=2-3", "2 Cores=2-3", "1 Cores=0-1", "0 Cores=0-1"]),
        ([2, 0, 1, 3], [0, 0, 0, 1], ["2 Cores=0-1", "[0-1] Cores=0-1", "3 Cores=2-3"]),
        ([4, 0, 6, 2], [0, 0, 1, 1], ["4 Cores=0-1", "0 Cores=0-1", "6 Cores=2-3", "2 Cores=2-3"]),
    ],
)
def test_gres_conf_names_the_device_files_of_the_gpus(
    minors: list[int | None], homes: list[int | None], lines: list[str]
) -> None:
    made = plan(numbered(minors, homes))
    assert made["gres_conf"] == "".join(f"Name=gpu File=/dev/nvidia{line}\n" for line in lines)
    assert assumed(made) == []


def test_device_files_that_the_driver_does_not_tell_are_taken_for_the_indexes() -> None:
    made = plan(numbered([None, None, None, None], [1, 1, 0, 0]))
    assert made["gres_conf"] == "Name=gpu File=/dev/nvidia[0-1] Cores=2-3\nName=gpu File=/dev/nvidia[2-3] Cores=0-1\n"
    assert [re.findall("GPU ([0-9, ]+),", note) for note in assumed(made)] == [["0, 1, 2, 3"]]
    # Facts that were gathered before the key was known.
    assert plan(facts(["0-1", "2-3"], [1, 1, 0, 0]))["gres_conf"] == made["gres_conf"]
    some = plan(numbered([0, None, 2, 3], [1, 1, 0, 0]))
    assert (some["gres_conf"], len(assumed(some))) == (made["gres_conf"], 1)
    assert "GPU 1," in assumed(some)[0]


def test_device_files_that_cannot_be_the_indexes_are_not_guessed() -> None:
    made = plan(numbered([2, 3, None, 1], [1, 1, 0, 0]))
    assert made["gres_conf"] is None
    assert ["GPU 2" in note for note in assumed(made)] == [True]
    assert made["gpu_bind_map"].splitlines()[0] == "# minors 2,3,-,1"


def test_the_map_of_gpu_bind_has_minors_where_they_are_not_the_indexes() -> None:
    made = plan(numbered([1, 0], [1, 0]))
    assert made["gpu_bind_map"] == (
        "# minors 1,0\n# rank gpus cpus memory hca uuids\n0 0 2-3 1 - GPU-0\n1 1 0-1 0 - GPU-1\n"
    )
    # GPUs that no rank uses are in it, and the places of GPUs that are lost.
    node = numbered([3, 2, 1, 0], [1, 1, 0, 0])
    del node["gpus"][1]
    assert plan(node, ranks_per_node=1, gpus_per_rank=2)["gpu_bind_map"].splitlines()[0] == "# minors 3,-,1,0"
    assert "minors" not in plan(numbered([0, 1], [1, 0]))["gpu_bind_map"]
    assert "minors" not in plan(numbered([None, 1], [1, 0]))["gpu_bind_map"]


def test_a_profile_alone_knows_no_device_files() -> None:
    made = plan({}, NDV4_LIKE)
    assert made["gres_conf"] == "Name=gpu File=/dev/nvidia0 Cores=2-3\nName=gpu File=/dev/nvidia1 Cores=0-1\n"
    assert len(assumed(made)) == 1


def test_names_and_masks() -> None:
    assert pci_name("0101:00:00.0") == "ibP257p0s0"
    assert pci_name("0000:c1:00.1") == "ibp193s0f1"
    assert kernel_mask([0, 33], 64) == "00000002,00000001"
    assert link_speed("NVIDIA A100-SXM4-40GB") == "16.0 GT/s PCIe"
    assert link_speed("NVIDIA A1000") == ""


@given(st.sets(st.integers(0, 1023), min_size=1))
def test_masks_and_lists_are_each_other_s_reverse(cpus: set[int]) -> None:
    assert mask_cpus(cpu_mask(cpus)) == sorted(cpus)
    assert mask_cpus("0x" + kernel_mask(cpus, 1024)) == sorted(cpus)


@st.composite
def nodes(draw: st.DrawFn) -> Facts:
    """1-8 NUMA nodes of any size with 1 or 2 threads per core, 1-16 GPUs anywhere on them."""
    threads = draw(st.sampled_from([1, 2]))
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=8))
    total, first, groups, siblings = sum(sizes), 0, [], []
    for size in sizes:
        cores = [tuple(core + thread * total for thread in range(threads)) for core in range(first, first + size)]
        siblings += [",".join(map(str, core)) for core in cores]
        groups.append(",".join(str(cpu) for core in cores for cpu in core))
        first += size
    homes = draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=16))
    return facts(groups, list(homes), cores=total, threads=total * threads, siblings=siblings if threads > 1 else [])


def cpu_sets(made: dict[str, t.Any]) -> list[set[int]]:
    return [set(mask_cpus(mask)) for mask in made["cpu_masks"]]


def numa_cpus(node: Facts, number: int) -> set[int]:
    return {int(cpu) for cpu in node["numa"][number]["cpus"].split(",")}


@given(nodes())
def test_shared_masks_are_the_numa_nodes_of_the_gpus(node: Facts) -> None:
    for gpu, cpus in zip(node["gpus"], cpu_sets(plan(node, binding="numa"))):
        assert cpus == numa_cpus(node, gpu["numa"])


@given(nodes(), st.booleans())
def test_own_masks_are_disjoint_inside_their_node_and_cover_it(node: Facts, smt: bool) -> None:
    homes = [gpu["numa"] for gpu in node["gpus"]]
    per_core = 2 if node["cpus"]["siblings"] else 1
    if any(homes.count(number) > len(numa_cpus(node, number)) // per_core for number in homes):
        assert refusal(node, binding="cores", smt=smt).kind == "too_few_cpus"
        return
    made = plan(node, binding="cores", smt=smt)
    sets = cpu_sets(made)
    assert sum(map(len, sets)) == len(set().union(*sets))
    for number in {gpu["numa"] for gpu in node["gpus"]}:
        here = [cpus for gpu, cpus in zip(node["gpus"], sets) if gpu["numa"] == number]
        used = set().union(*here)
        assert used <= numa_cpus(node, number)
        assert max(map(len, here)) - min(map(len, here)) <= (2 if smt and node["cpus"]["siblings"] else 1)
        if smt:
            assert used == numa_cpus(node, number)
    # The same in every dialect.
    assert made["hpl"]["cpu_affinity"].split(":") == [rank["own_cpus"] for rank in made["ranks"]]
    assert made["intel_mpi_pin_domain"] == f"[{','.join(f'0x{mask}' for mask in made['cpu_masks'])}]"


@given(nodes())
def test_the_order_of_gpus_follows_open_mpi_s_order_of_ranks(node: Facts) -> None:
    made = plan(node)
    order = [int(index) for index in made["cuda_visible_devices"].split(",")]
    homes = [gpu["numa"] for gpu in node["gpus"]]
    assert sorted(order) == list(range(len(homes)))
    if made["mpirun_map_by"] is None:
        assert order == sorted(order)
        return
    each = int(made["mpirun_map_by"].split(":")[1])
    # Open MPI puts ranks 0 .. each - 1 on the first NUMA node, and so on.
    assert [homes[gpu] for gpu in order] == [rank // each for rank in range(len(order))]


@pytest.mark.slow
@given(nodes(), st.integers(1, 4), st.data())
def test_threads_per_rank_are_exactly_those(node: Facts, threads: int, data: st.DataObject) -> None:
    reserve = data.draw(st.sampled_from(["", "0"]))
    try:
        made = plan(node, threads_per_rank=threads, reserve_cpus=reserve)
    except ClusterError:
        assert refusal(node, threads_per_rank=threads, reserve_cpus=reserve).kind == "too_few_cpus"
        return
    sets = cpu_sets(made)
    assert {len(cpus) for cpus in sets} == {threads}
    assert sum(map(len, sets)) == len(set().union(*sets))
    if reserve:
        assert 0 not in set().union(*sets)


INTEL_MPI = sorted((pathlib.Path(__file__).parent / "fixtures/intel_mpi").glob("*.txt"))


@pytest.mark.parametrize("recording", INTEL_MPI, ids=[path.stem for path in INTEL_MPI])
def test_intel_mpi_pins_as_planned(recording: pathlib.Path) -> None:
    """Real answers of Intel MPI to lists of domains: to the one that is planned it must have said no error, and obeyed."""
    made = plan(facts(["0", "1"], [1, 0]))
    answers = dict(re.findall(r"^== (\S+)\n(.*?)(?=^== |\Z)", recording.read_text(encoding="utf-8"), re.M | re.S))
    said = answers[made["intel_mpi_pin_domain"]]
    assert "Error" not in said
    assert re.findall(r"\{(\S+)\}", said) == [rank["own_cpus"] for rank in made["ranks"]]
