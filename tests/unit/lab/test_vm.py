# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The VM lab's tools: QEMU's command line, the choice of an accelerator, disks, processes, QMP and the inventory.

QEMU itself and the nodes' system are tested by the scenario vm.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import itertools
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
import time
import typing as t

import pytest
import yaml
from lab.vm import accelerator, keep, machine, qemu, qmp, runtime, state

ROOT = pathlib.Path(__file__).resolve().parents[3]
SLOTS = tuple(qemu.Disk(f"SERIAL{number}", f"disk-{number}.img") for number in range(qemu.DISKS))
NODE = qemu.Node(
    name="vm-3",
    number=3,
    process_name="hpcai-vm-12345678-vm-3",
    uuid="6f0d8a6e-8f0c-4c57-9d5c-0a8f5a4f7a11",
    ssh_port=40022,
    fabric_group="239.192.1.2",
    fabric_port=4000,
    memory_mib=1536,
    kernel="/image/vmlinuz",
    initrd="/image/initrd.img",
    slots=SLOTS,
)


class Word(t.NamedTuple):
    """An option of QEMU: its first word (a device's kind) and its settings."""

    kind: str
    settings: dict[str, str]


def options(argv: list[str], name: str) -> list[Word]:
    """Every use of an option, its value taken apart."""
    values = [value for option, value in itertools.pairwise(argv) if option == name]
    found = []
    for value in values:
        first, *rest = value.split(",")
        pairs = dict(word.partition("=")[::2] for word in ([first, *rest] if "=" in first else rest))
        found.append(Word("" if "=" in first else first, pairs))
    return found


def devices(argv: list[str], kind: str) -> list[dict[str, str]]:
    return [device.settings for device in options(argv, "-device") if device.kind == kind]


def numa_of_bus(argv: list[str]) -> dict[str, int]:
    """NUMA node of every root port, by the bridge that it is on."""
    bridges = {bridge["id"]: int(bridge["numa_node"]) for bridge in devices(argv, "pxb-pcie")}
    return {port["id"]: bridges[port["bus"]] for port in devices(argv, "pcie-root-port")}


# qemu.py


def test_every_numa_node_has_cpus_memory_disks_and_gpus() -> None:
    argv = qemu.argv(NODE, "tcg")
    nodes = {int(word.settings["nodeid"]): word.settings for word in options(argv, "-numa")}
    assert [nodes[numa]["cpus"] for numa in range(4)] == ["0-1", "2-3", "4-5", "6-7"]
    assert options(argv, "-smp")[0] == Word("8", {"sockets": "4", "cores": "2", "threads": "1"})
    sizes = {word.settings["id"]: word.settings["size"] for word in options(argv, "-object")}
    assert [sizes[nodes[numa]["memdev"]] for numa in range(4)] == ["384M"] * 4
    on = numa_of_bus(argv)
    for kind in ("nvme", "pci-testdev"):
        assert sorted(on[device["bus"]] for device in devices(argv, kind)) == [0, 0, 1, 1, 2, 2, 3, 3], kind
    assert [on[card["bus"]] for card in devices(argv, "virtio-net-pci") if card["bus"] in on] == [qemu.FABRIC_NUMA]


def test_no_two_devices_share_a_port_and_no_two_ports_a_number() -> None:
    argv = qemu.argv(NODE, "tcg")
    used = [device.settings["bus"] for device in options(argv, "-device") if device.settings["bus"].startswith("port")]
    assert len(used) == len(set(used)) == 17
    ports = devices(argv, "pcie-root-port")
    assert len({port["chassis"] for port in ports}) == len({port["slot"] for port in ports}) == len(ports) == 17


def test_gpus_have_the_order_of_an_ndv4() -> None:
    assert [gpu["numa"] for gpu in qemu.gpus()] == [1, 1, 0, 0, 3, 3, 2, 2]
    ids = [gpu["bus_id"] for gpu in qemu.gpus()]
    assert ids == sorted(ids)
    assert ids[0] == "0000:11:00.0"


