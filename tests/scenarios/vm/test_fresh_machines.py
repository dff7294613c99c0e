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
    from conftest import VmLab

pytestmark = pytest.mark.fresh

#: What a converge of fresh machines changes on each.
CHANGED = {
    "mofed: Bring the RDMA software and its settings to their declared state",
    "gpu_clocks: Set up gpu-clocks, its configuration and its unit",
    "gpu_clocks: Set the clocks of all GPUs",
    "numa_pinning: Put gpu-bind and gpu-bind-check in place",
    "numa_pinning: Write the map of the node and prove that ranks land where it says",
    "nvme_raid: Set up the tools and the unit that works at boot",
    "nvme_raid: Bring the local disks to state present",
}


def test_check_mode_lists_what_would_change_and_changes_nothing(vm_lab: VmLab) -> None:
    disks = {node: vm_lab.checksums(node) for node in vm_lab.nodes}
    before = vm_lab.everywhere(SCRIPT)
    result = vm_lab.playbook("molecule/vm/converge.yml", "--check", "--diff")
    assert result.rc == 0, result.output[-5000:]
    for node, after in vm_lab.everywhere(SCRIPT).items():
        assert not difference(before[node], after), node
    assert {node: vm_lab.checksums(node) for node in vm_lab.nodes} == disks
    assert changed_tasks(result.output) == {task: set(vm_lab.nodes) for task in CHANGED}
    made = "+create scratch, a raid0 of 8 disks"
    for expected in ("+++ after", "/mnt/resource_nvme", "/etc/gpu-bind/map", made):
        assert expected in result.output
