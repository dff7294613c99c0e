# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""mofed on a real kernel: RDMA over Ethernet that goes only when nobody uses it, and a stack with modules.

Reboots are in test_mofed_modules.py and in molecule/vm, a measurement is in test_rdma_between_machines.py.
"""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from kernel_modules import pack
from outcome import changed, refused, right
from own_machine import NODE
from rdma import OFED, SETTINGS, archives, netdev, remove, removed

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


@pytest.fixture
def vendor(vm_lab: VmLab, tmp_path: pathlib.Path) -> t.Iterator[dict[str, dict[str, t.Any]]]:
    """Archives in MLNX_OFED's layout with modules for the node's kernel and another, on the node, and options for them."""
    kernel, release = vm_lab.shell(NODE, "uname -r; cat /etc/debian_version").split()
    made, content = {}, {}
    for name, fitting in (("fits", kernel), ("other", "5.4.0-1")):
        directory = tmp_path / name
        directory.mkdir()
        build = archives(directory, release, fitting)
        content[f"lab-{name}.tgz"] = build.files[OFED].read_bytes()
        made[name] = {
            "source": "mlnx_ofed",
            "version": OFED,
            "sha256": build.sha256,
            "artifact": f"/var/tmp/lab-{name}.tgz",
            "allow_replace": True,
        }
    vm_lab.unpack(NODE, pack(content), "/var/tmp")
    yield made
    vm_lab.shell(NODE, "rm -f /var/tmp/lab-*.tgz")


def test_modules_are_loaded_only_where_they_fit_and_with_consent(
    vm_lab: VmLab, rxe: str, vendor: dict[str, dict[str, t.Any]]
) -> None:
    """ib_core is loaded, so that another build of it is a change that needs consent."""
    lab = vm_lab
    packages = lab.run(NODE, "dpkg-query", "--show")
    lab.shell(NODE, "modprobe ib_core; rm -f /run/openibd.log")

    def module(build: str, **consent: bool) -> dict[str, t.Any]:
        return lab.module("hpcai.gpu_cluster.rdma_stack", {**SETTINGS, "rxe_netdev": rxe, **vendor[build], **consent})

    refused(module("other", allow_restart=True), "headers_missing")
    refused(module("fits"), "consent_missing", "allow_restart")
    assert lab.run(NODE, "dpkg-query", "--show") == packages

    variables = {"mofed_vendor_packages": [], **{f"mofed_{name}": value for name, value in vendor["fits"].items()}}
    right(lab.role("mofed", limit=NODE, mofed_rxe_netdev=rxe, mofed_allow_restart=True, **variables), NODE)
    assert "/updates/" in lab.run(NODE, "modinfo", "-F", "filename", "mlx5_core")
    assert lab.run(NODE, "cat", "/run/openibd.log").split() == ["started"]
    dropped = lab.run(NODE, "systemctl", "show", "-p", "Restart", "openibd.service")
    assert dropped.strip() == "Restart=on-failure"
    assert not changed(module("fits"))

    right(lab.role("mofed", "remove", limit=NODE, **variables), NODE)
    assert lab.run(NODE, "dpkg-query", "--show") == packages
    assert "/updates/" not in lab.run(NODE, "modinfo", "-F", "filename", "mlx5_core")
