# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts as a whole, and the module around them."""

from __future__ import annotations

import json
import sys
import typing as t
from pathlib import Path

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.facts import collect
from ansible_collections.hpcai.gpu_cluster.plugins.modules import node_facts
from module_run import run_main
from unit.host.test_metadata import AZURE_PATH, metadata_service
from unit.node.fake_node import (
    FIXTURES,
    NDV4_GPUS,
    NDV4_MINORS,
    FakeNode,
    laptop,
    ndv4,
    ndv5,
    silent_vm,
    smi,
)


def facts_of(tmp_path: Path, build: t.Callable[[Path], t.Any], case: str = "", **options: t.Any) -> dict[str, t.Any]:
    root = build(tmp_path / "root").root
    options.setdefault("metadata", "never")
    return collect(root, nvidia_smi=smi(tmp_path, case) if case else str(tmp_path / "none"), **options)


def reasons(facts: dict[str, t.Any]) -> dict[str, str]:
    return {item["what"]: item["reason"] for item in facts["unknown"]}


def test_ndv4_in_full(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, ndv4, "ndv4")
    assert facts["unknown"] == []
    assert [(node["id"], node["gpus"]) for node in facts["numa"]] == [
        (0, [2, 3]),
        (1, [0, 1]),
        (2, [6, 7]),
        (3, [4, 5]),
    ]
    assert facts["numa"][2]["hcas"] == ["mlx5_ib6", "mlx5_ib7"]
    assert facts["numa"][0]["nvme"] == ["/dev/nvme0n1", "/dev/nvme1n1"]
    assert facts["cpus"] == {"sockets": 2, "cores": 96, "threads": 96}
    assert facts["platform"] == {
        "sku": None,
        "cloud": "azure",
        "product": "Virtual Machine",
        "vendor": "Microsoft Corporation",
    }
    assert facts["nvidia_smi"] == {"state": "answered", "rc": 0}
    # Facts travel as JSON.
    assert json.loads(json.dumps(facts)) == facts


def test_the_contract_has_its_keys(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, ndv5, "h200_deprecated")
    assert set(facts) >= {"numa", "gpus", "hcas", "nvme", "platform", "unknown"}
    assert set(facts["numa"][0]) == {"id", "cpus", "memory_mib", "gpus", "hcas", "nvme"}
    gpu_keys = {"index", "uuid", "name", "bus_id", "numa", "minor", "memory_mib", "driver", "clocks", "ecc", "mig"}
    assert set(facts["gpus"][0]) >= {*gpu_keys, "remapped_rows"}
    assert set(facts["hcas"][0]) >= {"device", "netdev", "link_layer", "rate_gbps", "state", "numa", "bus_id"}
    assert set(facts["nvme"][0]) >= {"path", "by_id", "model", "serial", "bytes", "numa", "in_use"}


def test_ndv5_has_two_numa_nodes(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, ndv5, "h200_deprecated")
    assert [node["gpus"] for node in facts["numa"]] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert facts["gpus"][3]["bus_id"] == "0008:00:00.0"


def test_a_node_with_nothing(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, laptop)
    assert (facts["gpus"], facts["hcas"], facts["nvme"]) == ([], [], [])
    assert set(reasons(facts)) == {"gpus", "hcas", "nvme"}
    assert facts["platform"] == {"sku": None, "cloud": None, "product": None, "vendor": None}


def test_an_empty_root_is_no_crash(tmp_path: Path) -> None:
    facts = collect(tmp_path, nvidia_smi=str(tmp_path / "none"), metadata="never")
    assert facts["numa"] == [{"id": 0, "cpus": "", "memory_mib": None, "gpus": [], "hcas": [], "nvme": []}]


def test_minus_one_with_one_numa_node_has_one_answer(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, lambda root: silent_vm(root, 1))
    assert facts["hcas"][0]["numa"] == 0
    assert facts["numa"][0]["nvme"] == ["/dev/nvme0n1"]
    assert not [what for what in reasons(facts) if what.startswith("numa")]


