# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Which distribution a node has, by /etc/os-release (os-release(5))."""

from __future__ import annotations

import dataclasses
import re

#: RHEL and what is built from its sources.
EL = frozenset({"rhel", "almalinux", "rocky", "centos", "ol"})
_DEBIAN = frozenset({"debian", "ubuntu"})
# How vendors name a release in the names of files: HPC-X (`ubuntu24.04`, `redhat9`), MLNX_OFED and DOCA (`rhel9.4`).
_RELEASE = re.compile(r"(ubuntu|redhat|rhel)(\d+(?:\.\d+)?)")


@dataclasses.dataclass(frozen=True)
class Distribution:
    """``id`` and ``version`` as the file has them (``ubuntu``, ``22.04``); ``name`` is for people."""

    id: str
    version: str
    name: str = ""

    @property
    def manager(self) -> str:
        """The package system: ``dpkg`` or ``rpm``, empty for a distribution that is not known here."""
        return "rpm" if self.id in EL else "dpkg" if self.id in _DEBIAN else ""


def parse_os_release(text: str) -> Distribution:
    """What the file says; empty where it says nothing."""
    fields = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            fields[key.strip()] = value.strip().strip("\"'")
    ident = fields.get("ID", "")
    return Distribution(ident, fields.get("VERSION_ID", ""), fields.get("PRETTY_NAME", ident))


def is_built_for(release: str, node: Distribution) -> bool:
    """Whether what a vendor built for a ``release`` is for this node. Of EL the major version counts, of Ubuntu both.

    True where that cannot be told: vendors have no builds for other distributions, and their users take those for a relative.
    """
    found = _RELEASE.fullmatch(release)
    if not found or node.id not in EL | {"ubuntu"}:
        return True
    if (found[1] == "ubuntu") != (node.id == "ubuntu"):
        return False
    return found[2] == node.version if node.id == "ubuntu" else found[2].split(".")[0] == node.version.split(".")[0]


__all__ = ["EL", "Distribution", "is_built_for", "parse_os_release"]
