# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that no role has touched yet."""

from __future__ import annotations

import typing as t

import pytest
from lab.fingerprint import SCRIPT, difference

if t.TYPE_CHECKING:
    from conftest import VmLab

pytestmark = pytest.mark.fresh


def test_check_mode_lists_what_would_change_and_changes_nothing(vm_lab: VmLab) -> None:
    disks = {(node, disk): vm_lab.checksum(node, disk) for node in vm_lab.nodes for disk in range(8)}
    before = {node: vm_lab.shell(node, SCRIPT) for node in vm_lab.nodes}
    result = vm_lab.playbook("molecule/vm/converge.yml", "--check", "--diff")
    assert result.rc == 0, result.output[-5000:]
    for node in vm_lab.nodes:
        assert not difference(before[node], vm_lab.shell(node, SCRIPT)), node
        assert result.recap(node)["changed"] >= 5, result.output[-3000:]
    for (node, disk), checksum in disks.items():
        assert vm_lab.checksum(node, disk) == checksum, f"{node}, disk {disk}"
    for expected in ("+++ after", "/mnt/resource_nvme", "/etc/gpu-bind/map"):
        assert expected in result.output
