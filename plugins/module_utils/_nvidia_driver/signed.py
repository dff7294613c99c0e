# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Kernel modules that Canonical builds and signs: which of a package's versions is for the wanted driver.

Their packages have the kernel's version and a number that counts the builds. For which driver one was built is only told by what
it depends on: ``nvidia-kernel-common-580-server (>= 580.95.05)``.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.apt import Apt
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Installed, Root
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.packages import SIGNED_MODULES

_DRIVER = re.compile(r"\bnvidia-kernel-common-\S+ \(>= ([\d.]+)\)")
# A package of them needs others of the same build, which apt does not choose by itself where there is a newer one.
_PARTS = re.compile(r"\b(linux-(?:modules|objects|signatures)-nvidia-\S+) \(= ([^)]+)\)")


@dataclasses.dataclass(frozen=True)
class Build:
    """One version of a package. ``driver``: the one that it was built for; ``parts``: the others of this build, as apt is told."""

    name: str
    version: str
    driver: str
    parts: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """What to tell apt."""
        return f"{self.name}={self.version}"


def is_signed(root: Root) -> bool:
    """Whether this package is of Canonical's modules."""
    return root.name.startswith(SIGNED_MODULES)


def parse_builds(text: str) -> list[Build]:
    """Read ``apt-cache show NAME...``: the versions of the packages, in its order."""
    builds = []
    for stanza in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line and not line.startswith(" "))
        depends, name = fields.get("Depends", ""), fields.get("Package", "")
        driver = _DRIVER.search(depends)
        if name and driver:
            parts = tuple(f"{part}={version}" for part, version in _PARTS.findall(depends))
            builds.append(Build(name, fields.get("Version", ""), driver[1], parts))
    return list(dict.fromkeys(builds))


def signed_words(
    manager: Apt, names: t.Sequence[str], packages: t.Mapping[str, Installed], version: str, *, fresh: bool
) -> list[str]:
    """What to tell apt for these packages, so that their modules are those of this driver.

    ``fresh``: whether the lists may be read again where they know none.
    """
    try:
        return _words(manager, names, packages, version)
    except ClusterError:
        if not fresh:
            raise
        manager.update()
        return _words(manager, names, packages, version)


def _words(manager: Apt, names: t.Sequence[str], packages: t.Mapping[str, Installed], version: str) -> list[str]:
    builds = parse_builds(manager.show(names))
    words = dict[str, None]()
    for name in names:
        build = _chosen([one for one in builds if one.name == name], packages.get(name), name, version)
        words.update(dict.fromkeys([build.word, *build.parts]))
        # The parts of what follows a flavor are packages of a kernel, which have parts in their turn.
        deeper = parse_builds(manager.show(build.parts)) if build.parts else []
        words.update(dict.fromkeys(part for one in deeper if one.word in build.parts for part in one.parts))
    return list(words)


def _chosen(builds: t.Sequence[Build], have: Installed | None, name: str, version: str) -> Build:
    """The build for this driver: the one that is there, or the newest."""
    fitting = [one for one in builds if one.driver == version]
    if not fitting:
        drivers = ", ".join(dict.fromkeys(one.driver for one in builds))
        there = f" There is it for {drivers}." if drivers else ""
        raise ClusterError(
            "not_available",
            f"No repository of this node has {name} for driver {version}.{there}",
            "Ubuntu keeps these modules for its newest driver and kernels only: ask for that driver, upgrade the kernel and "
            "reboot first, use a mirror that keeps older ones, or let dkms build the module (leave `packages` empty).",
        )
    return next((one for one in fitting if have and one.version == have.version), fitting[0])


__all__ = ["Build", "is_signed", "parse_builds", "signed_words"]
