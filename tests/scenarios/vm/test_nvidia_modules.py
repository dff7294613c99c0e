# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia_driver on real kernels: modules that are loaded, refuse to go, go, and a reboot that the role makes itself, into the next kernel.

The modules are ours (tests/lab/vm/modules) under the vendor's names, in packages with the vendor's names, versions and
dependencies. The kernels that load them, modprobe, udev, systemd, dpkg, apt and dkms, which builds them for the next kernel, are the
real ones. What no quicker test can prove: that a node which boots another kernel has its modules there, or is told beforehand.
"""

from __future__ import annotations

import pathlib
import typing as t

import next_kernel
import pytest
from kernel_modules import REBOOT_TIMEOUT_S, counting_boots, hold, let_go, made, pack, see
from outcome import changed, refused, right
from own_machine import NODE
from rdma import OFED

if t.TYPE_CHECKING:
    from conftest import Result, VmLab

ROOT = pathlib.Path(__file__).resolve().parents[3]
OLD, NEW = "580.95.05", "580.126.16"
SMI = "/opt/lab-driver/nvidia-smi"

# GPUs on the PCI bus, at this boot and at every other.
GPUS_UNIT = """[Unit]
DefaultDependencies=no
After=local-fs.target
Before=sysinit.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/sbin/insmod /opt/lab-driver/%v/lab_gpus.ko
ExecStop=/usr/sbin/rmmod lab_gpus
[Install]
WantedBy=sysinit.target
"""
# The simulated nvidia-smi, as it would be with the driver that the kernel runs and the library that is installed.
SMI_SCRIPT = """#!/bin/sh
version=$(cat /sys/module/nvidia/version 2>/dev/null) || {
  echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
  exit 9
}
[ -e "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.$version" ] || {
  echo "Failed to initialize NVML: Driver/library version mismatch"
  exit 18
}
sed 's/"driver_version": "[^"]*"/"driver_version": "'"$version"'"/' /var/lib/gpu-simulator/state.json >/run/lab-smi.json
GPU_SIMULATOR_STATE=/run/lab-smi.json exec /usr/bin/nvidia-smi "$@"
"""
# Nothing of all that.
AS_BEFORE = """
systemctl --quiet stop lab-gpus.service 2>/dev/null || true
systemctl --quiet disable lab-gpus.service 2>/dev/null || true
rm -f /etc/modprobe.d/lab-nouveau.conf
cd /etc/initramfs-tools
[ ! -e update-initramfs.conf.lab ] || mv update-initramfs.conf.lab update-initramfs.conf
[ ! -d /opt/lab-driver/apt ] || { rm -r /etc/apt/sources.list*; mv /opt/lab-driver/apt/* /etc/apt; }
rm -rf /opt/lab-driver
"""


class Driver:
    """The role and its module, told to install the driver from the vendor's repository on the node."""

    def __init__(self, lab: VmLab, repository: dict[str, t.Any]) -> None:
        self.lab = lab
        self.options = {
            "source": "cuda_repo",
            "repository_url": f"file:{repository['path']}",
            "repository_key": f"{repository['path']}/repository.asc",
            "repository_fingerprint": repository["fingerprint"],
            "nvidia_smi": SMI,
            # The stand-in of the driver has no library of CUDA.
            "cuda_library": "",
            "reboot_timeout_s": REBOOT_TIMEOUT_S,
        }

    def module(self, version: str, state: str = "present", check: bool = False, **consent: bool) -> dict[str, t.Any]:
        """Call the module, whose defaults are the role's."""
        allowed = {f"allow_{name}": value for name, value in consent.items()}
        options = {**self.options, "version": version, "state": state, **allowed}
        return self.lab.module("hpcai.gpu_cluster.nvidia_driver", options, check=check)

    def role(self, version: str, *argv: str, **consent: bool) -> Result:
        """Run the role."""
        allowed = {f"allow_{name}": value for name, value in consent.items()}
        options = {**self.options, "version": version, **allowed}
        variables = {f"nvidia_driver_{name}": value for name, value in options.items()}
        return self.lab.role("nvidia_driver", "main", "-v", *argv, limit=NODE, **variables)


def stack(lab: VmLab) -> dict[str, t.Any]:
    """What mofed's verification says of the InfiniBand stack, as of one that the image brought."""
    return lab.module("hpcai.gpu_cluster.rdma_check", {"source": "preinstalled"})


@pytest.fixture(scope="module")
def driver(vm_lab: VmLab) -> t.Iterator[Driver]:
    """The driver on a node with two GPUs and the vendor's repository, and with no other; as it was afterwards."""
    with counting_boots(vm_lab) as modules:
        yield from installed(vm_lab, modules)


def installed(vm_lab: VmLab, modules: pathlib.Path) -> t.Iterator[Driver]:
    """What ``driver`` yields, between making the node ready for it and taking all that away."""
    next_kernel.withdraw(vm_lab)
    kernel, other = next_kernel.releases(vm_lab)
    tools = ROOT / "tests/lab/package_repository"
    about = made(tools / "nvidia.py", ROOT / ".cache/package_repository", kernel, modules / "nvidia")
    files = {
        f"lab-driver/{kernel}/lab_gpus.ko": (modules / "gpus/1/lab_gpus.ko").read_bytes(),
        f"lab-driver/{other}/lab_gpus.ko": (modules.parent / f"kernels/{other}/gpus/1/lab_gpus.ko").read_bytes(),
        "lab-driver/lab-gpus.service": GPUS_UNIT.encode(),
        "lab-driver/nvidia-smi": SMI_SCRIPT.encode(),
    }
    vm_lab.shell(NODE, AS_BEFORE)
    vm_lab.unpack(NODE, pack(files), "/opt")
    vm_lab.unpack(NODE, pathlib.Path(about["archive"]).read_bytes(), "/opt")
    vm_lab.shell(
        NODE,
        # Until the role forbids it itself, nothing else shall take the GPUs.
        "echo 'blacklist nouveau' >/etc/modprobe.d/lab-nouveau.conf;"
        # QEMU hands over the initramfs, so the node's own is of no use, and making it takes a minute under emulation.
        "sed -i.lab s/=.*/=no/ /etc/initramfs-tools/update-initramfs.conf;"
        "mkdir /opt/lab-driver/apt; mv /etc/apt/sources.list* /opt/lab-driver/apt; mkdir /etc/apt/sources.list.d;"
        "systemctl --quiet enable --now /opt/lab-driver/lab-gpus.service; udevadm settle",
    )
    one = Driver(vm_lab, about)
    yield one
    let_go(vm_lab)
    removed = one.module(OLD, "absent", unload=True)
    headers = f"linux-headers-amd64 linux-headers-{kernel}"
    vm_lab.shell(NODE, f"dpkg --purge {headers} 2>/dev/null; rm -r {about['path']}; {AS_BEFORE}")
    next_kernel.withdraw(vm_lab)
    assert changed(removed)


