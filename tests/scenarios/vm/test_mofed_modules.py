# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""mofed with MLNX_OFED's modules on a real kernel: replaced, in use, and a reboot that the role makes itself.

The modules are ours (tests/lab/vm/modules) under the vendor's names, in archives with the vendor's layout. The kernel that loads
them, modprobe, udev, systemd and dpkg are the real ones.
"""

from __future__ import annotations

import typing as t

import pytest
from kernel_modules import REBOOT_TIMEOUT_S, counting_boots, hold, let_go, pack, see
from outcome import changed, refused, right
from own_machine import NODE
from rdma import NEWER_OFED, OFED, SETTINGS, Archives, archives, netdev, remove, removed

if t.TYPE_CHECKING:
    import pathlib

    from conftest import Result, VmLab

# What inventories/vm expects.
FABRIC = {"hcas": [{"name": "rxe0", "link_layer": "Ethernet"}]}


class Mofed:
    """The role and its modules, told to install MLNX_OFED from archives on the node: of builds "fits" and "other"."""

    def __init__(self, lab: VmLab, builds: dict[str, Archives]) -> None:
        self.lab, self.builds = lab, builds
        self.rxe = netdev(lab)

    def options(self, version: str, build: str = "fits", **consent: bool) -> dict[str, t.Any]:
        """What the role's variables and the module's options have in common."""
        return {
            "source": "mlnx_ofed",
            "version": version,
            "sha256": self.builds[build].sha256,
            "artifact": f"/opt/lab-ofed/{build}-{version}.tgz",
            "kernel_support": False,
            "rxe_netdev": self.rxe,
            "allow_replace": True,
            **{f"allow_{name}": value for name, value in consent.items()},
        }

    def module(self, version: str, build: str = "fits", check: bool = False, **consent: bool) -> dict[str, t.Any]:
        """Call the module as the role does."""
        options = {**SETTINGS, **self.options(version, build, **consent)}
        return self.lab.module("hpcai.gpu_cluster.rdma_stack", options, check=check)

    def role(self, version: str, **consent: bool) -> Result:
        """Run the role."""
        variables = {f"mofed_{name}": value for name, value in self.options(version, **consent).items()}
        more = {"mofed_vendor_packages": [], "mofed_reboot_timeout_s": REBOOT_TIMEOUT_S}
        return self.lab.role("mofed", "main", "-v", limit=NODE, **more, **variables)


@pytest.fixture(scope="module")
def mofed(vm_lab: VmLab, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Mofed]:
    """A node that runs the kernel's own mlx5_core, and has RDMA over Ethernet; as it was afterwards."""
    kernel, release = vm_lab.shell(NODE, "uname -r; cat /etc/debian_version").split()
    with counting_boots(vm_lab) as modules:
        fitting = {"fits": kernel, "other": "5.4.0-1"}
        builds = {
            name: archives(tmp_path_factory.mktemp(name), release, version, modules / "mlx5_core")
            for name, version in fitting.items()
        }
        yield from prepared(vm_lab, builds)


def prepared(vm_lab: VmLab, builds: dict[str, Archives]) -> t.Iterator[Mofed]:
    """What ``mofed`` yields, between making the node ready for it and taking all that away."""
    files: dict[str, pathlib.Path] = {
        f"{name}-{version}.tgz": path for name, build in builds.items() for version, path in build.files.items()
    }
    vm_lab.shell(NODE, "mkdir -p /opt/lab-ofed")
    vm_lab.unpack(NODE, pack({name: path.read_bytes() for name, path in files.items()}), "/opt/lab-ofed")
    removed(vm_lab)
    one = Mofed(vm_lab, builds)
    packages = see(vm_lab)["packages"]
    vm_lab.shell(
        NODE,
        "rm -f /run/openibd.log; modprobe -a mlx5_core rdma_rxe ib_uverbs; echo 7 >/sys/module/mlx5_core/parameters/debug_mask;"
        f"[ -e /sys/class/infiniband/rxe0 ] || rdma link add rxe0 type rxe netdev {one.rxe}; udevadm settle; "
        "ls /dev/infiniband/uverbs0 >&2",
    )
    yield one
    let_go(vm_lab)
    done = remove(vm_lab, **one.options(NEWER_OFED))
    vm_lab.shell(NODE, "rm -rf /opt/lab-ofed; modprobe -r mlx5_core; rdma link delete rxe0 2>/dev/null || true")
    assert changed(done)
    assert see(vm_lab)["packages"] == packages
    assert "/updates/" not in vm_lab.run(NODE, "modinfo", "-n", "mlx5_core")


