# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Can this machine run a guest with KVM? Only starting one tells: /dev/kvm may be there and every guest abort or hang."""

from __future__ import annotations

import os
import pathlib
import subprocess
import tempfile
import typing as t

from .qemu import accelerator_argv

# A boot sector that tells QEMU's exit device 0x10; QEMU then ends with (0x10 << 1) | 1. Nothing else ends so.
#   mov al, 0x10 / out 0xf4, al / hlt / jmp to the hlt
BOOT_SECTOR = b"\xb0\x10\xe6\xf4\xf4\xeb\xfd".ljust(510, b"\x00") + b"\x55\xaa"
STARTED = 33


class Choice(t.NamedTuple):
    """``accelerator`` is ``kvm`` or ``tcg``; ``reason`` says why."""

    accelerator: str
    reason: str


def choose(wanted: str = "", timeout_s: float = 20) -> Choice:
    """The accelerator for this machine; ``wanted`` (``kvm`` or ``tcg``) leaves no choice."""
    if wanted:
        if wanted not in {"kvm", "tcg"}:
            raise ValueError(
                f"LAB_VM_ACCEL is {wanted!r}; it must be kvm or tcg, or unset for the better one that works"
            )
        return Choice(wanted, "asked for with LAB_VM_ACCEL")
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return Choice("tcg", "/dev/kvm is missing or not ours")
    failure = probe("kvm", timeout_s)
    return Choice("tcg", f"/dev/kvm is there, but {failure}") if failure else Choice("kvm", "a guest started")


def probe(accelerator: str, timeout_s: float) -> str:
    """Start a guest that ends itself at once. Returns what went wrong, or nothing."""
    with tempfile.TemporaryDirectory(prefix="lab-vm-probe.") as directory:
        pathlib.Path(directory, "boot.img").write_bytes(BOOT_SECTOR.ljust(1440 * 1024, b"\x00"))
        try:
            done = subprocess.run(
                probe_argv(accelerator),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"a guest hung for {timeout_s:.0f} s"
    if done.returncode == STARTED:
        return ""
    lines = done.stderr.strip().splitlines()
    return f"a guest ended with {done.returncode}" + (f": {lines[0]}" if lines else "")


def probe_argv(accelerator: str) -> list[str]:
    """A guest with a node's kind of CPUs and nothing but a boot sector."""
    return [
        *("qemu-system-x86_64", "-machine", "pc", "-m", "32", "-smp", "2", "-no-user-config", "-nodefaults"),
        *("-display", "none", "-no-reboot", *accelerator_argv(accelerator)),
        *("-drive", "if=floppy,file=boot.img,format=raw", "-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"),
    ]


__all__ = ["Choice", "choose", "probe", "probe_argv"]
