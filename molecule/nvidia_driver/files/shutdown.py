#!/usr/bin/python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stands in for shutdown on a node that shares its kernel: it has booted as far as its answers tell."""

import pathlib
import subprocess
import sys
import uuid

BOOT_ID, OURS = pathlib.Path("/proc/sys/kernel/random/boot_id"), pathlib.Path("/run/lab-boot-id")
BOOTS = pathlib.Path("/run/lab-boots")

if sys.argv[1:2] != ["-r"]:
    sys.exit(f"only a reboot is played, not {sys.argv[1:]}")
BOOTS.write_text((BOOTS.read_text() if BOOTS.exists() else "") + sys.argv[-1] + "\n")
mounted = OURS.exists()
OURS.write_text(f"{uuid.uuid4()}\n")
if not mounted:
    subprocess.run(["mount", "--bind", str(OURS), str(BOOT_ID)], check=True)