def test_the_driver_is_unloaded_with_consent_and_when_nothing_uses_it(vm_lab: VmLab, driver: Driver) -> None:
    lab = vm_lab
    assert right(driver.role(OLD, upgrade=True, unload=True), NODE)["changed"] == 1
    before = see(lab)
    assert (before["nvidia"], before["nvidia_uvm"], before["persistenced"]) == (OLD, OLD, "active")
    assert lab.run(NODE, "readlink", "/sys/bus/pci/devices/1000:00:00.0/driver").endswith("/nvidia\n")
    # The option came with the load.
    assert "RmProfilingAdminOnly: 1" in lab.run(NODE, "cat", "/proc/driver/nvidia/params")

    # Without consent to touch what runs; with it, but in use; and in use by something that only the kernel knows of.
    refused(driver.module(NEW, upgrade=True), "consent_missing", "allow_unload", "allow_reboot", OLD, NEW)
    assert see(lab) == before
    hold(lab, "/dev/nvidiactl")
    refused(driver.module(NEW, upgrade=True, unload=True), "in_use", "the GPUs are used by python3 (")
    assert see(lab) == before
    let_go(lab)
    lab.shell(NODE, "mknod /root/lab-control c 10 $(grep nvidiactl /proc/misc | cut -d' ' -f1)")
    hold(lab, "/root/lab-control")
    refused(driver.module(NEW, upgrade=True, unload=True), "in_use", "Module nvidia is in use", "runs again")
    # nvidia_uvm had gone already, and persistenced was stopped: both are back.
    assert see(lab) == before
    let_go(lab)
    lab.run(NODE, "rm", "/root/lab-control")

    assert changed(driver.module(NEW, upgrade=True, unload=True))
    after = see(lab)
    assert (after["nvidia"], after["nvidia_uvm"], after["persistenced"]) == (NEW, NEW, "active")
    assert after["boot"] == before["boot"]

    # Somebody changes the packages by hand, and the kernel goes on with what it has.
    lab.shell(
        NODE,
        "apt-get -qq -y --allow-downgrades --allow-change-held-packages install "
        f'$(dpkg-query -W | awk \'$2 == "{NEW}-1" {{print $1 "={OLD}-1"}}\') >/dev/null',
    )
    refused(
        driver.module(OLD, "verified"),
        "driver_wrong",
        f"The kernel runs driver {NEW}, but the libraries are those of {OLD}",
        f"The kernel runs driver {NEW}, but the module on disk is {OLD}",
        "allow_unload",
    )
    assert see(lab)["nvidia"] == NEW
    assert changed(driver.module(OLD, unload=True))
    healed = see(lab)
    assert (healed["nvidia"], healed["boot"]) == (OLD, before["boot"])


