# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What glusterfs leaves on a node."""

from __future__ import annotations

import typing as t

SCRATCH = "/mnt/scratch"


def test_the_volume_is_mounted_for_everybody(host: t.Any) -> None:
    mount = host.mount_point(SCRATCH)
    assert mount.filesystem == "fuse.glusterfs"
    assert mount.device == "localhost:/scratch"
    assert host.file(SCRATCH).mode == 0o1777


def test_the_proof_left_nothing_behind(host: t.Any) -> None:
    assert not host.file(f"{SCRATCH}/.glusterfs_check").exists


def test_this_node_has_one_brick_and_it_runs(host: t.Any) -> None:
    assert len(host.file("/mnt/resource_nvme/glusterfs").listdir()) == 1
    assert len(host.process.filter(comm="glusterfsd")) == 1
    assert host.service("glusterd").is_enabled
