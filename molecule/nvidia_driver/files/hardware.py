#!/usr/bin/python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Puts NVIDIA devices on the PCI bus that a lab node shows: ``hardware.py [--switches N] [DEVICE_ID...]``, or ``--remove``.

A tmpfs covers /sys/bus/pci/devices and /proc/driver. Prints "changed" or "unchanged".
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

BUS = pathlib.Path("/sys/bus/pci/devices")
PLACES = (BUS, pathlib.Path("/proc/driver"))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("devices", nargs="*")
    parser.add_argument("--switches", type=int, default=0)
    parser.add_argument("--remove", action="store_true")
    options = parser.parse_args()
    if options.remove:
        for place in PLACES:
            while os.path.ismount(place):
                subprocess.run(["umount", str(place)], check=True)
        return 0
    wanted = {f"00{number + 1:02x}:00:00.0": (device, "0x030200") for number, device in enumerate(options.devices)}
    wanted.update({f"00f{number:x}:00:00.0": ("0x1af1", "0x068000") for number in range(options.switches)})
    for place in PLACES:
        if not os.path.ismount(place):
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(place)], check=True)
    have = {path.name: ((path / "device").read_text(), (path / "class").read_text()) for path in BUS.iterdir()}
    if have == wanted:
        print("unchanged")
        return 0
    for path in BUS.iterdir():
        shutil.rmtree(path)
    for name, (device, kind) in wanted.items():
        (BUS / name).mkdir()
        for attribute, value in (("vendor", "0x10de"), ("device", device), ("class", kind)):
            (BUS / name / attribute).write_text(value)
    print("changed")
    return 0


sys.exit(main())
