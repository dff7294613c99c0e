# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What a node has of RDMA: which system it is, which software is installed, and which modules are on disk and loaded."""

from __future__ import annotations

import platform
import re
import shutil
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Runner
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.distribution import EL, parse_os_release
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import read_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.transaction import Apt, Dnf
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import unfinished
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.model import (
    DISTRIBUTION_PACKAGES,
    DOCA_PACKAGES,
    Modules,
    Software,
    System,
)

# An empty package that stands for DOCA's Open MPI where another one is used.
MARKER = "mofed-provides-openmpi"
_DRIVERS = ("mlx5_core", "ib_core")


def in_container(root: Path = Path("/")) -> bool:
    """Whether the kernel is somebody else's."""
    return any((root / path).exists() for path in ("run/systemd/container", "run/.containerenv", ".dockerenv"))


def os_tag(os_release: str, debian_version: str = "") -> str:
    """The distribution as the vendors' file names have it: rebuilds of RHEL count as RHEL, Debian has its point release."""
    dist = parse_os_release(os_release)
    name, version = dist.id or "unknown", dist.version
    if name in EL:
        return f"rhel{version}"
    if name == "debian" and re.fullmatch(r"\d+\.\d+", debian_version.strip()):
        version = debian_version.strip()
    return f"{name}{version}"


def read_system(kernel: str = "", root: Path = Path("/")) -> System:
    """What this node is; ``kernel`` takes the place of the running one where an image is built."""
    tag = os_tag(read_text(root / "etc/os-release"), read_text(root / "etc/debian_version"))
    manager = "dpkg" if shutil.which("dpkg-query") else "rpm"
    return System(tag, platform.machine(), manager, kernel or platform.release(), in_container(root))


def parse_ofed_info(output: str) -> str:
    """``MLNX_OFED_LINUX-24.10-3.2.5.0`` of the line ``MLNX_OFED_LINUX-24.10-3.2.5.0:`` that ``ofed_info -s`` prints."""
    for line in output.splitlines():
        match = re.fullmatch(r"([A-Za-z_][\w.-]*-[\w.-]+):?", line.strip())
        if match:
            return match.group(1)
    return ""


def read_software(host: Runner, system: System) -> Software:
    """Which RDMA software is installed. ``host`` as for all that reads: only commands are run."""
    manager = Apt(host) if system.manager == "dpkg" else Dnf(host)
    found = manager.installed([*DOCA_PACKAGES, "doca-host", MARKER, *DISTRIBUTION_PACKAGES])
    # rpm's versions begin with an epoch, which the vendor's name of a release has not.
    versions = {name: one.version.rpartition(":")[2] for name, one in found.items() if one.present}
    ofed = ""
    if shutil.which("ofed_info"):
        _rc, answer, _err = host.run_command(["ofed_info", "-s"])
        ofed = parse_ofed_info(answer)
    return Software(ofed, versions, read_text(unfinished.PATH))


def parse_modinfo(output: str) -> list[dict[str, str]]:
    """One mapping per module of ``modinfo A B``: every module begins with its file name."""
    modules: list[dict[str, str]] = []
    for line in output.splitlines():
        key, colon, value = line.partition(":")
        if key == "filename" and colon:
            modules.append({"filename": value.strip()})
        elif colon and modules and key in ("srcversion", "version", "name"):
            modules[-1][key] = value.strip()
    return modules


def is_vendor_module(path: str) -> bool:
    """Modules that came besides a kernel lie outside of its own tree."""
    return any(f"/{place}/" in path for place in ("updates", "extra", "weak-updates"))


def read_modules(host: Runner, system: System, root: Path = Path("/")) -> Modules:
    """The modules on disk for the kernel, compared with those that are loaded."""
    loaded = [name for name in _DRIVERS if (root / "sys/module" / name).is_dir()]
    _rc, out, _err = host.run_command(["modinfo", "-k", system.kernel, *_DRIVERS])
    on_disk = {Path(item["filename"]).name.split(".")[0]: item for item in parse_modinfo(out)}
    # A kernel may be built without these digests of its sources; a vendor's modules always have them.
    stale = [
        name
        for name in loaded
        if name in on_disk
        and read_text(root / "sys/module" / name / "srcversion") != on_disk[name].get("srcversion", "")
    ]
    driver = on_disk.get(_DRIVERS[0])
    return Modules(
        vendor=driver is not None and is_vendor_module(driver["filename"]),
        loaded=bool(loaded),
        stale=tuple(stale),
        headers=(root / "lib/modules" / system.kernel / "build").is_dir(),
    )


__all__ = [
    "MARKER",
    "in_container",
    "is_vendor_module",
    "os_tag",
    "parse_modinfo",
    "parse_ofed_info",
    "read_modules",
    "read_software",
    "read_system",
]
