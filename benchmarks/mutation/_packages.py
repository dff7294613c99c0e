# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is mutated, and which tests have to notice.

A mutated planner must not reach the machine that it runs on. Only tests are named here that replace everything that a plan would
change: none that runs the module on disks, packages, or kernel modules that are there.
"""

from __future__ import annotations

import typing as t


class Package(t.NamedTuple):
    """``files``: patterns below plugins/module_utils. ``tests``: paths below tests/unit, or tests in them."""

    files: tuple[str, ...]
    tests: tuple[str, ...]


#: The pure half of _nvme_raid.
_NVME_RAID = ("compare", "create", "existing", "find", "judge", "mount", "plan", "reasons", "remove", "selector")
_GPU_AFFINITY = ("binding", "formats", "nccl", "nccl_files", "nccl_graph", "options", "plan", "topology")

PACKAGES: dict[str, Package] = {
    "_shards": Package(("_shards/*.py",), ("shards",)),
    "_nvme_raid/plan": Package(
        tuple(f"_nvme_raid/{name}.py" for name in _NVME_RAID), ("nvme_raid/test_nvme_raid_plan.py",)
    ),
    "_nvidia_driver/plan": Package(
        ("_nvidia_driver/plan.py",),
        ("nvidia_driver/test_nvidia_driver_run.py", "nvidia_driver/test_nvidia_driver_rules.py"),
    ),
    "_gpu_clocks/plan": Package(("_gpu_clocks/plan.py",), ("gpu_clocks/test_gpu_clocks_plan.py",)),
    **{f"_gpu_affinity/{name}": Package((f"_gpu_affinity/{name}.py",), ("gpu_affinity",)) for name in _GPU_AFFINITY},
    "_rdma/plan": Package(
        ("_rdma/plan.py", "_rdma/artifact.py"),
        ("rdma/test_rdma_stack_plan.py", "rdma/test_rdma_artifact.py", "rdma/test_rdma_check.py"),
    ),
    "_azcopy/messages": Package(("_azcopy/messages.py",), ("azcopy/test_messages.py",)),
    "_dataset/claims": Package(("_dataset/claims.py",), ("dataset/test_claims.py",)),
    # Each file with its own tests: all of them together unpack for a minute.
    "_gzip/deflate": Package(("_gzip/deflate.py",), ("gzip/test_deflate.py",)),
    "_gzip/drain": Package(("_gzip/drain.py",), ("gzip/test_drain.py",)),
    "_gzip/inflate": Package(("_gzip/inflate.py",), ("gzip/test_inflate.py",)),
    "_gzip/part_file": Package(
        ("_gzip/part_file.py",),
        (
            "gzip/test_part_file.py",
            "gzip/test_inflate.py::test_a_full_disk_or_quota_leaves_nothing",
            "gzip/test_inflate.py::test_short_writes_are_continued",
        ),
    ),
}

__all__ = ["PACKAGES", "Package"]
