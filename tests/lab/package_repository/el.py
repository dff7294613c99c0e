# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repositories of tiny RPMs with the names, versions, epochs, dependencies and module streams that EL and the vendors have.

What is like the real ones: parts of a driver demand each other at exactly one version, and dkms, which only EPEL has; all of
them are modular but on EL 10, so that only those of the enabled stream can be seen; Fabric Manager takes the place of the one whose name
has a hyphen more, and the library for NVSwitches excludes the one with another branch in its name; GDRCopy is in none of the
vendor's repositories; kernels and their headers are installed beside each other. What is not: there is nothing in them.
"""

from __future__ import annotations

import dataclasses
import pathlib
import platform
import sys
import typing as t

from lab.package_repository import repository, rpms
from lab.package_repository.once import made_once
from lab.package_repository.rpms import Rpm, Stream

MACHINE = platform.machine()
OLD, NEW, NEWEST = "570.124.06", "580.95.05", "580.126.16"
DOCA = {"3.1.0": "091000_25.07", "3.2.1": "044000_25.10"}
#: Versions of GDRCopy, the older first.
GDRCOPY = ("2.4.4", "2.5.1")
#: Where a node has the repositories.
PLACE = repository.PLACE
#: The plugin of dnf that locks versions, where Debian has it.
LOCK = "/usr/lib/python3/dist-packages/dnf-plugins/versionlock.py"
LOCK_SETTINGS = "[main]\nenabled = 1\nlocklist = /etc/dnf/plugins/versionlock.list\n"
#: While this file exists, a part of the newest driver ends dnf in the middle of the transaction, as a power cut does.
BREAK = "/run/break-nvidia-driver"


@dataclasses.dataclass(frozen=True)
class Release:
    """A rebuild of RHEL: as /etc/os-release has it, and two of its kernels, the older first."""

    id: str
    version: str
    name: str
    kernels: tuple[str, str]

    @property
    def major(self) -> str:
        return self.version.partition(".")[0]

    @property
    def os_release(self) -> str:
        return (
            f'NAME="{self.name}"\nID="{self.id}"\nID_LIKE="rhel centos fedora"\nVERSION_ID="{self.version}"\n'
            f'PLATFORM_ID="platform:el{self.major}"\nPRETTY_NAME="{self.name} {self.version}"\n'
        )

    def kernel(self, index: int) -> str:
        """What ``uname -r`` says."""
        return f"{self.kernels[index]}.{MACHINE}"


RELEASES = {
    "8": Release("rocky", "8.10", "Rocky Linux", ("4.18.0-553.el8_10", "4.18.0-553.16.1.el8_10")),
    "9": Release("almalinux", "9.4", "AlmaLinux", ("5.14.0-427.13.1.el9_4", "5.14.0-427.40.1.el9_4")),
    "10": Release("rocky", "10.0", "Rocky Linux", ("6.12.0-55.9.1.el10_0", "6.12.0-55.12.1.el10_0")),
}


def _kernel(kernel: str) -> list[Rpm]:
    """A kernel, which links to where its headers would be, and these, as RHEL packages them."""
    full = f"{kernel}.{MACHINE}"
    modules, sources = f"/usr/lib/modules/{full}", f"/usr/src/kernels/{full}"
    link = f"mkdir -p {modules} && ln -sfn {sources} {modules}/build"

    def provided(name: str) -> tuple[str, str]:
        # By the second one dnf knows that several of them may be installed.
        return (f"{name}-uname-r = {full}", "installonlypkg(kernel)")

    return [
        Rpm("kernel-core", kernel, noarch=False, provides=provided("kernel-core"), post=link),
        Rpm("kernel-devel", kernel, noarch=False, provides=provided("kernel-devel"), directories=(sources,),
            files={f"{sources}/Makefile": "# Headers stand in.\n"}),
    ]  # fmt: skip


def _base(release: Release) -> list[Rpm]:
    tail = f"el{release.major}"
    own = Rpm(
        f"{release.id}-release",
        f"{release.version}-1.{tail}",
        provides=(f"system-release = {release.version}", f"system-release(releasever) = {release.major}"),
        files={"/usr/lib/os-release": release.os_release},
    )
    kernels = [package for kernel in release.kernels for package in _kernel(kernel)]
    lock = Rpm(
        "python3-dnf-plugin-versionlock",
        f"4.3.0-13.{tail}",
        files={"/etc/dnf/plugins/versionlock.conf": LOCK_SETTINGS, LOCK: pathlib.Path(LOCK).read_text()},
    )
    rdma = [Rpm(name, f"48.0-1.{tail}", noarch=False) for name in ("rdma-core", "libibverbs", "librdmacm")]
    bash = Rpm("bash", f"5.1.8-9.{tail}", noarch=False, provides=("/bin/sh",))
    tools = [Rpm(name, f"1.0-1.{tail}", noarch=False) for name in ("gcc", "make", "numactl", "perl", "tcl")]
    return [own, bash, *kernels, lock, *rdma, *tools, Rpm("perftest", f"4.5-20.{tail}", requires=("libibverbs",))]


def _driver(version: str, tail: str) -> list[Rpm]:
    full = f"3:{version}-1.{tail}"
    same = {name: f"{name} = 3:{version}" for name in ("nvidia-kmod", "nvidia-kmod-common", "nvidia-settings")}
    cuda, libraries = f"nvidia-driver-cuda = 3:{version}", f"nvidia-driver-cuda-libs = 3:{version}"
    daemon = f"nvidia-persistenced = 3:{version}"
    module = {"provides": (same["nvidia-kmod"],), "requires": ("dkms >= 3.1.8", same["nvidia-kmod-common"])}
    fails = f"[ ! -e {BREAK} ] || kill -9 $PPID" if version == NEWEST else ""
    old = int(version.partition(".")[0]) < 580
    manager = Rpm("nvidia-fabric-manager" if old else "nvidia-fabricmanager", f"{version}-1", noarch=False)
    if not old:
        manager = dataclasses.replace(manager, obsoletes=("nvidia-fabric-manager < 580",))
    # As NVIDIA/yum-packaging-libnvidia-nscq has it.
    nscq = Rpm(
        f"libnvidia-nscq-{version.partition('.')[0]}" if old else "libnvidia-nscq",
        f"{version}-1",
        noarch=False,
        provides=(f"libnvidia-nscq = {version}",) if old else (),
        obsoletes=(f"libnvidia-nscq < {version}",) if old else (),
        conflicts=("libnvidia-nscq",) if old else (),
    )
    unit = "[Unit]\nAfter=multi-user.target\n[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
    units = "/usr/lib/systemd/system"
    return [
        Rpm("nvidia-open", full, requires=("kmod-nvidia-open-dkms = 3:" + version, cuda, same["nvidia-settings"]),
            recommends=("nvidia-xconfig",)),
        Rpm("cuda-drivers", full, requires=("kmod-nvidia-latest-dkms = 3:" + version, cuda, same["nvidia-settings"]),
            recommends=("nvidia-xconfig",)),
        Rpm("kmod-nvidia-open-dkms", full, conflicts=("kmod-nvidia-latest-dkms",), post=fails, **module),
        Rpm("kmod-nvidia-latest-dkms", full, conflicts=("kmod-nvidia-open-dkms",), **module),
        Rpm("nvidia-kmod-common", full, requires=(same["nvidia-kmod"],)),
        Rpm("nvidia-driver-cuda", full, noarch=False, requires=(same["nvidia-kmod-common"], libraries, daemon)),
        Rpm("nvidia-driver-cuda-libs", full, noarch=False, requires=(f"libnvidia-ml = 3:{version}",)),
        Rpm("libnvidia-ml", full, noarch=False, files={f"/usr/lib64/libnvidia-ml.so.{version}": "not a library\n"}),
        Rpm("nvidia-persistenced", full, noarch=False, files={f"{units}/nvidia-persistenced.service": unit}),
        Rpm("nvidia-settings", full, noarch=False),
        Rpm("nvidia-xconfig", full, noarch=False),
        nscq,
        dataclasses.replace(manager, files={f"{units}/nvidia-fabricmanager.service": unit}),
    ]  # fmt: skip


def _streams(drivers: t.Mapping[str, t.Sequence[Rpm]]) -> list[Stream]:
    """One per branch and kernel module, and those that follow the newest branch."""
    streams = []
    for tail, other in (
        ("open", ("cuda-drivers", "kmod-nvidia-latest-dkms")),
        ("dkms", ("nvidia-open", "kmod-nvidia-open-dkms")),
    ):
        for branch in ("570", "580", ""):
            packages = [one for version, of in drivers.items() if version.startswith(branch) for one in of]
            kept = tuple(one for one in packages if one.name not in other)
            name = f"{branch}-{tail}" if branch else {"open": "open-dkms", "dkms": "latest-dkms"}[tail]
            streams.append(Stream("nvidia-driver", name, kept, default=name == "open-dkms"))
    return streams


def _cuda(tail: str) -> list[Rpm]:
    """What the vendor's repository has besides drivers."""
    dcgm = [
        Rpm(f"datacenter-gpu-manager-4-cuda{cuda}", "1:4.4.1-1", noarch=False, requires=("datacenter-gpu-manager-4-core",),
            recommends=(f"datacenter-gpu-manager-4-proprietary-cuda{cuda}",))
        for cuda in (12, 13)
    ]  # fmt: skip
    more = ("core", "proprietary-cuda12", "proprietary-cuda13")
    dcgm += [Rpm(f"datacenter-gpu-manager-4-{name}", "1:4.4.1-1", noarch=False) for name in more]
    toolkits = [Rpm("cuda-toolkit-12-9", "12.9.1-1"), Rpm("cuda-toolkit-13-0", "13.0.2-1")]
    container = [Rpm("nvidia-container-toolkit", f"{version}-1", noarch=False) for version in ("1.17.8", "1.18.0")]
    # Needs the driver's library, at any version.
    return [*dcgm, *toolkits, *container, Rpm("site-monitoring", f"1.0-1.{tail}", requires=("libnvidia-ml",))]


