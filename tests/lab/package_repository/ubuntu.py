# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repositories of tiny packages with the names and versions that Ubuntu 22.04 and 24.04 and the vendors have there.

``base``: what a node's image has, and one kernel. ``kernel``: the next one. ``mirror``: all versions of the driver, as a mirror
keeps them. ``updates``: the newest only, still phased, as Ubuntu's archive keeps it; in it a branch that ended. ``cuda``: NVIDIA's.
``doca``: the packages that add DOCA's repositories ``doca-3.1.0`` and ``doca-3.2.1``. Where all this comes from: README.md.
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys
import typing as t

from lab.package_repository import repository, ubuntu_driver
from lab.package_repository.once import made_once
from lab.package_repository.ubuntu_driver import Graphics, Item, for_nvswitches, given_up, signed_modules

OLD, NEW, NEWEST = "570.195.03", "580.95.05", "580.126.20"
#: The last version of a branch, which Ubuntu gave up under the same version and another revision.
ENDED = "570.211.01"
DOCA = {"3.1.0": "091000-25.07", "3.2.1": "044000-25.10"}
#: While this file exists, DOCA's kernel modules cannot be installed.
BREAK_DOCA = "/run/break-doca"
# The build and the version of the kernel's part, published for 3.1 and composed for 3.2.
_BUILDS = {"3.1.0": ("2507097", "25.07.OFED.25.07.0.9.7.1-1"), "3.2.1": ("2510241", "25.10.OFED.25.10.2.4.1.1-1")}


@dataclasses.dataclass(frozen=True)
class Release:
    """A release of Ubuntu, with two of its kernels, the older first, and their packages' versions.

    ``revisions``: those of the packaging of each version of the driver.
    """

    version: str
    name: str
    kernels: tuple[str, str]
    kernel_versions: tuple[str, str]
    revisions: t.Mapping[str, str]
    rdma: str

    @property
    def flavor(self) -> str:
        """Which kernels follow each other, as in ``linux-image-azure``."""
        return self.kernels[0].rpartition("-")[2]

    def full(self, version: str) -> str:
        """A version of the driver as the package has it."""
        return f"{version}-{self.revisions[version]}"


RELEASES = {
    "22.04": Release(
        "22.04",
        "Jammy Jellyfish",
        ("6.8.0-1040-azure", "6.8.0-1041-azure"),
        ("6.8.0-1040.46~22.04.1", "6.8.0-1041.47~22.04.1"),
        {OLD: "0ubuntu0.22.04.3", NEW: "0ubuntu0.22.04.3", NEWEST: "0ubuntu0.22.04.1", ENDED: "0ubuntu0.22.04.1"},
        "39.0-1",
    ),
    "24.04": Release(
        "24.04",
        "Noble Numbat",
        ("6.8.0-85-generic", "6.8.0-86-generic"),
        ("6.8.0-85.85", "6.8.0-86.87"),
        {OLD: "0ubuntu0.24.04.3", NEW: "0ubuntu0.24.04.3", NEWEST: "0ubuntu0.24.04.2", ENDED: "0ubuntu0.24.04.2"},
        "50.0-2ubuntu0.2",
    ),
}

# Builds "modules" where headers are, of what packages leave in /usr/src: name, version and license, one module a line.
_DKMS = """#!/bin/sh
[ "$1" = autoinstall ] || exit 0
for kernel in ${3:-$(ls /lib/modules)}; do
  [ -d "/lib/modules/$kernel/build" ] || continue
  cat /usr/src/*/modules 2>/dev/null | while IFS='|' read -r name version license; do
    mkdir -p "/lib/modules/$kernel/updates/dkms"
    printf 'version:        %s\\nlicense:        %s\\n' "$version" "$license" >"/lib/modules/$kernel/updates/dkms/$name.ko"
  done
done
"""
_NEWEST_BOOTS = "#!/bin/sh\ncd /boot && ln -sf \"$(ls | grep '^vmlinuz-' | sort -V | tail -n 1)\" vmlinuz\n"


