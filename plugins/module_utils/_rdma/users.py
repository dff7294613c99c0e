# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Who uses RDMA on a node now: processes with an open device, file systems mounted over it, remote disks.

Every reader takes the directory that stands for ``/`` as its first argument and starts no process.
"""

from __future__ import annotations

import re
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import read_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.mounts import read_mounts

# A job opens these. umad, which subnet managers and diagnostics open, carries no data.
_DEVICES = ("/dev/infiniband/uverbs", "/dev/infiniband/rdma_cm", "/dev/infiniband/ucm")
_BEEGFS = ("beegfs", "beegfs_nodev", "beegfs_ondemand")
_SHOWN = 10


def processes(root: Path) -> list[str]:
    """Processes that hold an RDMA device open, as ``name (pid 123)``."""
    found = []
    for directory in sorted(root.glob("proc/[0-9]*"), key=lambda path: int(path.name)):
        try:
            handles = list((directory / "fd").iterdir())
        except OSError:
            continue  # it ended, or belongs to somebody whom we may not look at
        for handle in handles:
            try:
                target = handle.readlink() if hasattr(handle, "readlink") else handle.resolve()
            except OSError:
                continue
            if str(target).startswith(_DEVICES):
                found.append(f"{read_text(directory / 'comm') or 'process'} (pid {directory.name})")
                break
    return found


def _beegfs_over_rdma(root: Path) -> bool:
    """The client lists its connections by kind; where it does not tell, the worse is assumed."""
    lists = [*root.glob("proc/fs/beegfs/*/storage_nodes"), *root.glob("proc/fs/beegfs/*/meta_nodes")]
    return not lists or any(re.search(r"\bRDMA:\s*[1-9]", read_text(path)) for path in lists)


def mounts(root: Path) -> list[str]:
    """File systems whose data may travel over RDMA, as ``lustre mounted on /scratch``."""
    found = []
    for entry in read_mounts(root):
        kind = entry.filesystem
        over_rdma = (
            (kind == "lustre" and "@o2ib" in entry.source)
            or (kind in _BEEGFS and _beegfs_over_rdma(root))
            or (kind in ("nfs", "nfs4") and "proto=rdma" in entry.super_options)
        )
        if over_rdma:
            found.append(f"{kind} mounted on {entry.point}")
    return found


def remote_disks(root: Path) -> list[str]:
    """NVMe controllers reached over RDMA."""
    return [
        f"remote disk {controller.name}"
        for controller in sorted(root.glob("sys/class/nvme/nvme*"))
        if read_text(controller / "transport") == "rdma"
    ]


def users(root: Path = Path("/")) -> list[str]:
    """Everything that would break if the modules were unloaded; long lists are cut."""
    found: list[str] = [*mounts(root), *remote_disks(root), *processes(root)]
    return found if len(found) <= _SHOWN else [*found[:_SHOWN], f"and {len(found) - _SHOWN} more"]


__all__ = ["mounts", "processes", "remote_disks", "users"]
