# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is written down about a VM lab, and where: machines.json for programs, a directory per node for QEMU."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tarfile
import typing as t
import uuid

from . import qemu

ROOT = pathlib.Path(__file__).resolve().parents[3]
DISK_BYTES = 512 << 20  # mkfs.xfs wants at least 300 MB
MEMORY_MIB = 1536
FABRIC_PREFIX = "10.77.0"
# Links in a node's directory to what QEMU boots.
_KERNEL, _INITRD = "vmlinuz", "initrd.img"


class LabError(Exception):
    """Something a person has to know; the text says what to do."""


class Paths:
    """Where a lab keeps its files. LAB_VM_DIR is for a second lab beside the usual one."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.machines = directory / "machines.json"
        self.key = directory / "id_ed25519"
        self.known_hosts = directory / "known_hosts"

    def node(self, name: str) -> pathlib.Path:
        return self.directory / name

    @classmethod
    def here(cls) -> Paths:
        return cls(pathlib.Path(os.environ.get("LAB_VM_DIR") or ROOT / ".cache" / "vm").absolute())


def lab_name(paths: Paths) -> str:
    """Unique to the directory, so that labs side by side tell their processes apart."""
    return f"hpcai-vm-{hashlib.sha256(str(paths.directory).encode()).hexdigest()[:8]}"


def load(paths: Paths) -> dict[str, t.Any]:
    """The description of the lab; empty while there is none."""
    try:
        return t.cast("dict[str, t.Any]", json.loads(paths.machines.read_text()))
    except FileNotFoundError:
        return {}


def save(paths: Paths, lab: dict[str, t.Any]) -> None:
    part = paths.machines.with_suffix(".part")
    part.write_text(json.dumps(lab, indent=1) + "\n")
    part.replace(paths.machines)


def layout() -> str:
    """A digest of what nodes are made of besides their image: a lab made of something else is made anew."""
    disks = tuple(qemu.Disk(f"serial{slot}", f"file{slot}") for slot in range(qemu.DISKS))
    node = qemu.Node("node", 1, "process", "uuid", 1, "group", 1, MEMORY_MIB, "kernel", "initrd", disks)
    return hashlib.sha256(json.dumps([qemu.argv(node, "tcg"), DISK_BYTES, FABRIC_PREFIX]).encode()).hexdigest()[:8]


def create(paths: Paths, image: pathlib.Path, nodes: int, recipe: str) -> dict[str, t.Any]:
    """Make keys, disks and the description of a new lab; nothing runs yet."""
    if paths.directory.exists() and any(paths.directory.iterdir()):
        raise LabError(f"{paths.directory} holds something that is no lab. Choose another LAB_VM_DIR.")
    paths.directory.mkdir(parents=True, exist_ok=True)
    paths.directory.chmod(0o700)
    name = lab_name(paths)
    # From here on the directory is a lab's, if an unfinished one's, and may be removed as such.
    save(paths, {"name": name, "recipe": "unfinished", "nodes": {}})
    _make_key(paths.key, name)
    ports = _free_ports(nodes)
    seed = hashlib.sha256(os.urandom(16)).digest()
    lab: dict[str, t.Any] = {
        "name": name,
        "recipe": recipe,
        "image": str(image),
        "accelerator": "",
        # A group of its own per lab: on the loopback interface every lab hears what is said to its group.
        "fabric": {"group": f"239.{192 + seed[0] % 4}.{seed[1]}.{1 + seed[2] % 254}", "port": _free_udp_port()},
        "nodes": {},
    }
    for number in range(1, nodes + 1):
        node = f"vm-{number}"
        paths.node(node).mkdir()
        lab["nodes"][node] = {
            "number": number,
            "ssh_port": ports[number - 1],
            "fabric_address": f"{FABRIC_PREFIX}.{number}",
            "gpus": qemu.gpus(),
            "disks": [_new_disk(paths.node(node), number, disk, 0) for disk in range(qemu.DISKS)],
            "slots": list(range(qemu.DISKS)),
        }
    for node, description in lab["nodes"].items():
        directory = paths.node(node)
        _make_key(directory / "ssh_host_ed25519_key", node)
        (directory / "seed.tar").write_bytes(_seed(lab, node, directory, paths.key.with_suffix(".pub").read_bytes()))
        choose_kernel(paths, lab, node)
        root = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(image / "root.img"), "root.qcow2"]
        subprocess.run(root, cwd=directory, check=True)
        with paths.known_hosts.open("a") as stream:
            public = (directory / "ssh_host_ed25519_key.pub").read_text().split()
            stream.write(f"[127.0.0.1]:{description['ssh_port']} {public[0]} {public[1]}\n")
    save(paths, lab)
    user = image / "users" / name
    user.unlink(missing_ok=True)
    user.symlink_to(paths.machines)  # keeps tests/lab/vm/build from removing the image
    return lab


def remove(paths: Paths) -> None:
    """Remove a lab's files; a directory without a lab's description is not touched."""
    if paths.machines.exists():
        shutil.rmtree(paths.directory)
    shutil.rmtree(pathlib.Path("~/.ansible").expanduser() / f"cp-{lab_name(paths)}", ignore_errors=True)


def replace_disk(paths: Paths, lab: dict[str, t.Any], node: str, index: int, same_serial: bool) -> None:
    """Put a new, empty disk where the old one was. The old one's content is gone."""
    description = lab["nodes"][node]
    old = description["disks"][index]
    generation = old["generation"] + 1
    new = _new_disk(paths.node(node), description["number"], index, generation)
    if same_serial:
        new["serial"] = old["serial"]
    (paths.node(node) / old["file"]).unlink()
    description["disks"][index] = new