def test_rdma_modules_are_replaced_with_consent_and_when_nobody_works_over_them(vm_lab: VmLab, mofed: Mofed) -> None:
    lab, before = vm_lab, see(vm_lab)
    # The kernel's own module, with a setting that a new load would lose.
    assert (before["mlx5_core"], before["debug_mask"]) == ("inbox", "7")
    other = mofed.module(OFED, build="other", restart=True)
    refused(other, "kernel_mismatch", "no modules for the kernel", "kernel_support")
    told = {**SETTINGS, **mofed.options(OFED, "other", restart=True), "kernel_support": True}
    refused(lab.module("hpcai.gpu_cluster.rdma_stack", told), "headers_missing")
    refused(mofed.module(OFED), "consent_missing", "allow_restart", "allow_reboot")
    hold(lab, "/dev/infiniband/uverbs0")
    refused(mofed.module(OFED, restart=True), "in_use", "python3 (pid")
    let_go(lab)
    assert see(lab) == before

    assert right(mofed.role(OFED, restart=True), NODE)["changed"] >= 1
    after = see(lab)
    assert (after["mlx5_core"], after["boot"]) == (OFED, before["boot"])
    # From where modprobe takes it, by a service that the role started once, and that starts again when it fails.
    looked = lab.shell(
        NODE, "modinfo -n mlx5_core; systemctl show --value -p Restart openibd.service; cat /run/openibd.log"
    )
    place, *rest = looked.split()
    assert ("/updates/" in place, rest) == (True, ["on-failure", "start"])


def test_rdma_modules_that_do_not_let_go_wait_for_a_reboot_that_the_role_makes(vm_lab: VmLab, mofed: Mofed) -> None:
    lab = vm_lab
    if see(lab)["mlx5_core"] != OFED:
        assert changed(mofed.module(OFED, restart=True))
    hold(lab, "/dev/lab_mlx5")
    before = see(lab)
    refused(mofed.module(NEWER_OFED, restart=True), "still_loaded", "old mlx5_core is still loaded", "allow_reboot")
    # Now the new modules are on the disk, and the kernel runs the old ones.
    looked = lab.module(
        "hpcai.gpu_cluster.rdma_check", {"source": "mlnx_ofed", "version": NEWER_OFED, "fabric": FABRIC}
    )
    refused(looked, "rdma_mismatch", "other builds of mlx5_core")
    waiting = see(lab)
    planned = mofed.module(NEWER_OFED, check=True, reboot=True)
    assert changed(planned)
    assert "mlx5_core loaded from another build" in str(planned)
    assert see(lab) == waiting
    assert (waiting["mlx5_core"], waiting["boot"]) == (OFED, before["boot"])

    right(mofed.role(NEWER_OFED, restart=True, reboot=True), NODE)
    after = see(lab)
    assert after["mlx5_core"] == NEWER_OFED
    assert (after["boot"] != before["boot"], int(after["boots"])) == (True, int(before["boots"]) + 1)
    assert lab.run(NODE, "cat", "/sys/class/infiniband/rxe0/ports/1/state") == "4: ACTIVE\n"
    assert lab.run(NODE, "cat", "/proc/sys/vm/zone_reclaim_mode").strip() == "1"
    # udev complains in the journal about rules that it cannot read, and names their file.
    assert lab.shell(NODE, "journalctl -b --no-pager | grep -E 'persistent-naming|90-mofed' || true") == ""
    assert not changed(mofed.module(NEWER_OFED, restart=True, reboot=True))
    assert see(lab) == after