def _gdrcopy(version: str, tail: str) -> list[Rpm]:
    """As NVIDIA/gdrcopy's recipe makes them: the module is built when its package is installed, or not at all."""
    unit = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
    # Programs of a test are where no scriptlet looks.
    build = f"/usr/local/sbin/dkms build -m gdrdrv -v {version}-1 -k any || :"
    return [
        Rpm("gdrcopy", f"{version}-1.{tail}", noarch=False),
        Rpm("gdrcopy-kmod", f"{version}-1dkms.{tail}", requires=("dkms >= 1.00",), recommends=("kmod-nvidia-latest-dkms",),
            files={"/usr/lib/systemd/system/gdrcopy.service": unit}, post=build),
    ]  # fmt: skip


def _doca(version: str, release: Release) -> tuple[Rpm, list[Rpm]]:
    """The package that adds the repository, and those in it."""
    # One file for all minor releases since 3.2 (names as on www.mellanox.com).
    name = f"rhel{release.major}" if version == "3.2.1" else f"rhel{release.version.replace('.', '')}"
    text = f"[doca]\nname=DOCA Repository\nbaseurl=file://{PLACE}/doca-{version}\nenabled=1\ngpgcheck=0\n"
    host = Rpm(
        "doca-host", f"{version}-{DOCA[version]}_{name}", noarch=False, files={"/etc/yum.repos.d/doca.repo": text}
    )
    build = DOCA[version].partition("_")[2].replace(".", "")
    rdma = f"{build}mlnx-1.{build}.el{release.major}"
    tool = (
        f"#!/bin/sh\nmkdir -p /tmp/DOCA.lab\ncp {PLACE}/doca-{version}/kernel/doca-kernel-repo-*.rpm /tmp/DOCA.lab/\n"
        'echo "$2" >/run/doca-kernel\n'
    )
    packages = [
        Rpm("doca-ofed", f"{version}-1", requires=(f"doca-ofed-userspace = {version}", "mlnx-ofa_kernel", "dkms >= 3.2")),
        Rpm("doca-ofed-userspace", f"{version}-1", requires=(f"rdma-core = {rdma}", f"libibverbs = {rdma}", "ofed-scripts")),
        Rpm("mlnx-ofa_kernel", f"{build}-1.el{release.major}", noarch=False),
        Rpm("ofed-scripts", f"{build}-1", noarch=False),
        *(Rpm(one, rdma, noarch=False) for one in ("rdma-core", "libibverbs", "librdmacm")),
        Rpm("perftest", f"{build}.0-1", requires=("libibverbs",)),
        Rpm("doca-extra", f"{version}-1", files={"/opt/mellanox/doca/tools/doca-kernel-support": tool}),
    ]  # fmt: skip
    return host, packages


