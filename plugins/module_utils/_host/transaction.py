# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""One transaction of packages, by whichever package system a node has."""

from __future__ import annotations

import shutil

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.apt import Apt
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Runner
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.dnf import Dnf
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.remedies import DEFAULT_REMEDIES, Remedies


def manager_for(host: Runner, remedies: Remedies = DEFAULT_REMEDIES, *, reads: bool = False) -> Apt | Dnf:
    """The package system of this node. ``reads``: only what is there is asked for, which rpm alone tells."""
    if shutil.which("dpkg-query"):
        return Apt(host, remedies)
    if shutil.which("rpm") and (reads or shutil.which("dnf")):
        return Dnf(host, remedies)
    raise ClusterError("no_package_manager", "This node has neither dpkg nor dnf.", remedies.no_manager)


__all__ = ["Apt", "Dnf", "manager_for"]
