# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of Ubuntu: the release of Ubuntu says who it is, and dpkg and apt begin with nothing but its packages."""

from __future__ import annotations

import pathlib
import shutil
import typing as t

from lab.layered_node import node
from lab.package_repository import repository, ubuntu

_OWN = pathlib.Path(__file__).parent / "files"
#: What is this machine's, and nothing of it the node's. /lib is a link to /usr/lib there.
_HIDDEN = (
    "/boot",
    "/etc/apt",
    "/etc/dpkg",
    "/usr/lib/modules",
    "/usr/src",
    "/var/cache/apt",
    "/var/lib/apt",
    "/var/lib/dpkg",
)
_MADE = (
    *("/etc/apt/apt.conf.d", "/etc/apt/keyrings", "/etc/apt/preferences.d", "/etc/apt/sources.list.d"),
    *("/etc/dpkg/dpkg.cfg.d", "/run/systemd/system", "/tmp", "/var/tmp", "/var/cache/apt/archives/partial"),
    *("/var/lib/apt/lists/partial", "/var/lib/dpkg/info", "/var/lib/dpkg/updates", "/var/lib/dpkg/alternatives"),
)
# This machine may be a container, which has no kernel of its own.
_OF_CONTAINERS = ("/.dockerenv", "/run/.containerenv", "/run/systemd/container")
INSTALL = ("apt-get", "-y", "-qq", "--no-install-recommends", "install")
#: By it and by names of packages apt decides about updates that come by and by.
_MACHINE_ID = "0123456789abcdef0123456789abcdef"


class Node(node.Node):
    """A node of a release."""

    def __init__(self, work: pathlib.Path, release: ubuntu.Release, repositories: pathlib.Path) -> None:
        super().__init__(work, repositories, _HIDDEN, kernel=release.kernels[0])
        self.release = release

    @property
    def installed(self) -> dict[str, str]:
        """What dpkg has that is whole, with its version."""
        found = self.must("dpkg-query", "-W", "-f", r"${db:Status-Status} ${Package} ${Version}\n").splitlines()
        return {name: version for status, name, version in map(str.split, found) if status == "installed"}

    @property
    def held(self) -> set[str]:
        """What apt holds."""
        return set(self.must("apt-mark", "showhold").split())

    def repository(self, *names: str) -> None:
        """Have these repositories on the node, and know what is in them."""
        for name in names:
            self.write(f"/etc/apt/sources.list.d/{name}.list", repository.source(f"{repository.PLACE}/{name}"))
        self.must("apt-get", "-qq", "update")

    def without(self, *names: str) -> None:
        """Have these no more."""
        for name in names:
            self.path(f"/etc/apt/sources.list.d/{name}.list").unlink()
        self.must("apt-get", "-qq", "update")

    def upgrade(self, *options: str) -> None:
        """Upgrade the whole system, as people and cloud-init do."""
        self.must("apt-get", "-y", "-qq", *options, "dist-upgrade")

    def boot(self, index: int) -> None:
        """Run another of the release's kernels, with no driver loaded yet."""
        self.kernel = self.release.kernels[index]
        self.write("/run/lab-kernel", f"{self.kernel}\n")
        for place in ("/sys/module", "/proc/driver", "/run/lab-active"):
            shutil.rmtree(self.path(place), ignore_errors=True)

    def module_of(self, index: int) -> str:
        """The version of the driver's module that lies on the disk for a kernel; empty for none."""
        _rc, out, _err = self.run("modinfo", "-k", self.release.kernels[index], "nvidia")
        return next((line.split()[1] for line in out.splitlines() if line.startswith("version:")), "")

    @property
    def loaded(self) -> str:
        """The version of the driver that runs."""
        return self.read("/sys/module/nvidia/version").strip()


def made(work: pathlib.Path, release: ubuntu.Release, repositories: pathlib.Path) -> Node:
    """A node as its distribution's image has it: one kernel and what brings the next, without headers."""
    image = Node(work, release, repositories)
    for path in ("/etc/os-release", "/usr/lib/os-release", *_OF_CONTAINERS):
        image.path(path).unlink(missing_ok=True)
    for path in _MADE:
        image.path(path).mkdir(parents=True, exist_ok=True)
    image.path("/etc/os-release").symlink_to("../usr/lib/os-release")
    for path in ("/var/lib/dpkg/status", "/var/lib/dpkg/available"):
        image.write(path, "")
    image.write("/etc/machine-id", f"{_MACHINE_ID}\n")
    image.boot(0)
    image.stand_in(*_OWN.iterdir(), *node.FILES.iterdir())
    image.write(f"{node.LOCAL}/modinfo", (_OWN / "modprobe").read_text())
    # apt asks it where it lies.
    image.write("/usr/bin/ischroot", (_OWN / "ischroot").read_text())
    image.repository("base")
    image.must(*INSTALL, "base-files", f"linux-image-{release.flavor}", "rdma-core", "libibverbs1", "ibverbs-providers")
    return image


def versions(of: Node, names: t.Collection[str] = ("nvidia",)) -> set[str]:
    """The upstream versions of all that belongs to the driver."""
    parts = {name: version for name, version in of.installed.items() if any(part in name for part in names)}
    return {version.partition("-")[0] for name, version in parts.items() if not name.startswith("linux-")}


__all__ = ["INSTALL", "Node", "made", "versions"]