def test_minus_one_with_several_numa_nodes_is_not_known(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, lambda root: silent_vm(root, 2))
    assert facts["hcas"][0]["numa"] is None
    assert all(not node["hcas"] for node in facts["numa"])
    assert "numa_node is -1" in reasons(facts)["numa of hcas mlx5_0"]
    assert "numa of nvme /dev/nvme0n1" in reasons(facts)


def test_a_gpu_on_the_bus_that_does_not_answer_is_named(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, ndv4, "no_handle")
    assert len(facts["gpus"]) == 7
    assert "0004:00:00.0" in "".join(what for what in reasons(facts) if what.startswith("gpus at"))
    assert facts["numa"][0]["gpus"] == [2]


def test_without_a_driver_the_bus_still_shows_the_gpus(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, ndv4)
    assert (facts["gpus"], len(facts["pci_gpus"])) == ([], 8)
    # A driver that was not asked is one reason, not nine.
    assert set(reasons(facts)) == {"gpus"}


def numbered(root: Path) -> FakeNode:
    node = ndv4(root)
    for bus_id, minor in zip(NDV4_GPUS, NDV4_MINORS):
        node.minor(bus_id, minor)
    return node


def test_the_driver_tells_which_device_file_is_which_gpu(tmp_path: Path) -> None:
    """The N of /dev/nvidiaN is not the index of nvidia-smi (NVIDIA/nvidia-installer, issue 21)."""
    facts = facts_of(tmp_path, numbered, "ndv4")
    assert [(gpu["index"], gpu["minor"]) for gpu in facts["gpus"]] == list(enumerate(NDV4_MINORS))
    # A lost GPU shifts the indexes of nvidia-smi, and nothing else.
    others = facts_of(tmp_path / "lost", numbered, "no_handle")["gpus"]
    assert [gpu["minor"] for gpu in others] == [NDV4_MINORS[NDV4_GPUS.index(gpu["bus_id"])] for gpu in others]


@pytest.mark.parametrize("said", ["", "N/A", "-1", "0x2", "2 3"])
def test_a_driver_that_tells_no_number_leaves_it_null(tmp_path: Path, said: str) -> None:
    def odd(root: Path) -> FakeNode:
        node = numbered(root)
        node.minor(NDV4_GPUS[0], said)
        node.write(f"proc/driver/nvidia/gpus/{NDV4_GPUS[1]}/information", "Device Minor")
        unreadable = root / f"proc/driver/nvidia/gpus/{NDV4_GPUS[2]}/information"
        unreadable.unlink()
        # Reading it fails, whoever asks.
        unreadable.mkdir()
        (root / f"proc/driver/nvidia/gpus/{NDV4_GPUS[3]}/information").write_bytes(b"Device Minor: \t \xff\n")
        return node

    facts = facts_of(tmp_path, odd, "ndv4")
    assert [gpu["minor"] for gpu in facts["gpus"]] == [None, None, None, None, *NDV4_MINORS[4:]]


def test_without_driver_files_the_numbers_are_null(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, ndv4, "ndv4")
    assert [gpu["minor"] for gpu in facts["gpus"]] == [None] * 8
    assert facts["unknown"] == []


@pytest.mark.slow
@pytest.mark.newest
def test_a_driver_that_hangs_is_not_asked_for_numbers(tmp_path: Path) -> None:
    """Reading its files could hang as well, without a time limit."""
    root = numbered(tmp_path / "root").root
    program = tmp_path / "nvidia-smi"
    rows = FIXTURES / "ndv4.out"
    program.write_text(f"#!/bin/sh\ncat {rows}\nexec sleep 600\n", encoding="utf-8")
    program.chmod(0o755)
    opened: list[str] = []
    active = True

    def watch(event: str, args: tuple[t.Any, ...]) -> None:
        if active and event == "open" and str(args[0]).endswith("/information"):
            opened.append(str(args[0]))

    sys.addaudithook(watch)
    try:
        facts = collect(root, nvidia_smi=str(program), nvidia_smi_timeout_s=3, metadata="never")
    finally:
        active = False
    assert (len(facts["gpus"]), facts["nvidia_smi"]["state"], opened) == (8, "timeout", [])


