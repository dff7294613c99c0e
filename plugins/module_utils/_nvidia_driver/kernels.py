# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Kernels besides the one that runs: which packages bring new ones, and which bring their headers.

An upgrade of the system that brings a kernel without its headers boots a node without a driver: dkms builds only where it finds them.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.distribution import Distribution
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Installed

# linux-image-azure, linux-image-cloud-amd64, linux-image-generic-hwe-24.04: the packages that bring the next kernel.
_META = re.compile(r"^linux-image-((?!unsigned-|extra-|dbg)[a-z][\w.+-]*?)(?<!-dbg)$")
_OF_DEB = re.compile(r"^linux-(image|headers|modules|modules-extra|azure|aws|gcp|generic|virtual|kvm|lowlatency)(-|$)")
_OF_RPM = re.compile(
    r"^kernel(-(64k|rt|uek|debug))*(-(core|devel|devel-matched|headers|modules|modules-core|modules-extra))?$"
)


def metapackage_headers(packages: t.Iterable[str]) -> list[str]:
    """The headers' metapackages beside those that bring the next kernel on Debian and Ubuntu."""
    found = (_META.match(name) for name in sorted(packages))
    return [f"linux-headers-{match.group(1)}" for match in found if match]


def kernel_packages(packages: t.Mapping[str, Installed], dist: Distribution) -> list[str]:
    """The installed packages of kernels, those that only bring the next one included."""
    pattern = _OF_DEB if dist.manager == "dpkg" else _OF_RPM
    return sorted(name for name in packages if pattern.match(name))


__all__ = ["kernel_packages", "metapackage_headers"]
