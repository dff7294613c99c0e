#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Set the faults of this node's double of BeeOND; without an option, the node is well again. See README.md beside this file."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, "/opt/beegfs/double")

SERVICES = ("beegfs-mgmtd", "beegfs-meta", "beegfs-storage", "beegfs-helperd")
STEPS = (*SERVICES, "mount", "umount", "rebuild", "stoplocal")


def occupy(port: int) -> None:
    """A process of its own listens at the port until it is killed; its number is printed."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    import settings

    listener.bind((settings.load()["address"], port))
    listener.listen()
    child = os.fork()
    if child:
        print(child)
        return
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    while True:
        time.sleep(3600)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hang", nargs="+", choices=STEPS, default=[], help="these do not come back")
    parser.add_argument(
        "--refuse", nargs="+", choices=SERVICES, default=[], help="these fail at once, with exit code 3"
    )
    parser.add_argument(
        "--dead", nargs="+", choices=SERVICES, default=[], help="these detach, then are gone without a word"
    )
    parser.add_argument("--dies-after", nargs=2, action="append", default=[], metavar=("SERVICE", "SECONDS"))
    parser.add_argument(
        "--stuck", nargs="+", choices=SERVICES, default=[], help="these ignore SIGTERM (when started from now on)"
    )
    parser.add_argument(
        "--not-good", nargs="+", choices=SERVICES, default=[], help="these do not report to the management service"
    )
    parser.add_argument("--unmount-fails", action="store_true")
    parser.add_argument("--partial-stop", action="store_true", help="stopping ends after the unmount, with 255")
    parser.add_argument("--module", choices=("loadable", "buildable", "missing"), default="loadable")
    parser.add_argument("--offline-timeout", type=float, default=180, metavar="SECONDS")
    parser.add_argument("--leftover", metavar="STATUSFILE", help="leave a status file of a session that is gone")
    parser.add_argument("--occupy", type=int, metavar="PORT", help="listen at this port; prints the process's number")
    given = parser.parse_args()
    import settings

    values = settings.load()
    for name in ("hang", "refuse", "dead", "stuck", "not_good", "unmount_fails", "partial_stop", "module"):
        values[name] = getattr(given, name)
    values["dies_after_s"] = {name: float(seconds) for name, seconds in given.dies_after}
    values["offline_timeout_s"] = given.offline_timeout
    settings.store(values)
    if given.leftover:
        row = (
            f"{settings.host()},beegfs-storage,/data/beegfs-storage,/var/log/old.log,/var/run/beegfs-storage-old.pid\n"
        )
        Path(given.leftover).write_text(row, encoding="utf-8")
    if given.occupy:
        occupy(given.occupy)
    return 0


if __name__ == "__main__":
    sys.exit(main())