def test_bus_ids_follow_from_the_order_of_the_ports() -> None:
    """Firmware gives the ports of a bridge the numbers after its own, in the order of the command line."""
    argv = qemu.argv(NODE, "tcg")
    number_of = {bridge["id"]: int(bridge["bus_nr"]) for bridge in devices(argv, "pxb-pcie")}
    bus_of = {}
    for port in devices(argv, "pcie-root-port"):
        number_of[port["bus"]] += 1
        bus_of[port["id"]] = number_of[port["bus"]]
    on = numa_of_bus(argv)
    gpus = [
        {"bus_id": f"0000:{bus_of[gpu['bus']]:02x}:00.0", "numa": on[gpu["bus"]]}
        for gpu in devices(argv, "pci-testdev")
    ]
    assert gpus == qemu.gpus()
    fabric = next(card for card in devices(argv, "virtio-net-pci") if card["netdev"] == "fabric")
    assert qemu.fabric_netdev() == f"enp{bus_of[fabric['bus']]}s0"


def test_an_empty_slot_leaves_everything_else_where_it_was() -> None:
    without = NODE._replace(slots=(None, *SLOTS[1:]))
    before, after = qemu.argv(NODE, "tcg"), qemu.argv(without, "tcg")
    assert [port["id"] for port in devices(before, "pcie-root-port")] == [
        port["id"] for port in devices(after, "pcie-root-port")
    ]
    kept = devices(after, "nvme")
    assert kept == devices(before, "nvme")[1:]
    assert "disk-0.img" not in " ".join(after)


def test_disks_carry_their_serial_numbers_into_another_slot() -> None:
    turned = qemu.argv(NODE._replace(slots=(SLOTS[-1], *SLOTS[:-1])), "tcg")
    files = {drive.settings["id"]: drive.settings["file"] for drive in options(turned, "-drive")}
    found = {disk["serial"]: files[disk["drive"]] for disk in devices(turned, "nvme")}
    assert found == {disk.serial: disk.file for disk in SLOTS}
    assert devices(turned, "nvme")[0]["serial"] == SLOTS[-1].serial


def test_only_this_machine_reaches_ssh_and_the_fabric() -> None:
    networks = {word.settings["id"]: word.settings for word in options(qemu.argv(NODE, "tcg"), "-netdev")}
    assert networks["management"]["hostfwd"] == "tcp:127.0.0.1:40022-:22"
    assert networks["fabric"]["localaddr"] == "127.0.0.1"
    assert networks["fabric"]["mcast"] == "239.192.1.2:4000"


@pytest.mark.parametrize(("accelerator_name", "word"), [("kvm", "host"), ("tcg", "qemu64")])
def test_accelerators_have_their_kind_of_cpu(accelerator_name: str, word: str) -> None:
    argv = qemu.argv(NODE, accelerator_name)
    assert argv[argv.index("-accel") + 1].split(",")[0] == accelerator_name
    assert argv[argv.index("-cpu") + 1] == word


def _kernel_header() -> bytes:
    """As much of a Linux kernel as QEMU looks at: boot protocol 2.12, loaded high, initrd below 2 GiB."""
    kernel = bytearray(16384)
    for offset, content in {
        0x1F1: b"\4",
        0x1FE: b"\x55\xaa",
        0x202: b"HdrS\x0c\x02",
        0x211: b"\1",
        0x22C: b"\xff" * 3 + b"\x7f",
    }.items():
        kernel[offset : offset + len(content)] = content
    return bytes(kernel)