def choose_kernel(paths: Paths, lab: dict[str, t.Any], node: str, release: str = "default") -> None:
    """Let a node boot one of the image's kernels from its next start on, also where it reboots itself."""
    kernels = pathlib.Path(lab["image"]) / "kernels"
    if release != "default" and not (kernels / release).is_dir():
        there = ", ".join(sorted(path.name for path in kernels.iterdir()))
        raise LabError(f"The image has no kernel {release}; there are {there}")
    for name in (_KERNEL, _INITRD):
        part = paths.node(node) / f"{name}.part"
        part.symlink_to(kernels / release / name)
        part.replace(paths.node(node) / name)


def machine(lab: dict[str, t.Any], node: str) -> qemu.Node:
    """A node as QEMU's command line wants it."""
    description = lab["nodes"][node]
    disks = [
        qemu.Disk(disk["serial"], disk["file"]) if disk["present"] else None
        for disk in (description["disks"][index] for index in description["slots"])
    ]
    return qemu.Node(
        name=node,
        number=description["number"],
        process_name=f"{lab['name']}-{node}",
        uuid=str(uuid.uuid5(uuid.NAMESPACE_OID, f"{lab['name']}/{lab['fabric']['group']}/{node}")),
        ssh_port=description["ssh_port"],
        fabric_group=lab["fabric"]["group"],
        fabric_port=lab["fabric"]["port"],
        memory_mib=MEMORY_MIB,
        kernel=_KERNEL,
        initrd=_INITRD,
        slots=tuple(disks),
    )


def _new_disk(directory: pathlib.Path, number: int, index: int, generation: int) -> dict[str, t.Any]:
    file = f"disk-{index}.{generation}.img"
    with (directory / file).open("xb") as stream:
        stream.truncate(DISK_BYTES)
    serial = f"LAB{number:02d}D{index}G{generation}"
    return {"serial": serial, "file": file, "generation": generation, "bytes": DISK_BYTES, "present": True}


def _make_key(path: pathlib.Path, comment: str) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)], check=True)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _number in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _free_udp_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _seed(lab: dict[str, t.Any], node: str, directory: pathlib.Path, public_key: bytes) -> bytes:
    """The archive that makes a copy of the image this node."""
    description = lab["nodes"][node]
    number = description["number"]
    hosts = "".join(f"{one['fabric_address']} {name}\n" for name, one in lab["nodes"].items())
    files = {
        "etc/lab-node": f"{lab['name']} {node}\n".encode(),
        "etc/hostname": f"{node}\n".encode(),
        "etc/hosts": f"127.0.0.1 localhost\n::1 localhost ip6-localhost\n{hosts}".encode(),
        "etc/ssh/lab_authorized_keys": public_key,
        "etc/ssh/ssh_host_ed25519_key": (directory / "ssh_host_ed25519_key").read_bytes(),
        "etc/ssh/ssh_host_ed25519_key.pub": (directory / "ssh_host_ed25519_key.pub").read_bytes(),
        "etc/systemd/network/10-management.network": _network(
            qemu.management_mac(number), "10.0.2.15/24", "Gateway=10.0.2.2\nDNS=10.0.2.3\n"
        ),
        "etc/systemd/network/20-fabric.network": _network(
            qemu.fabric_mac(number), f"{description['fabric_address']}/24", ""
        ),
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            entry.mode = 0o600 if path.endswith("_key") else 0o644
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _network(mac: str, address: str, more: str) -> bytes:
    return f"[Match]\nMACAddress={mac}\n\n[Network]\nAddress={address}\n{more}LinkLocalAddressing=no\n".encode()


__all__ = [
    "ROOT",
    "LabError",
    "Paths",
    "choose_kernel",
    "create",
    "lab_name",
    "layout",
    "load",
    "machine",
    "remove",
    "replace_disk",
    "save",
]
