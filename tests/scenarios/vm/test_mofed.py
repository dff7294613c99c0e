# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""mofed on a real kernel: RDMA over Ethernet that goes only when it is not in use.

A stack with modules is in test_mofed_modules.py, a reboot there and in molecule/vm, a measurement in test_rdma_between_machines.py.
"""

from __future__ import annotations

import typing as t

import pytest
from outcome import refused, right
from own_machine import NODE
from rdma import netdev, remove, removed

if t.TYPE_CHECKING:
    from conftest import VmLab

FILES = (
    "/etc/systemd/system/mofed-rxe.service",
    "/etc/udev/rules.d/60-rdma-persistent-naming.rules",
    "/etc/sysctl.d/90-mofed.conf",
    "/etc/security/limits.d/90-mofed.conf",
    "/etc/systemd/system.conf.d/90-mofed.conf",
)
FABRIC = {"hcas": [{"name": "rxe0", "link_layer": "Ethernet"}]}
HOLD = "import os, time; os.open('/dev/infiniband/uverbs0', os.O_RDWR); open('/run/held', 'w'); time.sleep(600)"


@pytest.fixture(scope="module")
def rxe(vm_lab: VmLab) -> t.Iterator[str]:
    """The interface of the fabric, on a machine that has nothing of mofed, before and after."""
    removed(vm_lab)
    yield netdev(vm_lab)
    removed(vm_lab)


def test_it_goes_only_when_nobody_uses_it(vm_lab: VmLab, rxe: str) -> None:
    lab = vm_lab
    right(lab.role("mofed", "configure", limit=NODE, mofed_rxe_netdev=rxe), NODE)
    assert lab.run(NODE, "cat", "/proc/sys/vm/zone_reclaim_mode").strip() == "1"

    missing = lab.module("hpcai.gpu_cluster.rdma_check", {"fabric": {"count": 2, "link_layer": "Ethernet"}})
    refused(missing, "rdma_mismatch", "expected 2 ports", "found 1: rxe0")
    lab.run(NODE, "rdma", "link", "delete", "rxe0")
    refused(
        lab.module("hpcai.gpu_cluster.rdma_check", {"fabric": FABRIC}), "rdma_mismatch", "HCA rxe0", "found missing"
    )
    lab.run(NODE, "systemctl", "restart", "mofed-rxe.service")

    lab.run(NODE, "systemd-run", "--unit=mofed-job", "--collect", "python3", "-c", HOLD)
    try:
        lab.shell(NODE, "for n in $(seq 60); do test -e /run/held && exit; sleep 1; done; exit 1")
        refused(remove(lab), "in_use", "python3 (pid")
        assert lab.run(NODE, "ls", "/sys/class/infiniband").split() == ["rxe0"]
        lab.run(NODE, "ls", *FILES)
    finally:
        lab.run(NODE, "systemctl", "stop", "mofed-job.service")
        lab.run(NODE, "rm", "-f", "/run/held")
    right(lab.role("mofed", "remove", limit=NODE), NODE)
    assert lab.run(NODE, "ls", "/sys/class/infiniband", check=False).split() == []
    assert lab.shell(NODE, f"ls {' '.join(FILES)} 2>/dev/null || true") == ""
    assert lab.run(NODE, "systemd-run", "--quiet", "--wait", "--pipe", "bash", "-c", "ulimit -l").strip() != "unlimited"
