# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role and the module beeond with the real BeeGFS 7.4.7, its kernel module included, on two machines.

``LAB_BEEGFS=/the/tree bin/demo --vm`` puts it there (tests/lab/beegfs/README.md). The storage is a RAID0 of the machines' disks, by the
role nvme_raid. Each test leaves the machines without a file system of BeeOND. What begins a test goes through the role, and what
follows through its module, as the role calls it: a playbook takes minutes under emulation.
"""

from __future__ import annotations

import os
import re
import typing as t

import pytest
from lab.vm import qemu
from outcome import changed, refused

if t.TYPE_CHECKING:
    from scenarios.vm.conftest import VmLab

pytestmark = [
    pytest.mark.beegfs,
    pytest.mark.skipif(not os.environ.get("LAB_BEEGFS"), reason="needs LAB_BEEGFS: tests/lab/beegfs/README.md"),
]

FIRST, SECOND = "vm-1", "vm-2"
NODES = [FIRST, SECOND]
POINT, DISK = "/mnt/scratch", "/mnt/resource_nvme"
DATA = f"{DISK}/beeond"
# Both machines have the same address in the network of their management.
NETDEV = qemu.fabric_netdev()
OPTIONS: dict[str, t.Any] = {
    "nodes": NODES,
    "storage_path": DISK,
    "mount_point": POINT,
    "interfaces": [NETDEV],
    "version": 7,
    "timeout_s": 900,
}
VARIABLES = {
    "nvme_raid_models": ["QEMU NVMe Ctrl"],
    "beeond_packages": [],
    "beeond_client_build": False,
    **{f"beeond_{name}": value for name, value in OPTIONS.items()},
}
PLAY = {
    "name": "Make a file system of all nodes",
    "hosts": "gpu_nodes",
    "gather_facts": False,
    "roles": [f"hpcai.gpu_cluster.{name}" for name in ("nvme_raid", "cluster_ssh", "beeond")],
}
# beegfs-ctl of 7 reads no other file (roles/beeond/README.md).
CONTROL = "sed -i '/^connDisableAuthentication/c connDisableAuthentication = true' /etc/beegfs/beegfs-client.conf"
FABRIC = {
    "TCP": "! test -e /sys/class/infiniband/rxe0 || rdma link delete rxe0",
    "RDMA": f"test -e /sys/class/infiniband/rxe0 || {{ modprobe rdma_rxe; rdma link add rxe0 type rxe netdev {NETDEV}; }}",
}
# Nothing, less than a chunk, a chunk (512 KiB), and pieces on both servers.
SIZES = (0, 1, 524_288, 5_000_001)
LOGS = "/var/log/hpcai_beeond/1000"
LEFT = f"""
findmnt -n -o SOURCE {POINT} || true
ls -d {DATA} {LOGS} /run/hpcai_beeond/1000 /run/hpcai_beeond/1000.status /run/beegfs-*.pid 2>/dev/null || true
pgrep -l beegfs || true
grep -o '^beegfs ' /proc/modules || true
"""


def beeond(lab: VmLab, state: str, **options: t.Any) -> dict[str, t.Any]:
    """Run the module as the role does, on the first node."""
    wanted = {**OPTIONS, "state": state, **options}
    return lab.module("hpcai.gpu_cluster.beeond", wanted, node=FIRST, timeout_s=2400)


def fabric(lab: VmLab, transport: str) -> None:
    """With a RoCE device BeeGFS takes RDMA, without one TCP. A boot takes it away."""
    lab.everywhere(FABRIC[transport])


def transports(lab: VmLab, node: str) -> set[str]:
    """How a node's client is connected to the servers of metadata and of data."""
    text = lab.shell(node, "cat /proc/fs/beegfs/*/meta_nodes /proc/fs/beegfs/*/storage_nodes")
    return set(re.findall(r"(TCP|RDMA): [1-9]", text))


def write(lab: VmLab, node: str) -> dict[str, str]:
    """Write files, and return the SHA-256 of what went into them."""
    names = [f"{node}-{size}" for size in SIZES]
    script = "; ".join(
        f"head -c {size} /dev/urandom | tee {POINT}/{name} | sha256sum" for name, size in zip(names, SIZES)
    )
    return dict(zip(names, (line.split()[0] for line in lab.shell(node, script).splitlines())))


def stored(lab: VmLab, node: str) -> dict[str, str]:
    """The SHA-256 of all files, as a node reads them."""
    lines = lab.shell(node, f"echo 3 > /proc/sys/vm/drop_caches; cd {POINT}; sha256sum -- *").splitlines()
    return {name: digest for digest, name in map(str.split, lines)}


