# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What the kernel tells about a node: NUMA nodes, CPUs, PCI, RDMA devices, NVMe disks, firmware names.

Every reader takes the directory that stands for ``/`` as its first argument and starts no process. A file that is not
there is not an error: virtual machines, containers and old kernels each lack some of them.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import entry_names, read_int, read_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.mounts import read_mounts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._ranges import parse_ranges

_BUS_ID = re.compile(r"^(?:([0-9a-f]{1,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])$", re.IGNORECASE)
_HOST_BRIDGE = re.compile(r"^pci[0-9a-f]{4,8}:[0-9a-f]{2}$")
_NVME_DISK = re.compile(r"^nvme\d+n\d+$")
_NVME_CONTROLLER = re.compile(r"^nvme\d+$")
_NVIDIA_VENDOR = "0x10de"
# Display controllers (0x03xxxx) only: NVSwitches, audio functions and USB controllers carry the same vendor.
_DISPLAY_CLASS = "0x03"
_3D_CLASS = "0x0302"
_MELLANOX_VENDOR, _NETWORK_CLASS = "0x15b3", "0x02"
# Generations 0 to 3 so far: 0xefa0 to 0xefa3.
_AMAZON_VENDOR, _EFA_DEVICE = "0x1d0f", "0xefa"
# Disks that look like local NVMe to the guest but are network storage: never scratch.
_NETWORK_DISK_MODELS = ("Amazon Elastic Block Store", "MSFT NVMe Accelerator", "nvme_card-pd")


def normalize_bus_id(text: str) -> str:
    """A PCI address the way sysfs spells it.

    NVML writes the domain with 8 digits and capitals (``0000000B:00:00.0``), sysfs with 4 and small letters, lspci may
    leave it out. A domain beyond ``ffff`` exists (Intel VMD) and keeps its digits.
    """
    match = _BUS_ID.match(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a PCI address")
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus.lower()}:{device.lower()}.{function}"


def bus_id_or_empty(text: str) -> str:
    """The same, and "" for what is no PCI address."""
    try:
        return normalize_bus_id(text)
    except ValueError:
        return ""


def _meminfo_mib(text: str, key: str) -> int | None:
    match = re.search(rf"\b{key}:\s+(\d+)\s*kB", text)
    return int(match.group(1)) // 1024 if match else None


def read_memory(root: Path) -> tuple[int | None, int | None]:
    """Memory and swap of the node in MiB."""
    text = read_text(root / "proc/meminfo")
    return _meminfo_mib(text, "MemTotal"), _meminfo_mib(text, "SwapTotal")


def read_numa(root: Path) -> list[dict[str, t.Any]]:
    """The NUMA nodes with their CPUs (a kernel list) and memory; nodes without CPUs (CXL, GPU memory) included."""
    base = root / "sys/devices/system/node"
    nodes = []
    for name in entry_names(base):
        if not re.match(r"^node\d+$", name):
            continue
        nodes.append(
            {
                "id": int(name[4:]),
                "cpus": read_text(base / name / "cpulist"),
                "memory_mib": _meminfo_mib(read_text(base / name / "meminfo"), "MemTotal"),
            }
        )
    if not nodes:
        # A kernel without NUMA support has no such directory: the machine is one node.
        cpus = read_text(root / "sys/devices/system/cpu/online")
        nodes = [{"id": 0, "cpus": cpus, "memory_mib": read_memory(root)[0]}]
    return sorted(nodes, key=lambda node: node["id"])


def read_cpus(root: Path) -> dict[str, t.Any]:
    """Sockets, cores and threads that are online; where cores have several threads also which CPUs share one."""
    base = root / "sys/devices/system/cpu"
    try:
        online = parse_ranges(read_text(base / "online"))
    except ValueError:
        online = []
    packages: set[str] = set()
    cores: set[str] = set()
    for cpu in online:
        topology = base / f"cpu{cpu}" / "topology"
        package, siblings = read_text(topology / "physical_package_id"), read_text(topology / "thread_siblings_list")
        if package and siblings:
            packages.add(package)
            cores.add(siblings)
    counts: dict[str, t.Any] = {
        "sockets": len(packages) or None,
        "cores": len(cores) or None,
        "threads": len(online) or None,
    }
    if 0 < len(cores) < len(online):
        counts["siblings"] = sorted(cores, key=lambda core: int(re.split("[,-]", core)[0]))
    return counts


