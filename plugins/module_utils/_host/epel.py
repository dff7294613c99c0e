# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""EPEL, which alone has dkms for EL: what enables it. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.distribution import Distribution


def epel_package(dist: Distribution) -> str:
    """The package that enables EPEL, from the distribution's own repositories; empty where it has none."""
    if dist.id == "ol":
        return f"oracle-epel-release-el{dist.version.partition('.')[0]}"
    return "epel-release" if dist.id in ("almalinux", "rocky") else ""


def lacking_epel(dist: Distribution, installed: t.Container[str]) -> str:
    """The package that is to be installed for dkms to be found; empty where dkms or EPEL is there, or no package brings it."""
    name = epel_package(dist)
    return "" if not name or any(one in installed for one in ("dkms", "epel-release", name)) else name


def how_to_enable(dist: Distribution) -> str:
    """The remedy for who lacks dkms, in words."""
    if epel_package(dist):
        return "Enable EPEL: set `epel: true`, or use a mirror of it."
    major = dist.version.partition(".")[0]
    return f"Enable EPEL: `dnf install https://dl.fedoraproject.org/pub/epel/epel-release-latest-{major}.noarch.rpm`."


__all__ = ["epel_package", "how_to_enable", "lacking_epel"]
