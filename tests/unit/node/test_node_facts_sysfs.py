# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading the kernel's view of a node."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node import sysfs
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._ranges import format_ranges, parse_ranges
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.node.fake_node import FakeNode, laptop, ndv4, ndv5, silent_vm

# A busy machine is no reason to fail.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", []),
        ("\n", []),
        ("0", [0]),
        ("0-3,8-11", [0, 1, 2, 3, 8, 9, 10, 11]),
        ("0-1,48-49\n", [0, 1, 48, 49]),
        ("5,1-2,2", [1, 2, 5]),
    ],
)
def test_ranges_are_read(text: str, numbers: list[int]) -> None:
    assert parse_ranges(text) == numbers


@pytest.mark.parametrize("text", ["3-1", "a", "1-", "-1", "1--2"])
def test_broken_ranges_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"range|invalid literal"):
        parse_ranges(text)


@patient
@given(st.sets(st.integers(min_value=0, max_value=2000)))
def test_ranges_survive_a_round_trip(numbers: set[int]) -> None:
    text = format_ranges(numbers)
    assert parse_ranges(text) == sorted(numbers)
    # Shortest form: no two neighboring parts could be one.
    ends = [part.split("-") for part in text.split(",") if part]
    assert all(int(second[0]) > int(first[-1]) + 1 for first, second in zip(ends, ends[1:]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00000001:00:00.0", "0001:00:00.0"),
        ("0000000B:00:00.0", "000b:00:00.0"),
        ("00000000:BD:00.0", "0000:bd:00.0"),
        ("0000:10:1C.0", "0000:10:1c.0"),
        ("07:00.1", "0000:07:00.1"),
        ("10000:01:00.0", "10000:01:00.0"),
    ],
)
def test_bus_ids_become_what_sysfs_says(text: str, expected: str) -> None:
    assert sysfs.normalize_bus_id(text) == expected
    assert sysfs.bus_id_or_empty(text) == expected


@patient
@given(st.integers(0, 0xFFFFFFFF), st.integers(0, 255), st.integers(0, 31), st.integers(0, 7), st.booleans())
def test_every_spelling_of_an_address_is_the_same(
    domain: int, bus: int, device: int, function: int, caps: bool
) -> None:
    nvml = f"{domain:08x}:{bus:02x}:{device:02x}.{function}"
    once = sysfs.normalize_bus_id(nvml.upper() if caps else nvml)
    assert once == f"{domain:04x}:{bus:02x}:{device:02x}.{function}"
    assert sysfs.normalize_bus_id(once) == once


