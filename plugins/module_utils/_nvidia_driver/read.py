# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is on a node: the driver that the kernel runs, those that are installed, and who uses the GPUs. Changes nothing."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import read_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.apply import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.model import Loaded

_SERVICE_PROGRAMS = frozenset(
    {"nvidia-persistenced", "nvidia-persiste", "nv-fabricmanager", "nv-fabricmanage", "nv-hostengine"}
)
_LIBRARY_PATHS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
)
# Debian names the files nvidia-current.ko and so on, and lets modprobe find them; in the kernel they are nvidia all the same.
_FILE_NAMES = ("nvidia", "nvidia-current", "nvidia-current-open")


def read_loaded(root: Path) -> Loaded:
    """The NVIDIA module that the kernel runs."""
    text = read_text(root / "proc/driver/nvidia/version")
    found = re.search(r"Kernel Module.*?\s(\d{3}\.\d+(?:\.\d+)?)\s", text + "\n")
    version = read_text(root / "sys/module/nvidia/version") or (found.group(1) if found else "")
    if not version:
        return Loaded()
    parameters = {}
    for line in read_text(root / "proc/driver/nvidia/params").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            parameters[name.strip()] = value.strip()
    flavor = "" if not text else "open" if "Open Kernel Module" in text else "proprietary"
    return Loaded(version, flavor, parameters)


def read_libraries(root: Path) -> list[str]:
    """Versions of libnvidia-ml that are installed, whoever installed them: the file's name says it."""
    found = set()
    for directory in _LIBRARY_PATHS:
        for name in glob.glob(str(root / directory / "libnvidia-ml.so.*.*")):
            found.add(os.path.basename(name).replace("libnvidia-ml.so.", ""))
    return sorted(found)


def in_chroot() -> bool:
    """Whether this is an image under construction: the root directory is not that of the first process."""
    try:
        here, first = os.stat("/"), os.stat("/proc/1/root/.")
    except OSError:
        return not os.path.isdir("/run/systemd/system")
    return (here.st_dev, here.st_ino) != (first.st_dev, first.st_ino)


def gpu_users(root: Path) -> list[str]:
    """Processes that hold a GPU open, without NVIDIA's own services: ``name (pid)``."""
    users = []
    for process in glob.glob(str(root / "proc/[0-9]*")):
        opened = False
        with contextlib.suppress(OSError):
            for name in os.listdir(f"{process}/fd"):
                with contextlib.suppress(OSError):
                    opened = opened or os.readlink(f"{process}/fd/{name}").startswith("/dev/nvidia")
        if opened:
            program = read_text(Path(process) / "comm")
            if program not in _SERVICE_PROGRAMS:
                users.append(f"{program} ({os.path.basename(process)})")
    return sorted(users)


def module_on_disk(host: Host, kernel: str) -> tuple[str, str]:
    """Version and flavor of the module that ``modprobe nvidia`` would load; empty when there is none."""
    for name in _FILE_NAMES:
        rc, out, _err = host.run_command(["modinfo", "-k", kernel, name])
        if rc == 0:
            break
    else:
        return "", ""
    fields = dict(line.split(":", 1) for line in out.splitlines() if ":" in line)
    # The open module is dual-licensed, the other one says NVIDIA.
    flavor = "open" if "MIT" in fields.get("license", "") else "proprietary"
    return fields.get("version", "").strip(), flavor


__all__ = ["gpu_users", "in_chroot", "module_on_disk", "read_libraries", "read_loaded"]
