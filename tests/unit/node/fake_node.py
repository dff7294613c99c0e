# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories that look like the root of a node: the part of /sys, /proc and /dev that the facts are read from.

Layout and spelling follow the kernel's ABI documentation; see fixtures/ORIGIN.md.
"""

from __future__ import annotations

import os
from pathlib import Path

FIXTURES = Path(__file__).resolve().parent / "fixtures/nvidia_smi"
NVIDIA, MELLANOX = "0x10de", "0x15b3"
NDV4_GPUS = [f"{domain:04x}:00:00.0" for domain in (1, 2, 3, 4, 0xB, 0xC, 0xD, 0xE)]
NDV4_NUMA = [1, 1, 0, 0, 3, 3, 2, 2]
NDV5_GPUS = [f"{domain:04x}:00:00.0" for domain in (1, 2, 3, 8, 9, 0xA, 0xB, 0xC)]
NDV5_NUMA = [0, 0, 0, 0, 1, 1, 1, 1]
# Numbers of device files that are not indexes, as on machines with AMD CPUs.
NDV4_MINORS = [2, 3, 0, 1, 6, 7, 4, 5]
INFORMATION = """\
Model:           NVIDIA H100 80GB HBM3
IRQ:             10
GPU UUID:        GPU-9221d5d1-b60b-a624-bf14-0a1819cfda3b
Video BIOS:      96.00.99.00.01
Bus Type:        PCIe
DMA Size:        52 bits
DMA Mask:        0xfffffffffffff
Bus Location:    {bus_id}
Device Minor:    {minor}
GPU Firmware:    535.129.03
GPU Excluded:    No"""
AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"


class FakeNode:
    """Builds the tree file by file; every method may be called any number of times."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("sys/bus/pci/devices", "sys/devices/system/cpu", "sys/block", "proc/self"):
            (root / name).mkdir(parents=True, exist_ok=True)

    def write(self, path: str, text: object) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{text}\n", encoding="utf-8")

    def link(self, path: str, target: str) -> None:
        """A relative link inside the tree, as sysfs has them."""
        link = self.root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(self.root / target, link.parent))

    def dmi(self, vendor: str, product: str, tag: str = "") -> None:
        for name, value in (("sys_vendor", vendor), ("product_name", product), ("chassis_asset_tag", tag)):
            self.write(f"sys/class/dmi/id/{name}", value)

    def memory(self, total_kib: int, swap_kib: int = 0) -> None:
        self.write("proc/meminfo", f"MemTotal:       {total_kib} kB\nMemFree: 1 kB\nSwapTotal:  {swap_kib} kB")

    def numa(self, number: int, cpus: str, memory_kib: int) -> None:
        base = f"sys/devices/system/node/node{number}"
        self.write(f"{base}/cpulist", cpus)
        self.write(f"{base}/meminfo", f"Node {number} MemTotal:       {memory_kib} kB\nNode {number} MemFree: 5 kB")

    def cpus(self, sockets: int, cores: int, threads: int) -> None:
        self.write("sys/devices/system/cpu/online", f"0-{threads - 1}" if threads > 1 else "0")
        for cpu in range(threads):
            core = cpu % cores
            siblings = ",".join(str(number) for number in range(core, threads, cores))
            topology = f"sys/devices/system/cpu/cpu{cpu}/topology"
            self.write(f"{topology}/thread_siblings_list", siblings)
            self.write(f"{topology}/physical_package_id", core * sockets // cores)

    def pci(self, bus_id: str, vendor: str, pci_class: str, numa: int, device: str = "0x20b0") -> str:
        base = f"sys/bus/pci/devices/{bus_id}"
        for name, value in (("vendor", vendor), ("class", pci_class), ("device", device), ("numa_node", numa)):
            self.write(f"{base}/{name}", value)
        return base

    def gpu(self, bus_id: str, numa: int) -> None:
        self.pci(bus_id, NVIDIA, "0x030200", numa)

    def minor(self, bus_id: str, number: object) -> None:
        """What a driver that is loaded tells of a GPU."""
        self.write(f"proc/driver/nvidia/gpus/{bus_id}/information", INFORMATION.format(bus_id=bus_id, minor=number))

    def hca(
        self,
        name: str,
        bus_id: str,
        numa: int,
        rate: str = "200 Gb/sec (4X HDR)",
        state: str = "4: ACTIVE",
        link_layer: str = "InfiniBand",
        netdev: str = "",
    ) -> None:
        device = self.pci(bus_id, MELLANOX, "0x020700", numa)
        if netdev:
            self.write(f"{device}/net/{netdev}/mtu", 2044)
        self.link(f"sys/class/infiniband/{name}/device", device)
        self.port(name, 1, rate, state, link_layer)

    def port(self, name: str, number: int, rate: str, state: str, link_layer: str) -> None:
        base = f"sys/class/infiniband/{name}/ports/{number}"
        for key, value in (("rate", rate), ("state", state), ("link_layer", link_layer)):
            self.write(f"{base}/{key}", value)

    def nvme(
        self,
        number: int,
        bus_id: str,
        numa: int,
        size: int = 960197124096,
        model: str = "Microsoft NVMe Direct Disk",
        transport: str = "pcie",
    ) -> str:
        """One controller with one namespace; returns the directory of the disk."""
        pci = self.pci(bus_id, "0x1414", "0x010802", numa)
        controller = f"sys/class/nvme/nvme{number}"
        for name, value in (
            ("model", f"{model:<40}"),
            ("serial", f"SN{number:04d}"),
            ("transport", transport),
            ("numa_node", numa),
        ):
            self.write(f"{controller}/{name}", value)
        self.link(f"{controller}/device", pci)
        disk = f"sys/block/nvme{number}n1"
        self.write(f"{disk}/size", size // 512)
        self.write(f"{disk}/dev", f"259:{number * 8}")
        (self.root / disk / "holders").mkdir(exist_ok=True)
        self.link(f"{disk}/device", controller)
        by_id = self.root / "dev/disk/by-id"
        by_id.mkdir(parents=True, exist_ok=True)
        for name in (f"nvme-{model.replace(' ', '_')}_SN{number:04d}", f"nvme-eui.00000000000000{number:02x}"):
            (by_id / name).symlink_to(f"../../nvme{number}n1")
        return disk

    def partition(self, disk: str, number: int, device: str) -> None:
        name = f"{Path(disk).name}p{number}"
        self.write(f"{disk}/{name}/partition", number)
        self.write(f"{disk}/{name}/dev", device)
        (self.root / disk / name / "holders").mkdir(exist_ok=True)


def ndv4(root: Path) -> FakeNode:
    """Standard_ND96asr_v4: 4 NUMA nodes, 8 GPUs, 8 HDR ports, 8 NVMe disks."""
    node = FakeNode(root)
    node.dmi("Microsoft Corporation", "Virtual Machine", AZURE_TAG)
    node.memory(928858388)
    node.cpus(2, 96, 96)
    for number in range(4):
        node.numa(number, f"{number * 24}-{number * 24 + 23}", 928858388 // 4)
    for index, bus_id in enumerate(NDV4_GPUS):
        node.gpu(bus_id, NDV4_NUMA[index])
        node.hca(f"mlx5_ib{index}", f"{0x101 + index:04x}:00:00.0", NDV4_NUMA[index], netdev=f"ib{index}")
        node.nvme(index, f"{0x200 + index:04x}:00:00.0", index // 2)
    # An NVSwitch and a GPU's audio function carry the vendor too, and are no GPUs.
    node.pci("0010:00:00.0", NVIDIA, "0x068000", 0)
    return node


def ndv5(root: Path) -> FakeNode:
    """Standard_ND96isr_H100_v5: 2 NUMA nodes."""
    node = FakeNode(root)
    node.dmi("Microsoft Corporation", "Virtual Machine", AZURE_TAG)
    node.memory(1909409116)
    node.cpus(2, 96, 96)
    for number in range(2):
        node.numa(number, f"{number * 48}-{number * 48 + 47}", 1909409116 // 2)
    for index, bus_id in enumerate(NDV5_GPUS):
        node.gpu(bus_id, NDV5_NUMA[index])
        address = f"{0x101 + index:04x}:00:00.0"
        node.hca(f"mlx5_ib{index}", address, NDV5_NUMA[index], rate="400 Gb/sec (4X NDR)", netdev=f"ib{index}")
        node.nvme(index, f"{0x200 + index:04x}:00:00.0", index // 4, size=3840755982336)
    return node


def silent_vm(root: Path, numa_nodes: int) -> FakeNode:
    """A virtual machine whose hypervisor tells the NUMA node of no device (numa_node is -1)."""
    node = FakeNode(root)
    node.dmi("QEMU", "Standard PC (Q35 + ICH9, 2009)")
    node.memory(64000000)
    node.cpus(1, 16, 16)
    share = 16 // numa_nodes
    for number in range(numa_nodes):
        node.numa(number, f"{number * share}-{(number + 1) * share - 1}", 64000000 // numa_nodes)
    node.gpu("0000:01:00.0", -1)
    node.hca("mlx5_0", "0000:02:00.0", -1)
    node.nvme(0, "0000:03:00.0", -1)
    return node


def laptop(root: Path) -> FakeNode:
    """Nothing that matters here: no NUMA directory, no RDMA, no NVMe, no GPU, no DMI."""
    node = FakeNode(root)
    node.memory(16000000, swap_kib=8388608)
    node.write("sys/devices/system/cpu/online", "0-7")
    return node


def smi(tmp_path: Path, case: str, rows: str = "") -> str:
    """A program that answers what a fixture of nvidia-smi says, and ``rows`` of remapped rows, which old drivers do not know."""
    program = tmp_path / "bin/nvidia-smi"
    program.parent.mkdir()
    rc, err = FIXTURES / f"{case}.rc", FIXTURES / f"{case}.err"
    code = rc.read_text(encoding="utf-8").strip() if rc.exists() else "0"
    complaint = f"cat {err} >&2" if err.exists() else ""
    told = tmp_path / "remapped-rows"
    told.write_text(rows, encoding="utf-8")
    answer = f"cat {told}; exit {0 if rows else 2}"
    program.write_text(
        f"#!/bin/sh\ncase $1 in --query-remapped-rows=*) {answer};; esac\ncat {FIXTURES}/{case}.out\n{complaint}\nexit {code}\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    return str(program)
