# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA over Ethernet between two machines: mofed from nothing to a measured bandwidth.

Needs all machines of the lab: no LAB_VM_NODE, and no process beside this one.
"""

from __future__ import annotations

import concurrent.futures
import re
import typing as t

import pytest
from own_machine import SHARED
from rdma import netdev, removed

if t.TYPE_CHECKING:
    from conftest import VmLab

pytestmark = pytest.mark.both


def _remove(lab: VmLab) -> None:
    with concurrent.futures.ThreadPoolExecutor(len(lab.nodes)) as pool:
        list(pool.map(lambda node: removed(lab, node), lab.nodes))


@pytest.fixture
def untouched(vm_lab: VmLab) -> t.Iterator[VmLab]:
    """Machines that have nothing of mofed, before and after."""
    assert not SHARED, "This needs all machines: run it without LAB_VM_NODE and --numprocesses"
    _remove(vm_lab)
    yield vm_lab
    _remove(vm_lab)


def measured(output: str) -> list[float]:
    return [float(text) for text in re.findall(r"average_gbps: ([\d.]+)", output)]


def test_rdma_over_ethernet_from_nothing_to_a_measurement(untouched: VmLab) -> None:
    lab = untouched
    variables = {"mofed_rxe_netdev": netdev(lab), "mofed_verify_bandwidth": True, "mofed_verify_iterations": 200}
    first = lab.role("mofed", "main", "-v", **variables)
    assert first.rc == 0, first.output
    rates = measured(first.output)
    # Both ends tell the same transfer.
    assert len(rates) == 2, first.output
    assert min(rates) > 0
    for node in lab.nodes:
        assert first.recap(node)["changed"] == 1
        assert lab.run(node, "cat", "/sys/class/infiniband/rxe0/ports/1/state").strip() == "4: ACTIVE"
        assert lab.run(node, "cat", "/proc/sys/net/ipv4/neigh/default/gc_thresh3").strip() == "16384"
        assert lab.run(node, "bash", "-lc", "ulimit -l", login=True).strip() == "unlimited"
        service = lab.run(node, "systemd-run", "--quiet", "--wait", "--pipe", "bash", "-c", "ulimit -l; ulimit -n")
        assert service.split() == ["unlimited", "1048576"]
