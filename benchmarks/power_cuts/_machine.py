# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine of the VM lab's image whose drives forget: smaller than the lab's nodes, with ten disks that have a volatile cache.

Each disk is a medium (a raw, sparse file), above it a layer for one session (between two power cuts), and QEMU's log of what the guest
wrote in it. A cut kills QEMU, throws the layer away, and brings to the medium what survives. So does the system's own disk.

The disks are virtio, not NVMe: QEMU's NVMe ignores that a write is to bypass the cache (FUA), on which XFS' log relies, and would lose
what the guest was told is safe. A guest flushes a virtio disk instead.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import random
import signal
import subprocess
import time
import typing as t

import _guest
from _volatile_cache import entries, replay, surviving
from conftest import VmLab
from lab.vm import accelerator, qemu, runtime, state
from lab.vm.qmp import QmpError, execute

ROOT = pathlib.Path(__file__).resolve().parents[2]
#: Foreign disks, by serial number: an ext4 with files, and data that nothing tells of but itself.
FOREIGN = ("THEIRSEXT4", "THEIRSRAW")
_MEMORY_MIB = 1024
_ROOT_DISK = "root"
_START_S = 60.0
_CHUNK = 1 << 20


class LabOfCuts(VmLab):
    """The VM lab as tests know it, brought up in a directory of its own with machines of another kind."""

    @classmethod
    def bring_up(cls, machines: int) -> LabOfCuts:
        """A new lab, whose machines are off."""
        paths = state.Paths.here()
        if paths.machines.exists():
            raise state.LabError(f"There is a lab in {paths.directory}. Take it down: tests/lab/vm/machine.py down.")
        built = subprocess.run([ROOT / "tests/lab/vm/build"], check=True, stdout=subprocess.PIPE, text=True)
        lab = state.create(paths, pathlib.Path(built.stdout.strip()), machines, "power-cuts")
        lab["accelerator"] = accelerator.choose(os.environ.get("LAB_VM_ACCEL", "")).accelerator
        state.save(paths, lab)
        return cls()


