# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node of the VM lab is made of, as QEMU's command line: plain data in, a list of words out, no side effects.

Each NUMA node has a PCIe bridge of its own, and on it two (placeholder) GPUs and two NVMe disks; the first one also has the
fabric's network card. The bridges are numbered so that the GPUs lie on the NUMA nodes 1,1,0,0,3,3,2,2 in the order of their
bus ids, like those of an ND96asr_v4: whoever takes the index of a GPU for its place is found out.
"""

from __future__ import annotations

import typing as t

NUMA_BY_BRIDGE = (1, 0, 3, 2)
GPUS_PER_NUMA = 2
DISKS_PER_NUMA = 2
DISKS = DISKS_PER_NUMA * len(NUMA_BY_BRIDGE)
CPUS_PER_NUMA = 2
FABRIC_NUMA = 0
# Bus numbers of the bridges are so far apart that every device below one keeps its number whatever the others hold.
BUSES_PER_BRIDGE = 16

COMMAND_LINE = (
    "root=/dev/vda rw console=ttyS0 quiet loglevel=4",
    # Emulation pays dearly for these, and a lab has no secrets.
    "mitigations=off audit=0 apparmor=0 nowatchdog no_timer_check random.trust_cpu=on",
)
# Linux distrusts the TSCs of emulated CPUs, which all show the host's, and would ask the HPET for the time instead: a way
# out of the emulation, and through QEMU's one lock, at every look at the clock. A boot takes 45 s with this, and 60 s without.
EMULATED_CLOCK = "tsc=reliable clocksource=tsc"


class Disk(t.NamedTuple):
    """An NVMe disk: its serial number and the file (relative to the node's directory) that holds its content."""

    serial: str
    file: str


class Node(t.NamedTuple):
    """A node. ``slots`` says which disk is in which slot, None for an empty one; slots are filled bridge by bridge."""

    name: str
    number: int
    process_name: str
    uuid: str
    ssh_port: int
    fabric_group: str
    fabric_port: int
    memory_mib: int
    kernel: str
    initrd: str
    slots: tuple[Disk | None, ...]


def management_mac(number: int) -> str:
    return f"52:54:00:11:{number >> 8:02x}:{number & 0xFF:02x}"


def fabric_mac(number: int) -> str:
    return f"52:54:00:22:{number >> 8:02x}:{number & 0xFF:02x}"


def bridge_bus(position: int) -> int:
    """Bus number of the bridge at a position of NUMA_BY_BRIDGE."""
    return BUSES_PER_BRIDGE * (position + 1)


def gpus() -> list[dict[str, t.Any]]:
    """Bus id and NUMA node of each placeholder GPU, in the order of their bus ids.

    Firmware numbers the buses below a bridge in the order of its ports, and the ports of the GPUs come first.
    """
    return [
        {"bus_id": f"0000:{bridge_bus(position) + 1 + gpu:02x}:00.0", "numa": numa}
        for position, numa in enumerate(NUMA_BY_BRIDGE)
        for gpu in range(GPUS_PER_NUMA)
    ]


def fabric_netdev() -> str:
    """How systemd names the fabric's card: by its bus, the one after those of its bridge's GPUs and disks."""
    bus = bridge_bus(NUMA_BY_BRIDGE.index(FABRIC_NUMA)) + 1 + GPUS_PER_NUMA + DISKS_PER_NUMA
    return f"enp{bus}s0"


def argv(node: Node, accelerator: str) -> list[str]:
    """The command that runs a node in its directory; ``accelerator`` is ``kvm`` or ``tcg``."""
    clock = [EMULATED_CLOCK] if accelerator == "tcg" else []
    return [
        "qemu-system-x86_64",
        *("-name", node.process_name, "-uuid", node.uuid),
        *("-machine", "q35", "-no-user-config", "-nodefaults", "-display", "none"),
        *("-action", "reboot=shutdown"),  # keep.py starts it again
        *accelerator_argv(accelerator),
        *("-serial", "file:console.log", "-qmp", "unix:qmp.sock,server=on,wait=off"),
        *("-kernel", node.kernel, "-initrd", node.initrd),
        *("-append", " ".join([*COMMAND_LINE, *clock, f"systemd.hostname={node.name}"])),
        *("-fw_cfg", "name=opt/lab/seed,file=seed.tar"),
        *_numa_argv(node.memory_mib),
        *("-drive", "if=none,id=root,file=root.qcow2,format=qcow2,cache=unsafe"),
        *("-device", "virtio-blk-pci,drive=root,bus=pcie.0"),
        *("-device", "virtio-rng-pci,bus=pcie.0"),
        *("-netdev", f"user,id=management,hostfwd=tcp:127.0.0.1:{node.ssh_port}-:22"),
        *("-device", f"virtio-net-pci,netdev=management,mac={management_mac(node.number)},bus=pcie.0,romfile="),
        *_bridges_argv(node),
    ]


def accelerator_argv(accelerator: str) -> list[str]:
    """How the CPUs are made, for a node and for the probe alike."""
    if accelerator == "kvm":
        return ["-accel", "kvm", "-cpu", "host"]
    # A plain CPU: what emulation offers beyond it (vector units) costs more than it saves. One thread for all CPUs: with one
    # each, on two cores, those that wait for another one keep it from running, and two machines boot in 88 s, not 50 s.
    return ["-accel", "tcg,thread=single,tb-size=512", "-cpu", "qemu64"]


def _numa_argv(memory_mib: int) -> list[str]:
    nodes = len(NUMA_BY_BRIDGE)
    words = ["-m", str(memory_mib), "-smp", f"{nodes * CPUS_PER_NUMA},sockets={nodes},cores={CPUS_PER_NUMA},threads=1"]
    for numa in range(nodes):
        first = numa * CPUS_PER_NUMA
        words += ["-object", f"memory-backend-ram,id=memory{numa},size={memory_mib // nodes}M"]
        words += ["-numa", f"node,nodeid={numa},memdev=memory{numa},cpus={first}-{first + CPUS_PER_NUMA - 1}"]
    return words


def _bridges_argv(node: Node) -> list[str]:
    words: list[str] = []
    ports = 0

    def port(bridge: str) -> str:
        # Chassis and slot only have to be unique. Without io-reserve=0 the ports would use up the I/O addresses; hotplug
        # costs time at boot, and disks are changed while the node is off.
        nonlocal ports
        ports += 1
        words.extend(
            [
                "-device",
                f"pcie-root-port,id=port{ports},bus={bridge},chassis={ports},slot={ports},io-reserve=0,hotplug=off",
            ]
        )
        return f"port{ports}"

    for position, numa in enumerate(NUMA_BY_BRIDGE):
        bridge = f"bridge{numa}"
        words += ["-device", f"pxb-pcie,id={bridge},bus_nr={bridge_bus(position)},numa_node={numa},bus=pcie.0"]
        for _gpu in range(GPUS_PER_NUMA):
            words += ["-device", f"pci-testdev,membar=0,bus={port(bridge)}"]
        for slot in range(position * DISKS_PER_NUMA, (position + 1) * DISKS_PER_NUMA):
            bus, disk = port(bridge), node.slots[slot]
            if disk:
                words += ["-drive", f"if=none,id=disk{slot},file={disk.file},format=raw,cache=unsafe,discard=unmap"]
                words += ["-device", f"nvme,drive=disk{slot},serial={disk.serial},bus={bus},max_ioqpairs=2"]
        if numa == FABRIC_NUMA:
            bus = port(bridge)
            fabric = f"mcast={node.fabric_group}:{node.fabric_port},localaddr=127.0.0.1"
            words += ["-netdev", f"socket,id=fabric,{fabric}"]
            words += ["-device", f"virtio-net-pci,netdev=fabric,mac={fabric_mac(node.number)},bus={bus},romfile="]
    return words


__all__ = [
    "DISKS",
    "Disk",
    "Node",
    "accelerator_argv",
    "argv",
    "fabric_mac",
    "fabric_netdev",
    "gpus",
    "management_mac",
]
