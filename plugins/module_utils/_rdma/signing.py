# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Whether the kernel would load modules of a stack that are built on this node, known before the stack that works is taken away.

dkms signs what it builds with a key of its own: on Debian and Ubuntu, and on EL from DOCA 3.2 on, which has no modules that NVIDIA
built and signed any more (DOCA 3.2.1, "General Support"). The vendor's tools for EL (``doca-kernel-support``,
``--add-kernel-support``) sign nothing. What the vendor has built it has signed with its own key, which is not looked at.
"""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import secure_boot
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.model import Step, System, Wanted

ROOT = Path("/")
_DKMS_ON_EL = (3, 2)
_INSTEAD = "keep the distribution's modules, which are signed (`source: inbox`)"


def _with_dkms(wanted: Wanted, system: System) -> bool:
    """Whether dkms builds the modules, when they are installed. ``kernel_support`` on EL has the vendor's tool build them before."""
    release = (
        re.match(r"(\d+)\.(\d+)", wanted.version) if wanted.source == "doca" and not wanted.kernel_support else None
    )
    return system.manager == "dpkg" or (release is not None and (int(release[1]), int(release[2])) >= _DKMS_ON_EL)


def builds_doca(wanted: Wanted, system: System, steps: t.Iterable[Step]) -> bool:
    """Whether these steps build DOCA's modules here."""
    brings = any(step.kind in ("install", "rebuild") for step in steps)
    return brings and wanted.source == "doca" and (wanted.kernel_support or _with_dkms(wanted, system))


def refuse_unsigned(wanted: Wanted, system: System, host: Host) -> None:
    """Refuse to build modules that the kernel would not load. An image is not asked about the machine that builds it."""
    if not wanted.kernel_parts or wanted.kernel:
        return
    if _with_dkms(wanted, system):
        secure_boot.check(host, ROOT, instead=_INSTEAD)
    elif secure_boot.enforced(ROOT):
        raise ClusterError(
            "secure_boot",
            "Secure Boot is on, and the kernel would not load modules that the vendor's tool builds here: it does not sign them. "
            "Nothing was changed.",
            "Set `kernel_support: false`: from DOCA 3.2 on dkms then builds the modules and signs them with its key, and before, the "
            f"vendor has signed ones for the kernels of each release. Or turn Secure Boot off in the firmware, or {_INSTEAD}.",
        )


__all__ = ["ROOT", "builds_doca", "refuse_unsigned"]
