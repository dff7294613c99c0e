#!/usr/bin/python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stands in for modprobe and modinfo, by the name it is called with, on a node that cannot load modules.

What can be loaded follows from the packages that are really installed, or from what the installer's stand-in built. What is
loaded shows in /proc/driver/nvidia, which the test covered with a tmpfs, and in the answers of the simulated nvidia-smi.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

DRIVER = pathlib.Path("/proc/driver/nvidia")
SMI = pathlib.Path("/var/lib/gpu-simulator/state.json")
SETTINGS = pathlib.Path("/etc/modprobe.d/nvidia-driver.conf")
# Left by the stand-in for NVIDIA's installer.
BUILT = pathlib.Path("/var/lib/nvidia-runfile/module")
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (builder@host)\n"
PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Sun Jan 1 00:00:00 UTC 2026\n"


def installed() -> "tuple[str, str]":
    for name, flavor in (("nvidia-kernel-open-dkms", "open"), ("nvidia-kernel-dkms", "proprietary")):
        argv = ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", name]
        said = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.split()
        if said[:1] == ["installed"]:
            return said[1].partition("-")[0], flavor
    if BUILT.exists():
        version, flavor = BUILT.read_text().split()
        return version, flavor
    return "", ""


def tell_smi(version: str) -> None:
    state = json.loads(SMI.read_text())
    state["driver_version"] = version
    SMI.write_text(json.dumps(state))


def main() -> int:
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    version, flavor = installed()
    if os.path.basename(sys.argv[0]) == "modinfo":
        if not version:
            print("modinfo: ERROR: Module nvidia not found.", file=sys.stderr)
            return 1
        print(f"version:        {version}\nlicense:        {'Dual MIT/GPL' if flavor == 'open' else 'NVIDIA'}")
        return 0
    if "-r" in sys.argv:
        shutil.rmtree(DRIVER, ignore_errors=True)
        return 0
    if "nvidia" in words:
        if not version:
            print("modprobe: FATAL: Module nvidia not found in directory /lib/modules", file=sys.stderr)
            return 1
        DRIVER.mkdir(exist_ok=True)
        (DRIVER / "version").write_text((OPEN if flavor == "open" else PROPRIETARY).format(version))
        restricted = "NVreg_RestrictProfilingToAdminUsers=1" in SETTINGS.read_text() if SETTINGS.exists() else True
        (DRIVER / "params").write_text(f"RmProfilingAdminOnly: {int(restricted)}\n")
        tell_smi(version)
    return 0


sys.exit(main())