def pci_numa(root: Path, bus_id: str) -> int | None:
    """The NUMA node of a PCI device; None when the kernel does not know (-1, common in virtual machines)."""
    number = read_int(root / "sys/bus/pci/devices" / bus_id / "numa_node")
    return number if number is not None and number >= 0 else None


def pci_path(root: Path, bus_id: str) -> list[str]:
    """The chain of bridges above a PCI device, as sysfs names them, from the host bridge (``pci0000:15``) down.

    Empty where the kernel does not show it; only the host bridge, or a chain too short, where a hypervisor hides switches.
    """
    real = (root / "sys/bus/pci/devices" / bus_id).resolve()
    return [part for part in real.parent.parts if _HOST_BRIDGE.match(part) or bus_id_or_empty(part) == part]


def read_pci_gpus(root: Path) -> list[dict[str, t.Any]] | None:
    """NVIDIA GPUs on the PCI bus, driver or not; None when the bus cannot be listed."""
    base = root / "sys/bus/pci/devices"
    if not base.is_dir():
        return None
    found = []
    for name in entry_names(base):
        if read_text(base / name / "vendor") != _NVIDIA_VENDOR:
            continue
        if not read_text(base / name / "class").startswith(_DISPLAY_CLASS):
            continue
        found.append({"bus_id": name, "numa": pci_numa(root, name), "device_id": read_text(base / name / "device")})
    return found


@dataclasses.dataclass(frozen=True)
class Bus:
    """What a PCI bus tells before any driver does: how many RDMA adapters and how many GPUs made for data centers it has."""

    adapters: int = 0
    gpus: int = 0


NO_BUS = Bus()


def read_bus(root: Path) -> Bus:
    """Functions of NVIDIA's network adapters and Amazon's EFA, and NVIDIA's GPUs without a display (3D controllers)."""
    base = root / "sys/bus/pci/devices"
    adapters = gpus = 0
    for name in entry_names(base):
        vendor, kind = read_text(base / name / "vendor"), read_text(base / name / "class")
        adapters += vendor == _MELLANOX_VENDOR and kind.startswith(_NETWORK_CLASS)
        adapters += vendor == _AMAZON_VENDOR and read_text(base / name / "device").startswith(_EFA_DEVICE)
        gpus += vendor == _NVIDIA_VENDOR and kind.startswith(_3D_CLASS)
    return Bus(adapters, gpus)


def _bus_id_of(device: Path) -> str | None:
    """The PCI address that a ``device`` link of sysfs leads to; None for a virtual device."""
    try:
        return normalize_bus_id(device.resolve().name) if device.exists() else None
    except ValueError:
        return None


def read_hcas(root: Path) -> list[dict[str, t.Any]] | None:
    """One entry per port of an RDMA device (InfiniBand, RoCE, EFA); None when no RDMA driver is loaded."""
    base = root / "sys/class/infiniband"
    if not base.is_dir():
        return None
    ports = []
    for name in entry_names(base):
        bus_id = _bus_id_of(base / name / "device")
        # A software device (rxe, siw) has no PCI device but names the interface that it runs on.
        netdevs = entry_names(base / name / "device/net") or [read_text(base / name / "parent")]
        for port in entry_names(base / name / "ports") or [""]:
            attributes = base / name / "ports" / port
            rate = re.match(r"([\d.]+)\s*Gb/sec", read_text(attributes / "rate"))
            ports.append(
                {
                    "device": name,
                    "port": int(port) if port.isdigit() else None,
                    "netdev": netdevs[0] or None,
                    "link_layer": read_text(attributes / "link_layer") or None,
                    "rate_gbps": _number(rate.group(1)) if rate else None,
                    "state": read_text(attributes / "state").partition(": ")[2] or None,
                    "numa": pci_numa(root, bus_id) if bus_id else None,
                    "bus_id": bus_id,
                    "pci_path": pci_path(root, bus_id) if bus_id else [],
                }
            )
    return ports


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if value == int(value) else value


def _device_users(root: Path) -> dict[str, list[str]]:
    """What uses a block device, by name (``nvme0n1p1``) and by number (``259:3``): mounts, swap areas, md arrays."""
    users: dict[str, list[str]] = {}
    for entry in read_mounts(root):
        # Both: a mounted /dev/root has only the number, btrfs has only the name.
        for key in (entry.number, entry.source.rpartition("/")[2]):
            users.setdefault(key, []).append(f"mounted on {entry.point}")
    for line in read_text(root / "proc/mounts").splitlines():
        fields = line.split()
        if len(fields) >= 2:
            users.setdefault(fields[0].rpartition("/")[2], []).append(f"mounted on {fields[1]}")
    for line in read_text(root / "proc/swaps").splitlines()[1:]:
        if line.split():
            users.setdefault(line.split()[0].rpartition("/")[2], []).append("swap")
    for line in read_text(root / "proc/mdstat").splitlines():
        array, _colon, members = line.partition(" : ")
        if array.startswith("md"):
            for member in re.findall(r"(\S+?)\[\d+\]", members):
                users.setdefault(member, []).append(f"member of {array}")
    return users


