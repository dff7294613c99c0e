# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is on a node: the driver that the kernel runs, those that are installed, and who uses the GPUs. Changes nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import os
import platform
import re
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import read_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.kernels import next_kernel
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.transaction import Apt, Dnf
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.hardware import read_hardware
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.holders import Holder, group_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.model import Facts, Loaded
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.request import Request

ROOT = Path("/")
#: What a ``.run`` file leaves to take its driver away again.
UNINSTALLER = "usr/bin/nvidia-uninstall"
#: The module of dnf whose streams are branches and kernel modules.
STREAMS = "nvidia-driver"
_OPENIBD = ("etc/init.d/openibd", "usr/lib/systemd/system/openibd.service", "lib/systemd/system/openibd.service")
_VENDOR_UNITS = ("usr/lib/systemd/system", "lib/systemd/system")
# GDRCopy's module goes with the driver's.
_GPU_DEVICES = ("/dev/nvidia", "/dev/gdrdrv")
_LIBRARY_PATHS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
)
# Debian names the files nvidia-current.ko and so on, and lets modprobe find them; in the kernel they are nvidia all the same.
_FILE_NAMES = ("nvidia", "nvidia-current", "nvidia-current-open")


def read_facts(request: Request) -> Facts:
    """The node, as far as its files tell it."""
    return Facts(
        root=ROOT,
        hardware=read_hardware(ROOT),
        loaded=read_loaded(ROOT),
        kernel=request.kernel or platform.release(),
        machine=platform.machine(),
        hostname=platform.node().partition(".")[0],
        chroot=in_chroot(),
        os_release=read_text(ROOT / "etc/os-release"),
        openibd=any((ROOT / path).exists() for path in _OPENIBD),
        uninstaller=(ROOT / UNINSTALLER).exists(),
    )


def with_next_kernel(facts: Facts, host: Host, request: Request) -> Facts:
    """The facts, with the kernel that boots next. An image is told its kernel."""
    known = facts.chroot or request.kernel
    return dataclasses.replace(facts, next_kernel="" if known else next_kernel(host, facts.root))


def with_stream(facts: Facts, manager: Apt | Dnf) -> Facts:
    """The facts, with what only dnf has."""
    return dataclasses.replace(facts, stream=manager.stream(STREAMS)) if isinstance(manager, Dnf) else facts


def with_packages(facts: Facts, manager: Apt | Dnf) -> Facts:
    """The facts, with every package on the node."""
    return dataclasses.replace(facts, packages=manager.installed())


def with_driver_files(facts: Facts, host: Host) -> Facts:
    """The facts, with what a ``.run`` file has put on the disk."""
    on_disk = module_on_disk(host, facts.kernel)
    return dataclasses.replace(facts, on_disk=on_disk, libraries=tuple(read_libraries(facts.root)))


def vendor_unit(root: Path, name: str) -> Path | None:
    """Where a package has put this unit, None where none has."""
    return next((root / place / name for place in _VENDOR_UNITS if (root / place / name).exists()), None)


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
    """Processes that hold a GPU open, and what ends each, without NVIDIA's own services: ``name (pid: `command`)``."""
    users = []
    for process in glob.glob(str(root / "proc/[0-9]*")):
        opened = False
        with contextlib.suppress(OSError):
            for name in os.listdir(f"{process}/fd"):
                with contextlib.suppress(OSError):
                    opened = opened or os.readlink(f"{process}/fd/{name}").startswith(_GPU_DEVICES)
        if opened:
            group = group_of(read_text(Path(process) / "cgroup"))
            holder = Holder(read_text(Path(process) / "comm"), os.path.basename(process), group)
            users += [] if holder.is_ours else [holder.text()]
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


__all__ = [
    "ROOT",
    "STREAMS",
    "UNINSTALLER",
    "gpu_users",
    "in_chroot",
    "module_on_disk",
    "read_facts",
    "read_libraries",
    "read_loaded",
    "vendor_unit",
    "with_driver_files",
    "with_next_kernel",
    "with_packages",
    "with_stream",
]