def _kernel(release: Release, index: int) -> list[Item]:
    """A kernel, its headers, and the packages by which it comes."""
    kernel, version = release.kernels[index], release.kernel_versions[index]
    image, headers = f"linux-image-{kernel}", f"linux-headers-{kernel}"
    build = "#!/bin/sh\n[ ! -x /usr/sbin/dkms ] || dkms autoinstall -k " + kernel + "\n"
    files: tuple[Item, ...] = (
        {"name": image, "files": {f"/boot/vmlinuz-{kernel}": "not a kernel\n"}, "postinst": _NEWEST_BOOTS},
        {"name": headers, "files": {f"/usr/lib/modules/{kernel}/build/Makefile": "\n"}, "postinst": build},
        {"name": f"linux-image-{release.flavor}", "depends": [image]},
        {"name": f"linux-headers-{release.flavor}", "depends": [headers]},
    )
    return [{"version": version, **item} for item in files]


def _base(release: Release) -> list[Item]:
    text = (
        f'PRETTY_NAME="Ubuntu {release.version} LTS"\nNAME="Ubuntu"\nVERSION_ID="{release.version}"\n'
        f'VERSION="{release.version} LTS ({release.name})"\nID=ubuntu\nID_LIKE=debian\n'
    )
    rdma = ("rdma-core", "libibverbs1", "ibverbs-providers", "librdmacm1", "infiniband-diags", "perftest")
    return [
        {"name": "base-files", "version": f"1ubuntu{release.version}", "files": {"/usr/lib/os-release": text}},
        {"name": "dkms", "version": "3.0.11-1ubuntu13", "files": {"/usr/sbin/dkms": {"content": _DKMS, "mode": "755"}}},
        *(
            {"name": name, "version": "1.0-1ubuntu1"}
            for name in ("adduser", "gcc", "make", "numactl", "nvidia-settings")
        ),
        *({"name": name, "version": release.rdma} for name in rdma),
        *_kernel(release, 0),
    ]


def _server(release: Release, version: str) -> list[Item]:
    """Ubuntu's driver for servers at one version, and all that belongs to it."""
    full, branch = release.full(version), version.partition(".")[0]
    return [*Graphics(f"{branch}-server", version, full).items(), *for_nvswitches(branch, version, full)]


def _signed(release: Release, index: int, version: str, build: int) -> list[Item]:
    """The signed modules for a kernel; ``build`` counts how often they were built for it."""
    driver = Graphics(f"{version.partition('.')[0]}-server", version, release.full(version))
    return signed_modules(release.kernels[index], f"{release.kernel_versions[index]}+{build}", driver)


def _updates(release: Release) -> list[Item]:
    newer = {
        "name": "dkms",
        "version": "3.0.11-1ubuntu13.1",
        "files": {"/usr/sbin/dkms": {"content": _DKMS, "mode": "755"}},
    }
    driver = [{"phased": 0, **item} for item in _server(release, NEWEST)]
    ended = given_up("570-server", f"{ENDED}-0ubuntu1.{release.version}.1", "580-server")
    signed = [item for index in (0, 1) for item in _signed(release, index, NEWEST, 2)]
    return [*driver, *ended, *_kernel(release, 1), *signed, {"phased": 0, **newer}]


def _cuda() -> list[Item]:
    """NVIDIA's repository. Its packages of a desktop's driver have the names that Ubuntu's have."""
    items: list[Item] = []
    for version in (NEW, NEWEST):
        full, least = f"{version}-0ubuntu1", f"(>= {version}-0ubuntu1)"
        items += Graphics("580", version, full, strict=True).items()
        items += [
            {"name": "nvidia-open", "version": full, "depends": [f"nvidia-driver-580-open {least}"]},
            {"name": "cuda-drivers", "version": full, "depends": [f"nvidia-driver-580 {least}"]},
            {"name": "libnvsdm", "version": f"{version}-1"},
        ]
        (manager, _nscq) = for_nvswitches("580", version, f"{version}-1")
        items.append({**manager, "name": "nvidia-fabricmanager", "depends": []})
    items += [{"name": "nvlsm", "version": version} for version in ("2025.03.1-1", "2025.06.11-1")]
    items += [
        {"name": f"datacenter-gpu-manager-4-{name}", "version": "1:4.4.1-1"} for name in ("proprietary", "cuda13")
    ]
    return [*items, {"name": "datacenter-gpu-manager-4-proprietary-cuda13", "version": "1:4.4.1-1"}]