def test_qemu_accepts_the_command_line(tmp_path: pathlib.Path) -> None:
    """QEMU builds the whole machine, without running it, and says what is on its buses."""
    if not shutil.which("qemu-system-x86_64"):
        pytest.skip("QEMU is not installed: bin/demo --vm does that")
    for disk in SLOTS:
        with (tmp_path / disk.file).open("wb") as stream:
            stream.truncate(1 << 20)
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "root.qcow2", "1M"], cwd=tmp_path, check=True)
    (tmp_path / "seed.tar").write_bytes(b"seed")
    kernel = tmp_path / "kernel"
    kernel.write_bytes(_kernel_header())
    port = socket.create_server(("127.0.0.1", 0))
    free = port.getsockname()[1]
    port.close()
    node = NODE._replace(kernel=str(kernel), initrd=str(kernel), ssh_port=free)
    with (tmp_path / "qemu.log").open("w") as log:
        process = subprocess.Popen([*qemu.argv(node, "tcg"), "-S"], cwd=tmp_path, stderr=log)
    tree = ""
    try:
        for _attempt in range(200):
            with contextlib.suppress(qmp.QmpError):
                tree = qmp.execute(tmp_path / "qmp.sock", "human-monitor-command", **{"command-line": "info qtree"})
            if tree or process.poll() is not None:
                break
            time.sleep(0.1)
        assert process.poll() is None, (tmp_path / "qemu.log").read_text()
        assert tree.count("dev: nvme,") == 8
        assert tree.count("dev: pci-testdev,") == 8
        qmp.execute(tmp_path / "qmp.sock", "quit")
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.wait()


# accelerator.py


def _fake_qemu(directory: pathlib.Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = directory / "qemu-system-x86_64"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(directory), prepend=":")


def test_the_probe_s_guest_really_starts_under_emulation() -> None:
    if not shutil.which("qemu-system-x86_64"):
        pytest.skip("QEMU is not installed: bin/demo --vm does that")
    assert accelerator.probe("tcg", 60) == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "failure"),
    [
        ("exit 33", ""),
        ("exit 0", "a guest ended with 0"),
        ("echo 'failed to set MSR 0x10a' >&2; kill -ABRT $$", "a guest ended with -6: failed to set MSR 0x10a"),
        ("exec sleep 60", "a guest hung for 1 s"),
    ],
)
def test_the_probe_says_what_went_wrong(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, body: str, failure: str
) -> None:
    _fake_qemu(tmp_path, body, monkeypatch)
    assert accelerator.probe("kvm", 1) == failure


def test_a_wish_is_not_questioned_and_a_wrong_one_refused() -> None:
    assert accelerator.choose("tcg").accelerator == "tcg"
    with pytest.raises(ValueError, match="LAB_VM_ACCEL is 'xen'"):
        accelerator.choose("xen")


def test_a_device_that_cannot_be_opened_means_emulation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert accelerator.choose() == accelerator.Choice("tcg", "/dev/kvm is missing or not ours")


@pytest.mark.parametrize(("body", "chosen"), [("exit 33", "kvm"), ("exit 1", "tcg")])
def test_kvm_is_used_only_if_a_guest_started(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, body: str, chosen: str
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: True)
    _fake_qemu(tmp_path, body, monkeypatch)
    assert accelerator.choose().accelerator == chosen


# state.py