@pytest.mark.parametrize(
    ("mode", "sku", "asked"),
    [("auto", "Standard_ND96asr_v4", 1), ("always", "Standard_ND96asr_v4", 1), ("never", None, 0)],
)
def test_metadata_in_azure(tmp_path: Path, mode: str, sku: str | None, asked: int) -> None:
    answer = (200, '{"compute": {"vmSize": "Standard_ND96asr_v4"}}')
    with metadata_service({AZURE_PATH: answer}) as (address, requests):
        facts = facts_of(tmp_path, ndv4, "ndv4", metadata=mode, metadata_address=address)
    assert (facts["platform"]["sku"], len(requests)) == (sku, asked)


def test_outside_a_cloud_nobody_is_asked(tmp_path: Path) -> None:
    with metadata_service({}) as (address, requests):
        facts_of(tmp_path, laptop, metadata="auto", metadata_address=address)
    assert requests == []


def test_nitro_needs_no_request(tmp_path: Path) -> None:
    def p4d(root: Path) -> t.Any:
        node = laptop(root)
        node.dmi("Amazon EC2", "p4d.24xlarge", "Amazon EC2")
        return node

    with metadata_service({}) as (address, requests):
        facts = facts_of(tmp_path, p4d, metadata="auto", metadata_address=address)
    assert (facts["platform"]["sku"], facts["platform"]["cloud"], requests) == ("p4d.24xlarge", "aws", [])


def test_metadata_that_fails_is_a_reason_and_no_failure(tmp_path: Path) -> None:
    with metadata_service({}) as (address, _requests):
        facts = facts_of(tmp_path, ndv4, "ndv4", metadata="auto", metadata_address=address)
    assert facts["platform"]["sku"] is None
    assert "answered 404" in reasons(facts)["platform.sku"]


def test_only_nvidia_smi_is_started(tmp_path: Path) -> None:
    """Once for the GPUs, and once for the rows of their memory: everything else is read in Python."""
    started: list[str] = []
    active = True

    def watch(event: str, args: tuple[t.Any, ...]) -> None:
        if active and event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork"):
            started.append(str(args[0]))

    sys.addaudithook(watch)
    try:
        facts_of(tmp_path, ndv4, "ndv4")
    finally:
        # A hook cannot be taken away again.
        active = False
    assert [Path(program).name for program in started] == ["nvidia-smi"] * 2


def run_module(args: dict[str, t.Any]) -> dict[str, t.Any]:
    result = run_main(node_facts.main, args)
    assert not result["failed"]
    return result


@pytest.mark.parametrize("check_mode", [False, True])
def test_the_module_on_this_machine(tmp_path: Path, check_mode: bool) -> None:
    args = {"nvidia_smi": smi(tmp_path, "dgx_a100"), "metadata": "never", "_ansible_check_mode": check_mode}
    result = run_module(args)
    assert result["changed"] is False
    assert set(result["ansible_facts"]) == {"gpu_node"}
    facts = result["ansible_facts"]["gpu_node"]
    assert len(facts["gpus"]) == 8
    assert facts["cpus"]["threads"] >= 1


def test_the_module_gives_up_on_a_hanging_driver(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexec sleep 600\n", encoding="utf-8")
    program.chmod(0o755)
    args = {"nvidia_smi": str(program), "nvidia_smi_timeout_s": 0.3, "metadata": "never"}
    facts = run_module(args)["ansible_facts"]["gpu_node"]
    assert facts["nvidia_smi"] == {"state": "timeout", "rc": None}
