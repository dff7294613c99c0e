# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Proves that the file system lies on the stripes of its array: mkfs was left to read them, and may have read wrong."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.geometry import (
    Geometry,
    expected_geometry,
    geometry_fits,
    parse_dumpe2fs,
    parse_xfs_info,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import Wanted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.steps import Plan


def prove_geometry(run: t.Callable[..., str], wanted: Wanted, done: Plan) -> Geometry | None:
    """How the mounted file system lies on the stripes; None where there is none, or something is still to be done.

    ``run(*argv, what=…)`` returns the output of a command. Raises ClusterError where mkfs and md disagree.
    """
    found = done.found
    if not found or not found.active or done.steps or wanted.state in ("absent", "inspected"):
        return None
    if wanted.filesystem == "xfs":
        have = parse_xfs_info(run("xfs_info", wanted.mount_point, what="Reading the geometry"))
    else:
        have = parse_dumpe2fs(run("dumpe2fs", "-h", f"/dev/{found.device}", what="Reading the geometry"))
    chunk = found.array.chunk_kib if found.array else 0
    want = expected_geometry(found.level, found.disks, chunk)
    if want and not geometry_fits(have, want):
        raise ClusterError(
            "wrong_geometry",
            f"The file system of {wanted.name} has stripes of {have.width_bytes if have else '?'} bytes in units "
            f"of {have.unit_bytes if have else '?'}, but the array has {want.width_bytes} and {want.unit_bytes}.",
            "It works but is slow. Remove the array and make it again.",
        )
    return have


__all__ = ["prove_geometry"]