class Machine:
    """One machine with its power switch."""

    def __init__(self, lab: LabOfCuts, node: str) -> None:
        self.lab, self.node = lab, node
        self.directory = lab.paths.node(node)
        self.members = [lab.serial(node, disk) for disk in range(qemu.DISKS)]
        self._process: subprocess.Popen[bytes] | None = None
        self._media = {
            _ROOT_DISK: self.directory / "root.img",
            **dict(zip(self.members, (self.directory / disk["file"] for disk in lab.lab["nodes"][node]["disks"]))),
            **{serial: self.directory / f"{serial}.img" for serial in FOREIGN},
        }
        self._make_media()
        self.foreign_sums = {serial: self._sum(serial) for serial in FOREIGN}

    # -- media -----------------------------------------------------------------------------------------------------

    def _make_media(self) -> None:
        image = self.lab.lab["image"]
        subprocess.run(["cp", "--sparse=always", f"{image}/root.img", self._media[_ROOT_DISK]], check=True)
        files = self.directory / "theirs"
        files.mkdir()
        rng = random.Random(self.node)
        for number in range(8):
            (files / str(number)).write_bytes(rng.randbytes(200_000))
        for serial in FOREIGN:
            with self._media[serial].open("xb") as stream:
                stream.truncate(state.DISK_BYTES)
        subprocess.run(["mke2fs", "-q", "-t", "ext4", "-L", "theirs", "-d", files, self._media[FOREIGN[0]]], check=True)
        with self._media[FOREIGN[1]].open("r+b") as stream:
            stream.seek(200 << 20)
            stream.write(rng.randbytes(20 << 20))

    def _sum(self, serial: str) -> str:
        digest = hashlib.sha256()
        with self._media[serial].open("rb") as stream:
            for offset in range(0, state.DISK_BYTES, _CHUNK):
                chunk = stream.read(_CHUNK)
                if chunk.strip(b"\0"):
                    digest.update(offset.to_bytes(8, "big") + chunk)
        return digest.hexdigest()

    def keep(self, folder: pathlib.Path) -> None:
        """A copy of all media but the system's, for whoever wants to know what a cut left."""
        folder.mkdir(parents=True, exist_ok=True)
        for serial, medium in self._media.items():
            if serial != _ROOT_DISK:
                subprocess.run(["cp", "--sparse=always", medium, folder / f"{serial}.img"], check=True)

    def empty_members(self) -> None:
        """All zeros; the machine is off."""
        for serial in self.members:
            os.truncate(self._media[serial], 0)
            os.truncate(self._media[serial], state.DISK_BYTES)

    def keep_system(self) -> None:
        """The system's disk as it is now, for ``restore_system``; the machine is off."""
        subprocess.run(["cp", "--sparse=always", self._media[_ROOT_DISK], self.directory / "root.kept"], check=True)

    def restore_system(self) -> None:
        subprocess.run(["cp", "--sparse=always", self.directory / "root.kept", self._media[_ROOT_DISK]], check=True)

    def _log(self, serial: str) -> pathlib.Path:
        return self.directory / f"{serial}.log"

    def said(self, serial: str) -> int:
        """How often a disk was told to change something since the power came on. The guest has to be asked to flush before."""
        with self._log(serial).open("rb") as log:
            return sum(entry.kind != "flush" for entry in entries(log))

    def changed_foreign(self) -> list[str]:
        """Foreign disks whose medium is not what it was; the machine is off."""
        return [serial for serial in FOREIGN if self._sum(serial) != self.foreign_sums[serial]]

    # -- power -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Switch on; returns when QEMU runs."""
        for serial, medium in self._media.items():
            self._log(serial).write_bytes(b"")
            layer = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(medium), f"{serial}.session"]
            subprocess.run(layer, cwd=self.directory, check=True)
        for name in ("console.log", "qmp.sock"):
            (self.directory / name).unlink(missing_ok=True)
        self.console.touch()
        with (self.directory / "qemu.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._argv(),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (self.directory / "pid").write_text(f"{self._process.pid}\n")
        # Before that, not even its command line tells that it runs.
        until = time.monotonic() + _START_S
        while self._process.poll() is None and time.monotonic() < until:
            with contextlib.suppress(QmpError):
                execute(self.directory / "qmp.sock", "query-status")
                return
            time.sleep(0.05)
        log_text = (self.directory / "qemu.log").read_text(errors="replace")
        raise state.LabError(f"{self.node}: QEMU does not start ({self._process.poll()}): {log_text[-2000:]}")

    def boot(self) -> float:
        """Switch on and wait until all units have started; returns the seconds that it took. A guest that hangs is started again."""
        started = time.monotonic()
        for _attempt in range(2):
            self.start()
            failure = self._failure()
            if not failure:
                return time.monotonic() - started
            self.cut("none", random.Random(0))
        raise state.LabError(f"{self.node} does not boot: {failure}")

    def _failure(self) -> str:
        """Wait until a machine that was switched on has booted; returns why it does not."""
        try:
            runtime.wait(self.lab.paths, self.lab.lab, self.node, runtime.STUCK_BOOT_S)
        except state.LabError as exc:
            ended = self._process.poll() if self._process else None
            return f"{exc} (QEMU's exit status: {ended}). {runtime.last_words(self.lab.paths, self.lab.lab, self.node)}"
        return ""

    def cut(self, loss: str, rng: random.Random) -> None:
        """Cut the power now. What was not flushed is lost as ``loss`` says; then the media are what a next boot finds."""
        process, self._process = self._process, None
        if process is None:
            return
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.lab.forget(self.node)
        (self.directory / "pid").unlink(missing_ok=True)
        for serial, medium in self._media.items():
            with self._log(serial).open("rb") as log, medium.open("r+b") as stream:
                replay(log, surviving(entries(log), loss, rng), stream)
            (self.directory / f"{serial}.session").unlink()

    def off(self) -> None:
        """Switch off with nothing lost."""
        if self._process is not None:
            self.lab.run(self.node, "sync")
            self.cut("none", random.Random(0))

    # -- what it tells ---------------------------------------------------------------------------------------------

    @property
    def console(self) -> pathlib.Path:
        return self.directory / "console.log"

    def told(self) -> list[str]:
        """The steps that the guest told of since the power came on, such as ``mkfs begin``."""
        text = self.console.read_text(errors="replace")
        return [line.partition(_guest.TOLD)[2].strip() for line in text.splitlines() if _guest.TOLD in line]

    def python(self, code: str, *words: str) -> str:
        return self.lab.run(self.node, "python3", "-c", code, *words)

    def look(self) -> dict[str, t.Any]:
        return dict(json.loads(self.python(_guest.LOOK, _guest.POINT, _guest.UNIT, _guest.MARK)))

    # -- QEMU ------------------------------------------------------------------------------------------------------

    def _argv(self) -> list[str]:
        lab = self.lab.lab
        node = state.machine(lab, self.node)
        clock = [qemu.EMULATED_CLOCK] if lab["accelerator"] == "tcg" else []
        words = [
            *("qemu-system-x86_64", "-name", node.process_name, "-machine", "q35", "-no-user-config", "-nodefaults"),
            *("-display", "none", *qemu.accelerator_argv(lab["accelerator"])),
            *("-m", str(_MEMORY_MIB), "-smp", "2"),
            *("-serial", "file:console.log", "-qmp", "unix:qmp.sock,server=on,wait=off"),
            *("-kernel", node.kernel, "-initrd", node.initrd),
            *("-append", " ".join([*qemu.COMMAND_LINE, *clock, f"systemd.hostname={node.name}"])),
            *("-fw_cfg", "name=opt/lab/seed,file=seed.tar", "-device", "virtio-rng-pci"),
            *("-netdev", f"user,id=management,hostfwd=tcp:127.0.0.1:{node.ssh_port}-:22"),
            *("-device", f"virtio-net-pci,netdev=management,mac={qemu.management_mac(node.number)},romfile="),
        ]
        for number, serial in enumerate(self._media):
            words += _disk_argv(serial, 16 + number)
        return words


def _disk_argv(serial: str, slot: int) -> list[str]:
    # Only what the guest asks for is waited for: none of the files outlives a cut by itself.
    quick = {"cache": {"direct": False, "no-flush": True}}
    node = {
        "driver": "blklogwrites",
        "node-name": f"disk-{serial}",
        "cache": {"direct": False, "no-flush": False},
        "discard": "unmap",
        "file": {
            "driver": "qcow2",
            "discard": "unmap",
            **quick,
            "file": {"driver": "file", "filename": f"{serial}.session", "discard": "unmap", **quick},
        },
        "log": {"driver": "raw", **quick, "file": {"driver": "file", "filename": f"{serial}.log", **quick}},
    }
    # What the log could not take: see _volatile_cache.
    simple = "write-zeroes=off,request-merging=off"
    device = f"virtio-blk-pci,drive=disk-{serial},serial={serial},addr={slot:#x},write-cache=on,{simple}"
    return ["-blockdev", json.dumps(node), "-device", device]


__all__ = ["FOREIGN", "ROOT", "LabOfCuts", "Machine"]
