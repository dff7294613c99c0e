# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a node's QEMU in the node's directory, and runs it again whenever the guest rebooted.

QEMU 7.2 with emulated CPUs crashes now and then when the guest resets it: 2 of about 30 reboots ended in a segmentation fault.
So a reset ends QEMU (``-action reboot=shutdown``) and a new one takes its place. And once in many boots an emulated guest never
answers: one that sshd does not speak for in time is started once more, as an operator would do it, and qemu.log tells.

    python keep.py SSH_PORT STUCK_BOOT_S qemu-system-x86_64 ARGUMENT...
"""

from __future__ import annotations

import contextlib
import pathlib
import socket
import subprocess
import sys
import time

CONSOLE = pathlib.Path("console.log")
# The console of a guest that did not answer, for whoever wants to know why.
STUCK = pathlib.Path("console-stuck.log")
# What Linux says last (kernel/reboot.c, drivers/tty/sysrq.c); QEMU's exit status is the same for both ways down.
_REBOOTS = (b"reboot: Restarting system", b"sysrq: Resetting")
_TAIL_BYTES = 4096
_LOOK_S = 2.0
_QUIT_S = 20.0
_GREETING_S = 30.0


def greets(port: int) -> bool:
    """Whether sshd says its name. QEMU itself accepts connections long before.

    A guest that is still starting may need many seconds for its answer, and to give up and ask again makes it start over.
    """
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=_GREETING_S) as connection:
        return connection.recv(4) == b"SSH-"
    return False


def rebooted() -> bool:
    """Whether the guest that has just ended wants to come back."""
    try:
        tail = CONSOLE.read_bytes()[-_TAIL_BYTES:]
    except FileNotFoundError:
        return False
    return any(words in tail for words in _REBOOTS)


def run(argv: list[str], port: int, stuck_boot_s: float) -> int | None:
    """Run QEMU until it ends, and return its exit status; None where it was ended because the guest never answered."""
    CONSOLE.unlink(missing_ok=True)
    process = subprocess.Popen(argv)
    deadline = time.monotonic() + stuck_boot_s
    while time.monotonic() < deadline:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(min(_LOOK_S, stuck_boot_s))
        if greets(port):
            return process.wait()
    # On SIGTERM QEMU writes out what it holds of the disks.
    process.terminate()
    try:
        process.wait(_QUIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return None


def main(argv: list[str]) -> int:
    port, stuck_boot_s, words = int(argv[0]), float(argv[1]), argv[2:]
    again = True
    while True:
        status = run(words, port, stuck_boot_s)
        if status is None:
            if CONSOLE.exists():
                CONSOLE.replace(STUCK)
            said = f"The guest did not answer within {stuck_boot_s:.0f} s of its start; its console is in {STUCK}"
            print(f"{said}; {'starting it again' if again else 'giving up'}", file=sys.stderr, flush=True)
            if not again:
                return 1
            again = False
        elif status or not rebooted():
            return status
        else:
            again = True


__all__ = ["greets", "rebooted", "run"]

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
