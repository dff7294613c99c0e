#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The VM lab: two virtual machines with four NUMA nodes, eight NVMe disks and a RoCE-capable fabric each.

Needs no root but to install packages. LAB_VM_DIR keeps a second lab elsewhere, LAB_VM_NODES says how many machines there
are (default 2), LAB_VM_ACCEL=kvm or tcg leaves no choice between hardware virtualization and emulation.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import typing as t

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from lab.vm import accelerator, qemu, runtime, state
from lab.vm.state import LabError, Paths

HERE = pathlib.Path(__file__).resolve().parent
_BLOCK_BYTES = 64 << 10
PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "ssh-keygen": "openssh-client",
}


def up(paths: Paths, nodes: int) -> bool:
    """Bring the lab up, or what is missing of it. Returns whether there was anything to do."""
    started = time.monotonic()
    missing = [package for program, package in PROGRAMS.items() if not _find(program)]
    if missing:
        raise LabError(f"Programs are missing: apt-get install --no-install-recommends {' '.join(missing)}")
    if not 1 <= nodes <= 16:
        raise LabError(f"LAB_VM_NODES is {nodes}; it must be 1 to 16")
    image = _image()
    recipe = f"{image.name}-{state.layout()}-{nodes}"
    lab = state.load(paths)
    if lab and lab["recipe"] != recipe:
        print("The lab that is there was made from something else: making it anew", flush=True)
        down(paths)
        lab = {}
    if not lab:
        lab = state.create(paths, image, nodes, recipe)
    stopped = [node for node in lab["nodes"] if runtime.pid(paths, lab, node) is None]
    if stopped:
        if not lab["accelerator"]:
            choice = accelerator.choose(os.environ.get("LAB_VM_ACCEL", ""))
            lab["accelerator"] = choice.accelerator
            print(f"{'KVM' if choice.accelerator == 'kvm' else 'Emulation'}: {choice.reason}", flush=True)
            state.save(paths, lab)
        try:
            _boot(paths, lab, stopped)
        except LabError:
            if lab["accelerator"] != "kvm" or os.environ.get("LAB_VM_ACCEL"):
                raise
            print("The nodes do not boot with KVM, trying emulation", flush=True)
            for node in stopped:
                runtime.power_off(paths, lab, node)
            lab["accelerator"] = "tcg"
            state.save(paths, lab)
            _boot(paths, lab, stopped)
        print(f"The lab is up after {time.monotonic() - started:.0f} s", flush=True)
    return bool(stopped)


def down(paths: Paths) -> bool:
    """Take the lab down. Returns whether there was one."""
    lab = state.load(paths)
    for node in lab.get("nodes", {}):
        runtime.power_off(paths, lab, node)
    state.remove(paths)
    return bool(lab)


def status(paths: Paths) -> dict[str, t.Any]:
    """What there is, with what is true of it right now."""
    lab = state.load(paths)
    for node, description in lab.get("nodes", {}).items():
        description["pid"] = runtime.pid(paths, lab, node)
    return lab


def power_on(paths: Paths, node: str) -> None:
    lab = _lab(paths, node)
    if runtime.pid(paths, lab, node) is None:
        _boot(paths, lab, [node])


def power_off(paths: Paths, node: str, clean: bool = False) -> None:
    runtime.power_off(paths, _lab(paths, node), node, clean)


def replace_disks(paths: Paths, node: str, disks: t.Sequence[int] = (), same_serial: bool = False) -> list[str]:
    """Put new, empty disks into a node that is off. Returns their serial numbers."""
    lab = _switched_off(paths, node)
    chosen = list(disks) or list(range(qemu.DISKS))
    for disk in chosen:
        state.replace_disk(paths, lab, node, _index(disk), same_serial)
    state.save(paths, lab)
    return [lab["nodes"][node]["disks"][disk]["serial"] for disk in chosen]


def set_present(paths: Paths, node: str, disk: int, present: bool) -> None:
    """Pull a disk out of a node that is off, or put it back with what it held."""
    lab = _switched_off(paths, node)
    lab["nodes"][node]["disks"][_index(disk)]["present"] = present
    state.save(paths, lab)


def reorder_disks(paths: Paths, node: str) -> list[int]:
    """Move every disk one slot further in a node that is off. Returns which disk is in which slot."""
    lab = _switched_off(paths, node)
    slots = lab["nodes"][node]["slots"]
    lab["nodes"][node]["slots"] = slots[-1:] + slots[:-1]
    state.save(paths, lab)
    return t.cast("list[int]", lab["nodes"][node]["slots"])


def checksum(paths: Paths, node: str, disk: int) -> str:
    """SHA-256 of what is on a disk and where, as far as the guest has written it out. Zeros count for nothing, so holes are quick."""
    file = _lab(paths, node)["nodes"][node]["disks"][_index(disk)]["file"]
    digest = hashlib.sha256()
    with (paths.node(node) / file).open("rb") as stream:
        for offset in _allocated(stream.fileno()):
            block = os.pread(stream.fileno(), _BLOCK_BYTES, offset)
            if block.strip(b"\0"):
                digest.update(offset.to_bytes(8, "big") + block.ljust(_BLOCK_BYTES, b"\0"))
    return digest.hexdigest()


def is_written(paths: Paths, node: str, disk: int) -> bool:
    """Whether anything but a hole is on a disk, as far as the guest has written it out. Zeros that were written count, too."""
    file = _lab(paths, node)["nodes"][node]["disks"][_index(disk)]["file"]
    with (paths.node(node) / file).open("rb") as stream:
        return next(_allocated(stream.fileno()), None) is not None