def test_the_role_reboots_once_and_the_new_driver_runs(vm_lab: VmLab, driver: Driver, tmp_path: pathlib.Path) -> None:
    """It reboots into another kernel, which came without its headers."""
    lab = vm_lab
    if see(lab).get("nvidia") != OLD:
        assert changed(driver.module(OLD, upgrade=True, unload=True))
    # Now it is the role's own setting that keeps nouveau away.
    lab.run(NODE, "rm", "-f", "/etc/modprobe.d/lab-nouveau.conf")

    kernel = next_kernel.offer(lab, tmp_path)
    # The role has installed the metapackage of the headers, so that an upgrade of the system brings them with the kernel.
    upgrade = lab.run(NODE, "apt-get", "--simulate", "dist-upgrade")
    brought = {line.split()[1] for line in upgrade.splitlines() if line.startswith("Inst ")}
    assert {f"linux-image-{kernel}", f"linux-headers-{kernel}"} <= brought, upgrade
    # Here somebody upgrades the kernel alone. dkms has no headers to build for it, and says so to nobody who reads it.
    lab.shell(NODE, next_kernel.UPGRADE)
    assert next_kernel.boot(lab) == kernel
    remedy = f"`dkms autoinstall -k {kernel}`"
    told = f"The next boot takes kernel {kernel}, for which there is no driver"
    refused(driver.module(OLD, "verified"), "driver_wrong", told, remedy)
    lacks = f"for the next boot: expected for kernel {kernel}, found none, and its headers are missing"
    refused(stack(lab), "rdma_mismatch", lacks, remedy)

    hold(lab, "/dev/nvidiactl")
    before = see(lab)
    consent = {"upgrade": True, "unload": True, "reboot": True}
    planned = driver.module(NEW, check=True, **consent)
    assert changed(planned)
    told = [change["what"] for change in planned["changes"]]
    assert f"upgrade libcuda1 {OLD}-1 to {NEW}-1" in told
    assert any(f"linux-headers-{kernel}" in what for what in told), told
    assert see(lab) == before

    # A job keeps the driver busy, so it cannot be unloaded: what remains is the reboot.
    done = driver.role(NEW, **consent)
    assert right(done, NODE)["changed"] == 1
    assert "rebooted: true" in done.output
    after = see(lab)
    assert (after["boot"] != before["boot"], int(after["boots"])) == (True, int(before["boots"]) + 1)
    assert (after["nvidia"], after["persistenced"]) == (NEW, "active")
    assert lab.shell(NODE, "ls -d /sys/module/nouveau 2>/dev/null || true") == ""
    # On the kernel for which dkms built both drivers. openibd loaded its own when the node booted, and did not fail for want of a
    # module that the drop-in of this role looks for when it has started.
    modules = [f"/lib/modules/{kernel}/updates/dkms/{name}.ko" for name in ("nvidia", "mlx5_core")]
    assert lab.shell(NODE, "uname -r; modinfo -n nvidia; modinfo -n mlx5_core").split() == [kernel, *modules]
    assert after["mlx5_core"] == OFED
    openibd = lab.run(NODE, "systemctl", "show", "-p", "ActiveState,ExecStartPost", "openibd.service")
    assert "ActiveState=active" in openibd
    assert "ignore_errors=yes" in openibd
    assert "status=1" in openibd
    assert not stack(lab)["failed"]

    assert not changed(driver.module(NEW, **consent))
    assert see(lab) == after
