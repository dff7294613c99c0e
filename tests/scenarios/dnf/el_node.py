# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of EL: the release of EL says who it is, dpkg and apt are gone, and the database of rpm is its own."""

from __future__ import annotations

import pathlib
import shutil

from lab.layered_node import node
from lab.package_repository import el, rpms

_OWN = pathlib.Path(__file__).parent / "files"
_DEBIAN = ("/usr/bin/dpkg-query", "/usr/bin/dpkg", "/usr/bin/apt-get", "/usr/sbin/update-initramfs", el.LOCK)


class Node(node.Node):
    """A node of a release."""

    def __init__(self, work: pathlib.Path, release: el.Release, repositories: pathlib.Path) -> None:
        super().__init__(work, repositories)
        self.release = release

    @property
    def installed(self) -> dict[str, list[str]]:
        """What rpm has, with all versions of a name."""
        found: dict[str, list[str]] = {}
        for line in self.must("rpm", "-qa", "--queryformat", r"%{NAME} %{VERSION}-%{RELEASE}\n").split("\n")[:-1]:
            name, version = line.split(" ")
            found[name] = sorted([*found.get(name, []), version])
        return found

    def repository(self, name: str, *, signed: bool = False) -> None:
        """Have a repository on the node."""
        key = f"gpgcheck=1\ngpgkey=file://{el.PLACE}/{rpms.KEY}\n" if signed else "gpgcheck=0\n"
        self.write(
            f"/etc/yum.repos.d/{name}.repo",
            f"[{name}]\nname={name}\nbaseurl=file://{el.PLACE}/{name}\nenabled=1\n{key}",
        )


def made(work: pathlib.Path, release: el.Release, repositories: pathlib.Path) -> Node:
    """A node as its distribution's image has it: the older of two kernels runs, both have their headers."""
    made_node = Node(work, release, repositories)
    for path in _DEBIAN:
        made_node.path(path).unlink(missing_ok=True)
    for path in ("/var/lib/rpm", "/var/lib/dnf", "/var/cache/dnf", "/etc/dnf", "/etc/yum.repos.d", "/etc/os-release"):
        if made_node.path(path).is_dir():
            shutil.rmtree(made_node.path(path))
        else:
            made_node.path(path).unlink(missing_ok=True)
    made_node.path("/usr/lib/os-release").unlink(missing_ok=True)
    made_node.path("/etc/os-release").symlink_to("../usr/lib/os-release")
    # As RHEL has it. Debian keeps rpm's database with the user, and does not want to be told to install packages.
    made_node.write("/etc/rpm/macros.el", "%_dbpath /var/lib/rpm\n%_transaction_color 0\n")
    made_node.write(
        "/etc/popt", "rpm alias --upgrade --upgrade --force-debian\nrpm alias --import --import --force-debian\n"
    )
    made_node.write(
        "/etc/dnf/dnf.conf", "[main]\ngpgcheck=1\ninstallonly_limit=3\nclean_requirements_on_remove=True\nbest=True\n"
    )
    made_node.stand_in(*_OWN.iterdir(), *node.FILES.iterdir())
    made_node.write(f"{node.LOCAL}/modinfo", (_OWN / "modprobe").read_text())
    for path in ("/var/lib/rpm", "/run/systemd/system", "/tmp", "/var/tmp"):
        made_node.path(path).mkdir(parents=True, exist_ok=True)
    made_node.repository("base")
    kernels = [f"{name}-{kernel}" for kernel in release.kernels for name in ("kernel-core", "kernel-devel")]
    made_node.must(
        "dnf",
        "-y",
        "-q",
        f"--releasever={release.major}",
        "install",
        f"{release.id}-release",
        *kernels,
        "rdma-core",
        "libibverbs",
        "numactl",
    )
    return made_node


__all__ = ["Node", "made"]
