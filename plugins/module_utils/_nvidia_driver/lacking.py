# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Packages that the driver needs and that often are in no repository of a node: what they are for, and where they come from. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.distribution import Distribution
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.epel import how_to_enable
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Root
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.packages import is_gdrcopy


def explained(exc: ClusterError, roots: t.Sequence[Root], dist: Distribution) -> ClusterError:
    """The error of a package system, with what helps where it is known what lacks."""
    headers = [root.label for root in roots if root.name.startswith(("linux-headers-", "kernel-"))]
    gdrcopy = tuple(f"No repository of this node has {root.name}" for root in roots if is_gdrcopy(root.name))
    if exc.kind == "package_failed" and "dkms" in exc.details.get("lacking", ()):
        return ClusterError(
            "no_dkms",
            "No repository of this node has dkms, which builds the kernel module. EL has it in EPEL only.",
            how_to_enable(dist),
            **exc.details,
        )
    if exc.kind == "not_available" and any(f" {label} " in f"{exc.message.rstrip('.')} " for label in headers):
        remedy = (
            "Repositories keep the headers of the newest kernels only: upgrade the kernel and reboot first, use a repository that "
            "keeps older ones, or set `kernel_headers: false` where they came another way."
        )
        return ClusterError(exc.kind, exc.message, remedy, **exc.details)
    if exc.kind == "not_available" and exc.message.startswith(gdrcopy):
        remedy = (
            "NVIDIA publishes GDRCopy as single files for each CUDA and distribution (compute/redist/gdrcopy), and in no repository: "
            "put them into a repository of yours that the node has, or set `gdrcopy: false`."
        )
        return ClusterError(exc.kind, exc.message, remedy, **exc.details)
    return exc


__all__ = ["explained"]