def _doca(version: str, release: Release) -> tuple[Item, list[Item]]:
    """The package that adds the repository, and those in it."""
    place = f"{repository.PLACE}/doca-{version}"
    host: Item = {
        "name": "doca-host",
        "version": f"{version}-{DOCA[version]}-ubuntu{release.version.replace('.', '')}",
        "files": {"/etc/apt/sources.list.d/doca.list": repository.source(place)},
    }
    build, kernel = _BUILDS[version]
    short = build[:4]
    rdma, stack = f"{short}mlnx58-1.{build}", f"{version}-{DOCA[version].partition('-')[0]}"
    libraries = ("rdma-core", "libibverbs1", "ibverbs-providers", "librdmacm1", "infiniband-diags")
    info = f"#!/bin/sh\necho OFED-internal-{kernel.partition('OFED.')[2]}:\n"
    userspace = [f"doca-ofed-userspace (= {stack})", "mlnx-ofed-kernel-dkms", "ofed-scripts"]
    return host, [
        {"name": "doca-ofed", "version": stack, "depends": userspace},
        {"name": "doca-ofed-userspace", "version": stack, "depends": ["rdma-core", "libibverbs1", "ibverbs-providers", "perftest"]},
        {
            "name": "mlnx-ofed-kernel-dkms",
            "version": kernel,
            "architecture": "all",
            "depends": ["dkms"],
            "files": {"/usr/src/mlnx-ofed-kernel/modules": f"mlx5_core|{kernel}|GPL\nib_core|{kernel}|GPL\n"},
            "postinst": f"#!/bin/sh\n[ ! -e {BREAK_DOCA} ] || exit 1\ndkms autoinstall\n",
            "prerm": "#!/bin/sh\nrm -f /lib/modules/*/updates/dkms/mlx5_core.ko /lib/modules/*/updates/dkms/ib_core.ko\n",
        },
        {"name": "ofed-scripts", "version": kernel, "files": {"/usr/bin/ofed_info": {"content": info, "mode": "755"}}},
        {"name": "perftest", "version": f"{short[:2]}.{short[2:]}.0-1", "depends": ["libibverbs1"]},
        # Another one than the distribution's, which the role keeps away.
        {"name": "dkms", "version": "99:3.2.2-1", "files": {"/usr/sbin/dkms": {"content": "#!/bin/sh\nexit 1\n", "mode": "755"}}},
        *({"name": name, "version": rdma} for name in libraries),
    ]  # fmt: skip


def _contents(release: Release) -> dict[str, list[Item]]:
    doca = {version: _doca(version, release) for version in DOCA}
    drivers = [item for version in (OLD, ENDED, NEW, NEWEST) for item in _server(release, version)]
    signed = [*_signed(release, 0, NEW, 1), *_signed(release, 0, NEWEST, 2)]
    return {
        "base": _base(release),
        "kernel": [*_kernel(release, 1), *_signed(release, 1, NEW, 1)],
        "mirror": [*drivers, *signed, *Graphics("580", NEW, release.full(NEW)).items()],
        "updates": _updates(release),
        "cuda": _cuda(),
        "doca": [host for host, _packages in doca.values()],
        **{f"doca-{version}": packages for version, (_host, packages) in doca.items()},
    }


def _made(place: pathlib.Path, release: Release) -> None:
    place.chmod(0o755)
    for name, items in _contents(release).items():
        origin = name.upper().replace("DOCA-", "DOCA-HOST-")
        repository.make(place / name, repository.parse(items), origin=origin)


def made(directory: pathlib.Path, release: Release) -> pathlib.Path:
    """The repositories of a release, made once by the recipe that these files are."""
    recipe = (repository, ubuntu_driver, sys.modules[__name__])
    return made_once(directory, f"ubuntu{release.version}", recipe, lambda place: _made(place, release))


__all__ = ["BREAK_DOCA", "DOCA", "ENDED", "NEW", "NEWEST", "OLD", "RELEASES", "Release", "made"]