@pytest.fixture
def lab(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> tuple[state.Paths, dict[str, t.Any]]:
    """A lab of two nodes with small disks that nothing runs; its image is empty."""
    monkeypatch.setattr(state, "DISK_BYTES", 1 << 20)
    image = tmp_path / "image"
    (image / "users").mkdir(parents=True)
    (image / "root.img").write_bytes(b"\0" * (1 << 20))
    programs = tmp_path / "programs"
    programs.mkdir()
    if not shutil.which("qemu-img"):
        (programs / "qemu-img").write_text("#!/bin/sh\n: > root.qcow2\n")
        (programs / "qemu-img").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    paths = state.Paths(tmp_path / "lab")
    return paths, state.create(paths, image, 2, "recipe")


def test_a_lab_is_described_as_a_whole(lab: tuple[state.Paths, dict[str, t.Any]]) -> None:
    paths, description = lab
    assert state.load(paths) == description
    assert list(description["nodes"]) == ["vm-1", "vm-2"]
    ports = {node["ssh_port"] for node in description["nodes"].values()}
    assert len(ports) == 2
    serials = [disk["serial"] for node in description["nodes"].values() for disk in node["disks"]]
    assert len(set(serials)) == 16
    assert (paths.key.stat().st_mode & 0o777, paths.directory.stat().st_mode & 0o777) == (0o600, 0o700)
    disk = paths.node("vm-1") / description["nodes"]["vm-1"]["disks"][0]["file"]
    assert (disk.stat().st_size, disk.stat().st_blocks) == (state.DISK_BYTES, 0)


def test_a_node_boots_the_kernel_that_was_chosen_last(lab: tuple[state.Paths, dict[str, t.Any]]) -> None:
    """Also where it reboots itself: keep.py then runs QEMU with the same words."""
    paths, description = lab
    kernels = pathlib.Path(description["image"]) / "kernels"
    (kernels / "6.1.0-9-cloud-amd64").mkdir(parents=True)
    (kernels / "default").mkdir()
    node = state.machine(description, "vm-1")

    def boots(name: str) -> list[pathlib.Path]:
        return [(paths.node(name) / file).readlink() for file in (node.kernel, node.initrd)]

    state.choose_kernel(paths, description, "vm-1", "6.1.0-9-cloud-amd64")
    assert boots("vm-1") == [kernels / "6.1.0-9-cloud-amd64" / name for name in ("vmlinuz", "initrd.img")]
    assert boots("vm-2") == [kernels / "default" / name for name in ("vmlinuz", "initrd.img")]
    with pytest.raises(state.LabError, match=r"no kernel 5\.4; there are 6\.1\.0-9-cloud-amd64, default"):
        state.choose_kernel(paths, description, "vm-1", "5.4")
    state.choose_kernel(paths, description, "vm-1")
    assert boots("vm-1") == boots("vm-2")


def test_host_keys_are_pinned_to_what_the_nodes_get(lab: tuple[state.Paths, dict[str, t.Any]]) -> None:
    paths, description = lab
    known = dict(line.split(" ", 1) for line in paths.known_hosts.read_text().splitlines())
    for node, one in description["nodes"].items():
        with tarfile.open(fileobj=io.BytesIO((paths.node(node) / "seed.tar").read_bytes())) as seed:
            public = seed.extractfile("etc/ssh/ssh_host_ed25519_key.pub")
            hosts = seed.extractfile("etc/hosts")
            assert public is not None
            assert hosts is not None
            assert public.read().decode().startswith(known[f"[127.0.0.1]:{one['ssh_port']}"])
            assert "10.77.0.2 vm-2" in hosts.read().decode()
            assert seed.getmember("etc/ssh/ssh_host_ed25519_key").mode == 0o600


def test_labs_side_by_side_differ_in_all_they_share_with_the_machine(
    lab: tuple[state.Paths, dict[str, t.Any]], tmp_path: pathlib.Path
) -> None:
    paths, one = lab
    other_paths = state.Paths(tmp_path / "other")
    other = state.create(other_paths, tmp_path / "image", 2, "recipe")
    assert one["name"] != other["name"]
    assert one["fabric"] != other["fabric"]
    assert state.machine(one, "vm-1").uuid != state.machine(other, "vm-1").uuid
    state.remove(other_paths)
    assert not other_paths.directory.exists()
    assert state.load(paths) == one


def test_a_directory_that_is_no_lab_is_left_alone(tmp_path: pathlib.Path) -> None:
    paths = state.Paths(tmp_path / "mine")
    paths.directory.mkdir()
    (paths.directory / "thesis").write_text("")
    with pytest.raises(state.LabError, match="no lab"):
        state.create(paths, tmp_path, 1, "recipe")
    assert machine.down(paths) is False
    assert (paths.directory / "thesis").exists()


def test_a_lab_whose_making_was_interrupted_can_be_removed(
    lab: tuple[state.Paths, dict[str, t.Any]], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_count: int) -> list[int]:
        raise OSError("no ports")

    monkeypatch.setattr(state, "_free_ports", fail)
    paths = state.Paths(tmp_path / "half")
    with pytest.raises(OSError, match="no ports"):
        state.create(paths, tmp_path / "image", 1, "recipe")
    assert machine.down(paths) is True
    assert not paths.directory.exists()


def test_a_replaced_disk_is_empty_and_the_old_one_gone(lab: tuple[state.Paths, dict[str, t.Any]]) -> None:
    paths, description = lab
    node = paths.node("vm-1")
    old = dict(description["nodes"]["vm-1"]["disks"][3])
    (node / old["file"]).write_bytes(b"data")
    empty = machine.checksum(paths, "vm-1", 2)
    assert machine.checksum(paths, "vm-1", 3) != empty
    (serial,) = machine.replace_disks(paths, "vm-1", [3])
    new = state.load(paths)["nodes"]["vm-1"]["disks"][3]
    assert new["serial"] == serial != old["serial"]
    assert not (node / old["file"]).exists()
    assert machine.checksum(paths, "vm-1", 3) == empty
    assert machine.replace_disks(paths, "vm-1", [3], same_serial=True) == [serial]


def test_a_checksum_tells_what_is_where_and_not_how_it_is_stored(lab: tuple[state.Paths, dict[str, t.Any]]) -> None:
    paths, description = lab
    files = [paths.node("vm-1") / disk["file"] for disk in description["nodes"]["vm-1"]["disks"]]
    empty = machine.checksum(paths, "vm-1", 7)

    def write(disk: int, **content: bytes) -> str:
        with files[disk].open("r+b") as stream:
            for offset, data in content.items():
                stream.seek(int(offset.removeprefix("at_")))
                stream.write(data)
        return machine.checksum(paths, "vm-1", disk)

    # Beside a block's border, across one, and at the disk's end.
    last = state.DISK_BYTES - 1
    told = write(0, at_65535=b"ab", at_300000=b"c", **{f"at_{last}": b"d"})
    assert told != empty
    assert write(1, at_65535=b"ab", at_300000=b"c") != told
    assert write(1, **{f"at_{last}": b"d"}) == told
    assert write(1, at_300001=b"c", at_300000=b"\0") != told
    # Zeros that were written are zeros like those of a hole.
    assert write(2, at_0=bytes(1 << 20), at_200000000=bytes(3)) == empty
    assert [machine.is_written(paths, "vm-1", disk) for disk in (0, 1, 2, 3)] == [True, True, True, False]


def test_a_pulled_disk_comes_back_with_what_it_held(lab: tuple[state.Paths, dict[str, t.Any]]) -> None:
    paths, description = lab
    file = paths.node("vm-2") / description["nodes"]["vm-2"]["disks"][0]["file"]
    file.write_bytes(b"data")
    machine.set_present(paths, "vm-2", 0, False)
    assert state.machine(state.load(paths), "vm-2").slots[0] is None
    machine.set_present(paths, "vm-2", 0, True)
    back = state.machine(state.load(paths), "vm-2").slots[0]
    assert back is not None
    assert (paths.node("vm-2") / back.file).read_bytes() == b"data"


def test_reordering_moves_every_disk_and_loses_none(lab: tuple[state.Paths, dict[str, t.Any]]) -> None:
    paths, description = lab
    before = state.machine(description, "vm-1").slots
    assert machine.reorder_disks(paths, "vm-1") == [7, 0, 1, 2, 3, 4, 5, 6]
    after = state.machine(state.load(paths), "vm-1").slots
    assert all(old != new for old, new in zip(before, after))
    assert set(before) == set(after)


def test_what_is_not_there_is_named(lab: tuple[state.Paths, dict[str, t.Any]], tmp_path: pathlib.Path) -> None:
    paths, _description = lab
    with pytest.raises(state.LabError, match="no node vm-9; there are vm-1, vm-2"):
        machine.power_off(paths, "vm-9")
    with pytest.raises(state.LabError, match="no disk 8"):
        machine.replace_disks(paths, "vm-1", [8])
    with pytest.raises(state.LabError, match="no lab in"):
        machine.checksum(state.Paths(tmp_path / "nothing"), "vm-1", 0)


# runtime.py


@contextlib.contextmanager
def _stand_in(paths: state.Paths, lab: dict[str, t.Any], node: str) -> t.Iterator[subprocess.Popen[bytes]]:
    """A process that has the node's name and answers nothing."""
    name = state.machine(lab, node).process_name
    argv = [sys.executable, "-c", "import time; time.sleep(60)", name]
    with subprocess.Popen(argv, start_new_session=True) as process:
        (paths.node(node) / "pid").write_text(f"{process.pid}\n")
        try:
            while runtime.pid(paths, lab, node) is None:
                assert process.poll() is None
                time.sleep(0.01)  # it has no arguments before it has been loaded
            yield process
        finally:
            process.kill()


def test_disks_of_a_running_node_are_left_alone(lab: tuple[state.Paths, dict[str, t.Any]]) -> None:
    paths, description = lab
    with _stand_in(paths, description, "vm-1") as process:
        assert runtime.pid(paths, description, "vm-1") == process.pid
        for change in (machine.replace_disks, machine.reorder_disks):
            with pytest.raises(state.LabError, match="vm-1 is running"):
                change(paths, "vm-1")


def test_a_process_number_that_belongs_to_something_else_does_not_count(
    lab: tuple[state.Paths, dict[str, t.Any]],
) -> None:
    paths, description = lab
    (paths.node("vm-1") / "pid").write_text(f"{os.getpid()}\n")
    assert runtime.pid(paths, description, "vm-1") is None
    machine.power_off(paths, "vm-1")  # and is not ended


def test_down_ends_what_does_not_answer_and_leaves_no_file(
    lab: tuple[state.Paths, dict[str, t.Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, description = lab
    monkeypatch.setattr(runtime, "QUIT_TIMEOUT_S", 0.2)
    with _stand_in(paths, description, "vm-1") as process, machine.only_one(paths):
        assert machine.down(paths) is True
        assert process.wait() == -9
        assert machine.down(paths) is False
    assert sorted(path.name for path in paths.directory.parent.iterdir()) == ["image", "programs"]


# qmp.py


@pytest.mark.slow
@pytest.mark.parametrize(
    ("endings", "statuses", "starts", "status"),
    [
        (["reboot: Restarting system", "reboot: Power down"], [0, 0], 2, 0),
        (["sysrq: Resetting", "Kernel panic, and QEMU is told to quit"], [0, 0], 2, 0),
        (["reboot: Restarting system", ""], [0, 1], 2, 1),
        (["reboot: Restarting system"], [139], 1, -11),
        # One that does not answer, and does after the next start; or does not.
        (["Loading initial ramdisk", "reboot: Power down"], ["stuck", 0], 2, 0),
        (["reboot: Restarting system", "Loading", "reboot: Restarting system", "Loading", "reboot: Power down"],
         [0, "stuck", 0, "stuck", 0], 5, 0),
        (["Loading", "Loading"], ["stuck", "stuck"], 2, 1),
        # One that runs for longer than that, and does answer.
        (["Power down"], ["runs"], 1, 0),
    ],
)  # fmt: skip
def test_a_guest_that_rebooted_or_got_stuck_gets_a_new_qemu(
    tmp_path: pathlib.Path, endings: list[str], statuses: list[int | str], starts: int, status: int
) -> None:
    """Not one that was switched off, told to quit, or whose QEMU failed or crashed."""
    stand_in = tmp_path / "qemu"
    stand_in.write_text(
        f"#!{sys.executable}\n"
        "import os, pathlib, signal, socket, sys, time\n"
        "count = pathlib.Path('starts')\n"
        "number = int(count.read_text()) if count.exists() else 0\n"
        "count.write_text(str(number + 1))\n"
        f"ending = {endings!r}[number]\n"
        "if ending:\n"
        "    pathlib.Path('console.log').write_text(ending)\n"
        f"status = {statuses!r}[number]\n"
        "if status == 'stuck':\n"
        "    time.sleep(60)\n"
        "if status == 'runs':\n"
        "    sshd = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
        "    sshd.accept()[0].sendall(b'SSH-2.0-lab')\n"
        "    time.sleep(3)\n"
        "    status = 0\n"
        "os.kill(os.getpid(), signal.SIGSEGV) if status == 139 else os._exit(status)\n"
    )
    stand_in.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    argv = [sys.executable, keep.__file__, port, "4", stand_in, port]
    done = subprocess.run(argv, cwd=tmp_path, check=False, timeout=60, capture_output=True, text=True)
    assert (int((tmp_path / "starts").read_text()), done.returncode) == (starts, status % 256)
    stuck = statuses.count("stuck")
    assert done.stderr.count("did not answer within 4 s") == stuck
    if stuck:
        assert (tmp_path / "console-stuck.log").read_text() in endings


def test_qmp_answers_events_and_refusals(tmp_path: pathlib.Path) -> None:
    directory = tmp_path / ("long" * 40)
    directory.mkdir()
    here = os.open(directory, os.O_RDONLY)
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"/proc/self/fd/{here}/qmp.sock")
    server.listen()
    asked = []

    def serve(answers: list[dict[str, t.Any]]) -> None:
        connection, _address = server.accept()
        with connection, connection.makefile("rw") as stream:
            for greeting in ({"QMP": {}},):
                stream.write(json.dumps(greeting) + "\n")
                stream.flush()
            for answer in ({"return": {}}, *answers):
                if "event" not in answer:
                    asked.append(json.loads(stream.readline())["execute"])
                stream.write(json.dumps(answer) + "\n")
                stream.flush()

    def ask(*answers: dict[str, t.Any]) -> t.Any:
        thread = threading.Thread(target=serve, args=(list(answers),))
        thread.start()
        try:
            return qmp.execute(directory / "qmp.sock", "query-status")
        finally:
            thread.join()

    try:
        assert ask({"return": {"running": True}}) == {"running": True}
        assert asked == ["qmp_capabilities", "query-status"]
        with pytest.raises(qmp.QmpError, match="refuses query-status: not now"):
            ask({"error": {"desc": "not now"}})
    finally:
        server.close()
        os.close(here)
    with pytest.raises(qmp.QmpError, match="does not answer"):
        qmp.execute(directory / "nothing.sock", "quit")


# inventories/vm


def _inventory() -> t.Any:
    path = ROOT / "inventories" / "vm" / "machines.py"
    spec = importlib.util.spec_from_file_location("vm_machines", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_inventory_names_port_key_and_gpus(lab: tuple[state.Paths, dict[str, t.Any]]) -> None:
    _paths, description = lab
    made = _inventory().inventory(description)
    assert made["gpu_nodes"]["hosts"] == ["vm-1", "vm-2"]
    host = made["_meta"]["hostvars"]["vm-2"]
    assert host["ansible_port"] == description["nodes"]["vm-2"]["ssh_port"]
    assert "StrictHostKeyChecking=yes" in host["ansible_ssh_common_args"]
    assert host["lab_gpus"] == qemu.gpus()


def test_the_inventory_has_only_the_node_that_is_named(
    lab: tuple[state.Paths, dict[str, t.Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _paths, description = lab
    monkeypatch.setenv("LAB_VM_NODE", "vm-2")
    made = _inventory().inventory(description)
    assert (made["gpu_nodes"]["hosts"], list(made["_meta"]["hostvars"])) == (["vm-2"], ["vm-2"])
    monkeypatch.setenv("LAB_VM_NODE", "vm-9")
    with pytest.raises(SystemExit, match="no node vm-9; there are vm-1, vm-2"):
        _inventory().inventory(description)


def test_a_lab_that_is_down_has_an_empty_inventory(tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "inventories" / "vm" / "machines.py"],
        env={**os.environ, "LAB_VM_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == {"gpu_nodes": {"hosts": []}, "_meta": {"hostvars": {}}}
    assert "bin/demo --vm" in done.stderr


def test_what_the_inventory_and_the_profile_say_is_what_qemu_makes() -> None:
    variables = yaml.safe_load((ROOT / "inventories/vm/group_vars/all/lab.yml").read_text())
    assert variables["lab_fabric_netdev"] == qemu.fabric_netdev()
    profile = yaml.safe_load((ROOT / "tests/lab/vm/profiles/lab_vm.yml").read_text())
    assert profile["gpus"]["bus_ids"] == [gpu["bus_id"] for gpu in qemu.gpus()]
    numa = {gpu: node["id"] for node in profile["numa"]["nodes"] for gpu in node["gpus"]}
    assert [numa[gpu] for gpu in range(8)] == [gpu["numa"] for gpu in qemu.gpus()]
    assert profile["nvme"]["count"] == qemu.DISKS