def left(lab: VmLab) -> list[list[str]]:
    """What is there of a session, on each node."""
    return [text.split() for text in lab.everywhere(LEFT).values()]


@pytest.fixture(scope="module")
def machines(vm_lab: VmLab) -> VmLab:
    """Machines that can start."""
    assert vm_lab.nodes == NODES, "This needs both machines: run it without LAB_VM_NODE and --numprocesses"
    vm_lab.everywhere(CONTROL)
    return vm_lab


@pytest.fixture
def lab(machines: VmLab) -> t.Iterator[VmLab]:
    """The lab, whose machines have nothing of a session afterwards."""
    yield machines
    for node in NODES:
        machines.power_on(node)
    cleaned = beeond(machines, "cleaned", allow_data_loss=True)
    assert not cleaned["failed"], cleaned
    assert left(machines) == [[], []]


def started(lab: VmLab, transport: str = "TCP") -> dict[str, str]:
    """Start a file system, and write files on both nodes; returns their SHA-256."""
    fabric(lab, transport)
    result = lab.playbook([PLAY], timeout_s=2400, **VARIABLES)
    assert result.rc == 0, result.output
    return {**write(lab, FIRST), **write(lab, SECOND)}


@pytest.mark.parametrize("transport", ["TCP", "RDMA"])
def test_a_life(lab: VmLab, transport: str) -> None:
    files = started(lab, transport)
    assert [stored(lab, node) for node in NODES] == [files, files]
    assert [transports(lab, node) for node in NODES] == [{transport}, {transport}]
    # Not --mount: beegfs-ctl of 7.4.7 refuses what it reads of its own client's settings.
    manager = (f"--sysMgmtdHost={FIRST}", "--connPortShift=1000")
    entry = lab.run(SECOND, "beegfs-ctl", *manager, "--getentryinfo", f"{POINT}/{FIRST}-{SIZES[-1]}")
    assert "actual: 2" in entry, entry
    assert all(f"@ {node} " in entry for node in NODES), entry
    if transport == "TCP":
        again = lab.playbook([PLAY], timeout_s=2400, **VARIABLES)
        assert again.rc == 0, again.output
        assert [again.recap(node)["changed"] for node in NODES] == [0, 0]
    assert not changed(beeond(lab, "verified"))
    assert changed(beeond(lab, "stopped"))
    assert left(lab) == [[DATA, LOGS], [DATA, LOGS]]
    refused(beeond(lab, "cleaned"), "data_would_be_lost")
    assert changed(beeond(lab, "started"))
    assert [stored(lab, node) for node in NODES] == [files, files]
    assert changed(beeond(lab, "cleaned", allow_data_loss=True))
    assert left(lab) == [[], []]


@pytest.mark.parametrize(
    ("node", "service"), [(SECOND, "beegfs-storage"), (FIRST, "beegfs-meta"), (FIRST, "beegfs-mgmtd")]
)
def test_a_killed_service_is_named_and_repaired_with_consent(lab: VmLab, node: str, service: str) -> None:
    files = started(lab)
    lab.shell(node, f"kill -9 $(cat /run/{service}-*.pid)")
    refused(beeond(lab, "verified"), "not_whole", f"{node}: {service} does not run")
    refused(beeond(lab, "started"), "half_there", f"{node}: {service} does not run")
    assert changed(beeond(lab, "started", allow_data_loss=True))
    assert [stored(lab, one) for one in NODES] == [files, files]
    assert not changed(beeond(lab, "started"))


def test_the_survivor_of_a_lost_node_is_stopped_and_cleaned(lab: VmLab) -> None:
    started(lab)
    lab.power_off(SECOND)
    refused(beeond(lab, "verified"), "not_whole", f"{SECOND}: does not answer")
    assert changed(beeond(lab, "stopped"))
    assert lab.shell(FIRST, LEFT).split() == [DATA, LOGS]
    assert changed(beeond(lab, "cleaned", allow_data_loss=True))
    assert lab.shell(FIRST, LEFT).split() == []


def test_a_power_cut_of_both_nodes_keeps_what_they_had_written_out(lab: VmLab) -> None:
    files = started(lab)
    lab.everywhere("sync")
    for node in NODES:
        lab.power_off(node)
    for node in NODES:
        lab.power_on(node)
    fabric(lab, "TCP")
    services = {FIRST: "beegfs-mgmtd", SECOND: "beegfs-storage"}
    refused(beeond(lab, "verified"), "not_whole", *(f"{node}: {name} does not run" for node, name in services.items()))
    assert changed(beeond(lab, "started"))
    assert [stored(lab, node) for node in NODES] == [files, files]
