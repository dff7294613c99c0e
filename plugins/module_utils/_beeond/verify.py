# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Say how every node is, and fail where that is not as asked for."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond.model import Request, Seen
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond.plan import all_problems, named
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError


def left_behind(cluster: t.Mapping[str, Seen]) -> dict[str, tuple[str, ...]]:
    """What is still there of a session that was to end, on the nodes that answer."""
    found = {}
    for node, seen in cluster.items():
        texts = ["it is still mounted"] if seen.mounted else []
        texts += [
            f"{service} still runs" for service in sorted({*seen.strays, *(s for s, up in seen.services.items() if up)})
        ]
        texts += ["its status file is still there"] if seen.status_there else []
        if texts:
            found[node] = tuple(texts)
    return found


def report(
    request: Request, cluster: t.Mapping[str, Seen], problems: t.Mapping[str, t.Sequence[str]]
) -> dict[str, t.Any]:
    """``nodes`` and ``capacity_bytes`` of the result. ``target_bytes``: what lies below the storage path of a storage server."""
    storage = request.servers("beegfs-storage")
    nodes = {
        node: {
            "mounted": seen.mounted,
            "services": sorted(service for service, up in seen.services.items() if up),
            "target_bytes": seen.total_bytes if node in storage else 0,
            "problems": list(problems.get(node, ())),
        }
        for node, seen in cluster.items()
    }
    return {"nodes": nodes, "capacity_bytes": max((seen.capacity_bytes for seen in cluster.values()), default=0)}


def verify(request: Request, cluster: t.Mapping[str, Seen]) -> dict[str, t.Any]:
    """The result of a file system that runs as asked for. Raises ClusterError (``not_whole``) with all that is wrong."""
    problems = all_problems(request, cluster)
    found = report(request, cluster, problems)
    if problems:
        raise ClusterError(
            "not_whole",
            f"The file system at {request.mount_point} is not whole: {named(problems)}.",
            "Run with `state: started`, which repairs it or says what that costs.",
            **found,
        )
    return found


def verify_ended(
    request: Request, cluster: t.Mapping[str, Seen], lost: t.Mapping[str, t.Sequence[str]]
) -> dict[str, t.Any]:
    """The result of a file system that was stopped. Raises ClusterError (``not_stopped``) for what is still there."""
    left = left_behind(cluster)
    found = report(request, cluster, {**lost, **left})
    if left:
        raise ClusterError("not_stopped", f"{named(left)}.", "End what holds it there, and run again.", **found)
    return found


__all__ = ["left_behind", "report", "verify", "verify_ended"]