def _allocated(file: int) -> t.Iterator[int]:
    """The offsets of a file's blocks that are not in holes."""
    end = 0
    while True:
        try:
            data = os.lseek(file, end, os.SEEK_DATA)
        except OSError as exc:
            if exc.errno == errno.ENXIO:  # nothing but a hole follows
                return
            raise
        end = os.lseek(file, data, os.SEEK_HOLE)
        yield from range(data - data % _BLOCK_BYTES, end, _BLOCK_BYTES)
        end += -end % _BLOCK_BYTES


@contextlib.contextmanager
def only_one(paths: Paths) -> t.Iterator[None]:
    """One command at a time changes a lab."""
    lock = paths.directory.with_name(paths.directory.name + ".lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        try:
            yield
        finally:
            if not paths.directory.exists():
                lock.unlink(missing_ok=True)


def _boot(paths: Paths, lab: dict[str, t.Any], nodes: t.Sequence[str]) -> None:
    def one(node: str) -> float:
        started = time.monotonic()
        runtime.power_on(paths, lab, node)
        runtime.wait(paths, lab, node)
        return time.monotonic() - started

    with concurrent.futures.ThreadPoolExecutor(len(nodes)) as pool:
        for node, seconds in zip(nodes, pool.map(one, nodes)):
            lab["nodes"][node]["boot_s"] = round(seconds, 1)
            print(f"{node} booted in {seconds:.0f} s", flush=True)
    state.save(paths, lab)


def _image() -> pathlib.Path:
    name = subprocess.run([HERE / "build", "--name"], check=True, capture_output=True, text=True).stdout.strip()
    image = pathlib.Path(name)
    if not image.is_dir():
        print("Making the nodes' image", flush=True)
        if subprocess.run([HERE / "build"], stdout=subprocess.DEVNULL, check=False).returncode:
            raise LabError("The nodes' image could not be made; what tests/lab/vm/build said is above")
    return image


def _lab(paths: Paths, node: str) -> dict[str, t.Any]:
    lab = state.load(paths)
    if not lab:
        raise LabError(f"There is no lab in {paths.directory}. Bring it up with bin/demo --vm.")
    if node not in lab["nodes"]:
        raise LabError(f"There is no node {node}; there are {', '.join(lab['nodes'])}")
    return lab


def _switched_off(paths: Paths, node: str) -> dict[str, t.Any]:
    lab = _lab(paths, node)
    if runtime.pid(paths, lab, node) is not None:
        raise LabError(f"{node} is running; disks are changed while it is off: machine.py power-off {node}")
    return lab


def _index(disk: int) -> int:
    if not 0 <= disk < qemu.DISKS:
        raise LabError(f"There is no disk {disk}; they are numbered 0 to {qemu.DISKS - 1}")
    return disk


def _find(program: str) -> str | None:
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="machine.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("up", help="bring the lab up, or what is missing of it").add_argument(
        "--nodes", type=int, default=int(os.environ.get("LAB_VM_NODES") or 2)
    )
    commands.add_parser("down", help="take the lab down and remove its files; the image stays")
    commands.add_parser("status", help="print the lab's description as JSON")
    commands.add_parser("ssh", help="run a command on a node").add_argument("node")
    commands.choices["ssh"].add_argument("argv", nargs=argparse.REMAINDER, metavar="WORD")
    for name, text in {
        "power-on": "start a node and wait until it has booted",
        "power-off": "cut a node's power",
        "replace-disks": "put new, empty disks into a node that is off (all of them unless --disk)",
        "remove-disk": "pull a disk out of a node that is off",
        "insert-disk": "put a disk that was pulled out back, with what it held",
        "reorder-disks": "move every disk of a node that is off one slot further",
        "checksum": "print the SHA-256 of a disk's content, zeros left out",
    }.items():
        commands.add_parser(name, help=text).add_argument("node")
    commands.choices["power-off"].add_argument("--clean", action="store_true", help="press the power button instead")
    commands.choices["replace-disks"].add_argument("--disk", type=int, action="append", default=[], metavar="N")
    commands.choices["replace-disks"].add_argument("--same-serial", action="store_true", help="keep the serial numbers")
    for name in ("remove-disk", "insert-disk", "checksum"):
        commands.choices[name].add_argument("disk", type=int, metavar="N")
    return parser


def _run(options: argparse.Namespace, paths: Paths) -> int:
    command = options.command
    if command == "status":
        print(json.dumps(status(paths), indent=1))
    elif command == "checksum":
        print(checksum(paths, options.node, options.disk))
    elif command == "ssh":
        os.execvp("ssh", runtime.ssh_argv(paths, _lab(paths, options.node), options.node, *options.argv))
    else:
        with only_one(paths):
            if command == "up":
                print("changed" if up(paths, options.nodes) else "ok")
            elif command == "down":
                print("changed" if down(paths) else "ok")
            elif command == "power-on":
                power_on(paths, options.node)
            elif command == "power-off":
                power_off(paths, options.node, options.clean)
            elif command == "replace-disks":
                print(*replace_disks(paths, options.node, options.disk, options.same_serial), sep="\n")
            elif command == "reorder-disks":
                print(*reorder_disks(paths, options.node))
            else:
                set_present(paths, options.node, options.disk, command == "insert-disk")
    return 0


def main(argv: t.Sequence[str]) -> int:
    try:
        return _run(_parser().parse_args(argv), Paths.here())
    except (LabError, ValueError) as exc:
        print(f"machine.py: {exc}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

__all__ = [
    "checksum",
    "down",
    "is_written",
    "only_one",
    "power_off",
    "power_on",
    "reorder_disks",
    "replace_disks",
    "set_present",
    "status",
    "up",
]