def _disk_users(disk: Path, users: dict[str, list[str]]) -> list[str]:
    found: list[str] = []
    partitions = [name for name in entry_names(disk) if (disk / name / "partition").exists()]
    for part in [disk, *(disk / name for name in partitions)]:
        found += [f"held by {holder}" for holder in entry_names(part / "holders")]
        found += users.get(part.name, []) + users.get(read_text(part / "dev"), [])
    found += [f"partition {name}" for name in partitions]
    return list(dict.fromkeys(found))


def _stable_names(root: Path) -> dict[str, str]:
    """For every disk the ``/dev/disk/by-id`` name that says most: model and serial before identifiers."""
    base = root / "dev/disk/by-id"
    best: dict[str, tuple[tuple[bool, int, str], str]] = {}
    for name in entry_names(base):
        link = base / name
        if not name.startswith("nvme-") or not link.is_symlink():
            continue
        disk = link.readlink().name if hasattr(link, "readlink") else link.resolve().name
        rank = (name.startswith(("nvme-eui.", "nvme-uuid.", "nvme-nvme.")), len(name), name)
        if disk not in best or rank < best[disk][0]:
            best[disk] = (rank, f"/dev/disk/by-id/{name}")
    return {disk: path for disk, (_rank, path) in best.items()}


def nvme_controller(device: Path) -> Path:
    """The directory that carries an NVMe disk's transport and address. ``device``: that of the disk, below /sys/block/NAME."""
    if (device / "transport").exists():
        return device
    # With native multipath the disk hangs on a subsystem, whose controllers carry them.
    controllers = [entry for entry in entry_names(device) if _NVME_CONTROLLER.match(entry)]
    return device / controllers[0] if controllers else device


def is_network_disk(transport: str, model: str) -> bool:
    """Whether an NVMe disk is storage elsewhere, by what it tells of itself."""
    return transport != "pcie" or model.startswith(_NETWORK_DISK_MODELS)


def read_nvme(root: Path) -> list[dict[str, t.Any]] | None:
    """Directly attached NVMe disks; None when the NVMe driver is not loaded."""
    block = root / "sys/block"
    disks = [name for name in entry_names(block) if _NVME_DISK.match(name)]
    if not disks and not (root / "sys/class/nvme").is_dir():
        return None
    users, stable = _device_users(root), _stable_names(root)
    found = []
    for name in sorted(disks, key=lambda disk: [int(number) for number in re.findall(r"\d+", disk)]):
        device = block / name / "device"
        controller = nvme_controller(device)
        transport = read_text(controller / "transport") or "pcie"
        model = read_text(device / "model") or read_text(controller / "model")
        if is_network_disk(transport, model):
            continue
        numa = read_int(controller / "numa_node")
        if numa is None:
            numa = read_int(controller / "device/numa_node")
        used_by = _disk_users(block / name, users)
        found.append(
            {
                "path": f"/dev/{name}",
                "by_id": stable.get(name),
                "model": model or None,
                "serial": read_text(device / "serial") or read_text(controller / "serial") or None,
                # Always 512-byte units, whatever the disk's own block size.
                "bytes": (read_int(block / name / "size") or 0) * 512,
                "numa": numa if numa is not None and numa >= 0 else None,
                "bus_id": _bus_id_of(controller / "device"),
                "in_use": bool(used_by),
                "used_by": used_by,
            }
        )
    return found


def read_dmi(root: Path) -> dict[str, str]:
    """The names that firmware or the hypervisor gives the machine."""
    base = root / "sys/class/dmi/id"
    return {key: read_text(base / key) for key in ("sys_vendor", "product_name", "chassis_asset_tag")}


__all__ = [
    "NO_BUS",
    "Bus",
    "bus_id_or_empty",
    "is_network_disk",
    "normalize_bus_id",
    "nvme_controller",
    "pci_numa",
    "pci_path",
    "read_bus",
    "read_cpus",
    "read_dmi",
    "read_hcas",
    "read_memory",
    "read_numa",
    "read_nvme",
    "read_pci_gpus",
]
