# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The way back to Blob storage: a dataset compressed for later staging, a checkpoint within its share of the account."""

from __future__ import annotations

import os
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.argv import CopyRequest, check_request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.compare import make_plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.copy import copy
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.model import Plan, Settings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.share import private_directory, share_id
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.bandwidth import plan_upload
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.tree import Links, read_tree
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.deflate import SUFFIX, deflate_tree


@dataclass(frozen=True)
class Upload:
    """One upload, as the module was asked for it. Rates are in Mbit/s; 0 of ``ingress_mbps`` is no cap."""

    source: str
    destination: str
    sas: str
    compress: bool
    work_path: str
    processes: int
    ingress_mbps: float
    azcopy: str
    log_path: str
    identity: str
    identity_client_id: str
    timeout_s: float
    stall_timeout_s: float
    links: Links = "refuse"


def upload(wanted: Upload, *, write: bool) -> dict[str, t.Any]:
    """Compress if asked for, then upload what the container does not hold yet. Without ``write`` only say what."""
    tree = read_tree(wanted.source, wanted.links)
    names = tree.names
    caps = plan_upload(processes=wanted.processes, ingress_mbps=wanted.ingress_mbps) if wanted.ingress_mbps else None
    result: dict[str, t.Any] = {
        "files": len(names),
        "bytes": tree.bytes,
        "left_out": tree.left_out,
        "cap_mbps": caps.cap_mbps if caps else 0.0,
        "bandwidth": caps.explanation if caps else [],
    }
    source = wanted.source
    if wanted.compress:
        if not write:
            stale = [name for name in names if not _is_compressed(wanted, name)]
            if stale:
                # What is not compressed yet cannot be compared with what the container holds.
                return {**result, "changed": True, "files_copied": len(stale), "bytes_copied": 0, "gbps": 0.0}
        else:
            _compress(wanted, names)
        source, names = wanted.work_path, [name + SUFFIX for name in names]
    request = CopyRequest(
        azcopy=wanted.azcopy,
        source=source,
        destination=wanted.destination,
        sas=wanted.sas,
        file_list=names,
        content_encoding="gzip" if wanted.compress else "",
        put_md5=True,
        cap_mbps=caps.total_mbps if caps else 0,
        concurrency=caps.concurrency * wanted.processes if caps else 0,
        processes=wanted.processes,
        follow_links=wanted.links == "follow" and not wanted.compress,
        identity="none" if wanted.sas else wanted.identity,
        identity_client_id=wanted.identity_client_id,
    )
    check_request(request)
    settings = Settings(processes=wanted.processes, timeout_s=wanted.timeout_s, stall_timeout_s=wanted.stall_timeout_s)
    return {**result, **_run(request, settings, wanted.log_path, write)}


def _run(request: CopyRequest, settings: Settings, log_path: str, write: bool) -> dict[str, t.Any]:
    with private_directory(log_path, share_id(request)) as private:
        request = replace(request, log_dir=os.path.join(private, "log"), plan_dir=os.path.join(private, "plan"))
        plan: Plan = make_plan(request, settings)
        report = copy(request, settings, plan) if write and plan.needed else None
    return {
        "changed": bool(plan.needed),
        "files_copied": len(plan.needed),
        "bytes_copied": plan.needed_bytes,
        "gbps": round(report.gbps, 4) if report else 0.0,
        "diff": {"before": "", "after": "".join(f"{file.name}\n" for file in plan.needed[:1000])},
    }


def _is_compressed(wanted: Upload, name: str) -> bool:
    try:
        packed = os.lstat(os.path.join(wanted.work_path, name + SUFFIX))
    except FileNotFoundError:
        return False
    return packed.st_mtime_ns == os.stat(os.path.join(wanted.source, name)).st_mtime_ns


def _compress(wanted: Upload, names: t.Sequence[str]) -> None:
    if not wanted.work_path:
        raise ClusterError("bad_input", "There is no work_path for compressed files.", "Name a directory with room.")
    for file in deflate_tree(wanted.source, wanted.work_path, names=names, follow=wanted.links == "follow"):
        if file.error is not None:
            raise file.error


__all__ = ["Upload", "upload"]
