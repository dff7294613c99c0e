# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that no role has touched yet."""

from __future__ import annotations

import typing as t

import pytest
from lab.changed_tasks import changed_tasks
from lab.fingerprint import SCRIPT, difference

if t.TYPE_CHECKING:
    from conftest import Lab

pytestmark = pytest.mark.fresh

#: What a converge of fresh nodes changes before it copies the dataset. What install.yml brings lies in the nodes' image.
ON_THE_FIRST = {
    "cluster_ssh: Make the cluster's key and learn every node's host keys",
    "dataset_staging: List the dataset once and plan what is missing",
}
ON_EVERY_NODE = {
    "cluster_ssh: Trust the other nodes",
    "hpcx_mpi: Set up MPI, its module and its settings",
    "gpu_clocks: Set up gpu-clocks, its configuration and its unit",
    "gpu_clocks: Set the clocks of all GPUs",
    "numa_pinning: Write the map of the node and prove that ranks land where it says",
    "glusterfs: Set up GlusterFS, and use the volume where nothing else is left to do",
    "glusterfs: Start the volume and mount it",
}


def test_check_mode_lists_what_would_change_and_changes_nothing(lab: Lab) -> None:
    before = {node: lab.run(node, "sh", "-c", SCRIPT) for node in lab.nodes}
    result = lab.playbook("site", {}, "--check", "--diff")
    assert result.rc == 0, result.output[-5000:]
    for node in lab.nodes:
        assert not difference(before[node], lab.run(node, "sh", "-c", SCRIPT)), node
    first, every = {lab.nodes[0]}, set(lab.nodes)
    wanted = {**dict.fromkeys(ON_THE_FIRST, first), **dict.fromkeys(ON_EVERY_NODE, every)}
    assert changed_tasks(result.output) == wanted
    staged = lab.dataset_files
    for expected in ("+++ after", "/etc/gpu-bind/map", "authorized_keys", f"{staged} of {staged} files verified"):
        assert expected in result.output, expected
