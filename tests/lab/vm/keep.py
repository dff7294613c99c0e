# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a node's QEMU in the node's directory, and runs it again whenever the guest rebooted.

QEMU 7.2 with emulated CPUs crashes now and then when the guest resets it: 2 of about 30 reboots ended in a segmentation fault.
So a reset ends QEMU (``-action reboot=shutdown``) and a new one takes its place.

    python keep.py qemu-system-x86_64 ARGUMENT...
"""

from __future__ import annotations

import pathlib
import subprocess
import sys

# What Linux says last (kernel/reboot.c, drivers/tty/sysrq.c); QEMU's exit status is the same for both ways down.
_REBOOTS = (b"reboot: Restarting system", b"sysrq: Resetting")
_TAIL_BYTES = 4096


def rebooted(console: pathlib.Path) -> bool:
    """Whether the guest that has just ended wants to come back."""
    try:
        text = console.read_bytes()[-_TAIL_BYTES:]
    except FileNotFoundError:
        return False
    return any(words in text for words in _REBOOTS)


def main(argv: list[str]) -> int:
    console = pathlib.Path("console.log")
    while True:
        console.unlink(missing_ok=True)
        status = subprocess.run(argv, check=False).returncode
        if status or not rebooted(console):
            return status


__all__ = ["rebooted"]

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