def _made(place: pathlib.Path, release: Release) -> None:
    tail = f"el{release.major}"
    drivers = {version: _driver(version, tail) for version in (OLD, NEW, NEWEST)}
    hosts = {version: _doca(version, release) for version in DOCA}
    content: dict[str, list[Rpm]] = {
        "base": _base(release),
        "epel": [Rpm("dkms", f"3.2.2-1.{tail}")],
        "cuda": [*(one for of in drivers.values() for one in of), *_cuda(tail)],
        "doca": [host for host, _packages in hosts.values()],
        **{f"doca-{version}": packages for version, (_host, packages) in hosts.items()},
        **{f"doca-{version}/kernel": [Rpm("doca-kernel-repo", f"{version}-1")] for version in hosts},
        # Somebody offers a newer package that the vendor has not signed.
        "foreign": [Rpm("cuda-toolkit-12-9", "12.9.2-1")],
        # A site's own: what the vendor has in no repository, and a mirror of DOCA that is ahead.
        "gdrcopy": [one for version in GDRCOPY for one in _gdrcopy(version, tail)],
        "ahead": [
            Rpm("doca-ofed", "9.9.9-1", requires=("mlnx-ofa_kernel",)),
            *(Rpm(name, f"9999-1.{tail}", noarch=False) for name in ("mlnx-ofa_kernel", "ofed-scripts", "perftest")),
        ],
    }
    with rpms.signing_key(place) as sign:
        for name, packages in content.items():
            (place / name).mkdir()
            rpms.build(packages, place / name)
            for built in (place / name).glob("*/*.rpm"):
                built.rename(place / name / built.name)
            # Signing takes longer than building, and these are enough to see what dnf checks.
            if name == "cuda":
                sign(place / name)
            # EL 10 has no modules any more.
            modular = name == "cuda" and release.major != "10"
            rpms.index(place / name, _streams(drivers) if modular else (), tail, MACHINE)


def made(directory: pathlib.Path, release: Release) -> pathlib.Path:
    """The repositories of a release, made once by the recipe that these files are."""
    recipe = (rpms, repository, sys.modules[__name__])
    return made_once(directory, f"el{release.major}", recipe, lambda place: _made(place, release), MACHINE)


def fingerprint(place: pathlib.Path) -> str:
    """Of the key that has signed these repositories."""
    return repository.fingerprint(place, rpms.KEY)


__all__ = [
    "BREAK",
    "DOCA",
    "GDRCOPY",
    "LOCK",
    "MACHINE",
    "NEW",
    "NEWEST",
    "OLD",
    "PLACE",
    "RELEASES",
    "Release",
    "fingerprint",
    "made",
]