@pytest.mark.parametrize("text", ["", "[N/A]", "0000:00:00", "0000:00:00.8", "xyz:00:00.0", "123456789:00:00.0"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="PCI address"):
        sysfs.normalize_bus_id(text)
    assert sysfs.bus_id_or_empty(text) == ""


def test_numa_nodes_have_cpus_and_memory(tmp_path: Path) -> None:
    nodes = sysfs.read_numa(ndv4(tmp_path).root)
    assert [node["id"] for node in nodes] == [0, 1, 2, 3]
    assert [node["cpus"] for node in nodes] == ["0-23", "24-47", "48-71", "72-95"]
    assert nodes[0]["memory_mib"] == 928858388 // 4 // 1024


def test_numa_nodes_are_in_order_of_number(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    for number in (0, 2, 10, 1):
        node.numa(number, str(number), 1024)
    assert [entry["id"] for entry in sysfs.read_numa(tmp_path)] == [0, 1, 2, 10]


def test_a_kernel_without_numa_is_one_node(tmp_path: Path) -> None:
    assert sysfs.read_numa(laptop(tmp_path).root) == [{"id": 0, "cpus": "0-7", "memory_mib": 15625}]


def test_cores_are_counted_once_per_pair_of_threads(tmp_path: Path) -> None:
    FakeNode(tmp_path).cpus(2, 128, 256)
    cpus = sysfs.read_cpus(tmp_path)
    siblings = cpus.pop("siblings")
    assert cpus == {"sockets": 2, "cores": 128, "threads": 256}
    assert [siblings[0], siblings[1], len(siblings)] == ["0,128", "1,129", 128]


def test_unknown_topology_is_null(tmp_path: Path) -> None:
    assert sysfs.read_cpus(laptop(tmp_path).root) == {"sockets": None, "cores": None, "threads": 8}


def test_memory_and_swap(tmp_path: Path) -> None:
    assert sysfs.read_memory(laptop(tmp_path).root) == (15625, 8192)
    assert sysfs.read_memory(tmp_path / "nowhere") == (None, None)


def test_only_display_devices_of_nvidia_are_gpus(tmp_path: Path) -> None:
    gpus = sysfs.read_pci_gpus(ndv4(tmp_path).root)
    assert gpus is not None
    assert [gpu["bus_id"] for gpu in gpus][-1] == "000e:00:00.0"
    assert [gpu["numa"] for gpu in gpus] == [1, 1, 0, 0, 3, 3, 2, 2]


@pytest.mark.parametrize(
    ("chain", "path"),
    [
        (
            "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0",
            ["pci0000:15", "0000:15:01.0", "0000:16:00.0", "0000:17:00.0"],
        ),
        ("pci0000:00/0000:00:1e.0", ["pci0000:00"]),
        # Azure: every device on a host bridge of its own.
        (
            "LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/47505500-0001-0000-3130-444531303244/pci0001:00/0001:00:00.0",
            ["pci0001:00"],
        ),
        # Intel VMD: a host bridge below a device.
        (
            "pci0000:e0/0000:e0:05.5/pci10000:e0/10000:e0:02.0/10000:e1:00.0",
            ["pci0000:e0", "0000:e0:05.5", "pci10000:e0", "10000:e0:02.0"],
        ),
    ],
)
def test_the_bridges_above_a_device(tmp_path: Path, chain: str, path: list[str]) -> None:
    bus_id = chain.rpartition("/")[2]
    (tmp_path / "sys/devices" / chain).mkdir(parents=True)
    node = FakeNode(tmp_path)
    node.link(f"sys/bus/pci/devices/{bus_id}", f"sys/devices/{chain}")
    assert sysfs.pci_path(tmp_path, bus_id) == path
    assert sysfs.pci_path(tmp_path, "ffff:00:00.0") == []
    # The class of RDMA devices leads there, too.
    node.link("sys/class/infiniband/mlx5_0/device", f"sys/bus/pci/devices/{bus_id}")
    node.port("mlx5_0", 1, "400 Gb/sec (4X NDR)", "4: ACTIVE", "InfiniBand")
    (port,) = sysfs.read_hcas(tmp_path) or []
    assert (port["bus_id"], port["pci_path"]) == (bus_id, path)


def test_a_node_without_pci_says_so(tmp_path: Path) -> None:
    assert sysfs.read_pci_gpus(tmp_path) is None


def test_hca_ports(tmp_path: Path) -> None:
    ports = sysfs.read_hcas(ndv5(tmp_path).root)
    assert ports is not None
    assert len(ports) == 8
    assert ports[4] == {
        "device": "mlx5_ib4",
        "port": 1,
        "netdev": "ib4",
        "link_layer": "InfiniBand",
        "rate_gbps": 400,
        "state": "ACTIVE",
        "numa": 1,
        "bus_id": "0105:00:00.0",
        "pci_path": [],
    }


def test_a_second_port_that_is_down(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    node.hca("mlx5_4", "0000:61:00.0", 0)
    node.port("mlx5_4", 2, "2.5 Gb/sec (1X SDR)", "1: DOWN", "Ethernet")
    ports = sysfs.read_hcas(tmp_path)
    assert ports is not None
    assert [(port["port"], port["rate_gbps"], port["state"]) for port in ports] == [
        (1, 200, "ACTIVE"),
        (2, 2.5, "DOWN"),
    ]


def test_software_rdma_has_no_pci_device(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    node.write("sys/class/infiniband/rxe0/parent", "eth1")
    node.port("rxe0", 1, "2.5 Gb/sec (1X SDR)", "4: ACTIVE", "Ethernet")
    ports = sysfs.read_hcas(tmp_path)
    assert ports is not None
    assert (ports[0]["netdev"], ports[0]["bus_id"], ports[0]["numa"]) == ("eth1", None, None)


def test_no_rdma_driver_is_not_no_device(tmp_path: Path) -> None:
    assert sysfs.read_hcas(laptop(tmp_path).root) is None
    (tmp_path / "sys/class/infiniband").mkdir(parents=True)
    assert sysfs.read_hcas(tmp_path) == []


def test_nvme_disks(tmp_path: Path) -> None:
    disks = sysfs.read_nvme(ndv4(tmp_path).root)
    assert disks is not None
    assert [disk["path"] for disk in disks] == [f"/dev/nvme{number}n1" for number in range(8)]
    assert disks[3] == {
        "path": "/dev/nvme3n1",
        "by_id": "/dev/disk/by-id/nvme-Microsoft_NVMe_Direct_Disk_SN0003",
        "model": "Microsoft NVMe Direct Disk",
        "serial": "SN0003",
        "bytes": 960197124096,
        "numa": 1,
        "bus_id": "0203:00:00.0",
        "in_use": False,
        "used_by": [],
    }


def test_disks_are_in_order_of_number(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    for number in (0, 2, 10, 1):
        node.nvme(number, f"0000:{number:02x}:00.0", 0)
    disks = sysfs.read_nvme(tmp_path)
    assert disks is not None
    assert [disk["path"] for disk in disks] == [f"/dev/nvme{number}n1" for number in (0, 1, 2, 10)]


def _use(node: FakeNode, how: str, disk: str) -> None:
    if how == "partition":
        node.partition(disk, 1, "259:1")
    elif how == "mount by name":
        node.write("proc/self/mountinfo", "36 1 0:40 / /mnt/scratch rw,noatime shared:1 - btrfs /dev/nvme0n1 rw")
    elif how == "mount by number":
        node.write("proc/self/mountinfo", "36 1 259:0 / / rw - ext4 /dev/root rw")
    elif how == "mount of a partition":
        node.partition(disk, 2, "259:9")
        node.write("proc/self/mountinfo", "36 1 259:9 / /boot rw - vfat /dev/nvme0n1p2 rw")
    elif how == "proc mounts only":
        node.write("proc/mounts", "/dev/nvme0n1 /mnt xfs rw 0 0")
    elif how == "swap":
        node.write("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n/dev/nvme0n1 partition 1024 0 -2")
    elif how == "array holder":
        (node.root / disk / "holders/md127").mkdir()
    else:
        node.write(
            "proc/mdstat", "Personalities : [raid0]\nmd127 : active raid0 nvme1n1[1] nvme0n1[0]\n      100 blocks"
        )


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("partition", "partition nvme0n1p1"),
        ("mount by name", "mounted on /mnt/scratch"),
        ("mount by number", "mounted on /"),
        ("mount of a partition", "mounted on /boot"),
        ("proc mounts only", "mounted on /mnt"),
        ("swap", "swap"),
        ("array holder", "held by md127"),
        ("array in mdstat", "member of md127"),
    ],
)
def test_a_disk_in_use_is_seen(tmp_path: Path, how: str, said: str) -> None:
    node = FakeNode(tmp_path)
    disk = node.nvme(0, "0000:03:00.0", 0)
    node.nvme(5, "0000:05:00.0", 0)
    _use(node, how, disk)
    disks = sysfs.read_nvme(tmp_path)
    assert disks is not None
    assert disks[0]["in_use"] is True
    assert said in disks[0]["used_by"]
    assert disks[1]["in_use"] is False


@pytest.mark.parametrize("model", ["Amazon Elastic Block Store", "MSFT NVMe Accelerator v1.0"])
def test_network_disks_are_no_local_nvme(tmp_path: Path, model: str) -> None:
    FakeNode(tmp_path).nvme(0, "0000:03:00.0", 0, model=model)
    assert sysfs.read_nvme(tmp_path) == []


def test_nvme_over_fabrics_is_no_local_nvme(tmp_path: Path) -> None:
    FakeNode(tmp_path).nvme(0, "0000:03:00.0", 0, transport="tcp")
    assert sysfs.read_nvme(tmp_path) == []


def test_native_multipath_hides_the_controller(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    node.nvme(0, "0000:03:00.0", 1)
    subsystem = "sys/class/nvme-subsystem/nvme-subsys0"
    node.write(f"{subsystem}/model", "SAMSUNG MZQL23T8HCLS")
    node.write(f"{subsystem}/serial", "S64HNX0")
    node.link(f"{subsystem}/nvme0", "sys/class/nvme/nvme0")
    (tmp_path / "sys/block/nvme0n1/device").unlink()
    node.link("sys/block/nvme0n1/device", subsystem)
    disks = sysfs.read_nvme(tmp_path)
    assert disks is not None
    assert (disks[0]["model"], disks[0]["serial"], disks[0]["numa"], disks[0]["bus_id"]) == (
        "SAMSUNG MZQL23T8HCLS",
        "S64HNX0",
        1,
        "0000:03:00.0",
    )


def test_no_nvme_driver_is_not_no_disk(tmp_path: Path) -> None:
    assert sysfs.read_nvme(laptop(tmp_path).root) is None
    (tmp_path / "sys/class/nvme").mkdir(parents=True)
    assert sysfs.read_nvme(tmp_path) == []


def test_minus_one_is_no_numa_node(tmp_path: Path) -> None:
    root = silent_vm(tmp_path, 2).root
    assert sysfs.pci_numa(root, "0000:01:00.0") is None
    disks = sysfs.read_nvme(root)
    assert disks is not None
    assert disks[0]["numa"] is None
