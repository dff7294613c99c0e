# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drivers on a real kernel: modules that are loaded, refuse to go, go, and reboots that the roles make themselves.

The modules are ours (tests/lab/vm/modules) under the vendors' names, in packages and archives with the vendors' names, versions
and dependencies. The kernel that loads them, modprobe, udev, systemd, dpkg and apt are the real ones.
"""

from __future__ import annotations

import io
import json
import pathlib
import subprocess
import sys
import tarfile
import typing as t

import pytest
from lab.fingerprint import SCRIPT, difference
from own_machine import NODE

if t.TYPE_CHECKING:
    from conftest import Result, VmLab

ROOT = pathlib.Path(__file__).resolve().parents[3]
OLD, NEW = "580.95.05", "580.126.16"
OFED, NEWER_OFED = "24.10-3.2.5.0", "24.10-4.1.4.0"
# Shorter than what a playbook may take here, so that it is the role that tells of a node that did not come back.
REBOOT_TIMEOUT_S = 600
SMI = "/opt/lab-driver/nvidia-smi"
BOOTS = "/var/lib/lab-boots"
HOLD = "import os, sys, time; os.open(sys.argv[1], os.O_RDWR); open('/run/held', 'w'); time.sleep(900)"

# A line for each boot.
BOOTS_UNIT = f"""[Service]
Type=oneshot
ExecStart=/bin/sh -c 'cat /proc/sys/kernel/random/boot_id >>{BOOTS}'
[Install]
WantedBy=multi-user.target
"""
# GPUs on the PCI bus, at this boot and at every other.
GPUS_UNIT = """[Unit]
DefaultDependencies=no
After=local-fs.target
Before=sysinit.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/sbin/insmod /opt/lab-driver/lab_gpus.ko
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
SEE = f"""
for module in nvidia nvidia_uvm mlx5_core; do
  [ ! -d /sys/module/$module ] || echo "$module $(cat /sys/module/$module/version 2>/dev/null || echo inbox)"
done
echo boot $(cat /proc/sys/kernel/random/boot_id)
echo boots $(cat {BOOTS} 2>/dev/null | wc -l)
echo packages $(dpkg-query -W | sha256sum)
echo debug_mask $(cat /sys/module/mlx5_core/parameters/debug_mask 2>/dev/null || true)
echo persistenced $(systemctl is-active nvidia-persistenced.service || true)
"""


def see(lab: VmLab) -> dict[str, str]:
    """Versions of the modules that the kernel runs, the boot, the packages."""
    pairs = (line.split(maxsplit=1) for line in lab.shell(NODE, SEE).splitlines())
    return {pair[0]: pair[1] if len(pair) > 1 else "" for pair in pairs}


def hold(lab: VmLab, path: str) -> None:
    """Let a process that nobody knows keep a device open."""
    lab.run(NODE, "systemd-run", "--quiet", "--unit=lab-holder", "--collect", "python3", "-c", HOLD, path)
    lab.shell(NODE, "for n in $(seq 60); do test -e /run/held && exit; sleep 1; done; exit 1")


def let_go(lab: VmLab) -> None:
    lab.shell(NODE, "systemctl stop lab-holder.service 2>/dev/null || true; rm -f /run/held")


def refused(result: Result, kind: str, *words: str) -> None:
    """A run that ended with this error and these words, whatever line breaks the output has."""
    said = " ".join(result.output.split())
    assert result.rc != 0, result.output
    for word in (f"error_kind: {kind}", *words):
        assert word in said, result.output


def right(result: Result) -> dict[str, int]:
    assert result.rc == 0, result.output
    return result.recap(NODE)


def pack(files: t.Mapping[str, bytes]) -> bytes:
    """A tar archive of programs."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644 if name.endswith(".service") else 0o755
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def made(*argv: str | pathlib.Path) -> dict[str, t.Any]:
    """What a maker of packages says that it made."""
    done = subprocess.run([sys.executable, *argv], check=True, capture_output=True, text=True).stdout
    return t.cast("dict[str, t.Any]", json.loads(done))


@pytest.fixture(scope="module")
def modules(vm_lab: VmLab) -> t.Iterator[pathlib.Path]:
    """Where the image has our modules; and the node counts its boots."""
    vm_lab.unpack(NODE, pack({"lab-boots.service": BOOTS_UNIT.encode()}), "/opt")
    vm_lab.shell(NODE, f"rm -f {BOOTS}; systemctl --quiet enable /opt/lab-boots.service")
    yield pathlib.Path(vm_lab.lab["image"]) / "modules"
    vm_lab.shell(NODE, f"systemctl --quiet disable lab-boots.service; rm -f /opt/lab-boots.service {BOOTS}")


# -- nvidia_driver -------------------------------------------------------------------------------------------------------


Role = t.Callable[..., "Result"]


@pytest.fixture(scope="module")
def driver(vm_lab: VmLab, modules: pathlib.Path) -> t.Iterator[Role]:
    """The role on a node with two GPUs and the vendor's repository, and with no other; as it was afterwards."""
    kernel = vm_lab.run(NODE, "uname", "-r").strip()
    tools = ROOT / "tests/lab/package_repository"
    about = made(tools / "nvidia.py", ROOT / ".cache/package_repository", kernel, modules / "nvidia")
    files = {
        "lab-driver/lab_gpus.ko": (modules / "gpus/1/lab_gpus.ko").read_bytes(),
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

    def role(version: str, tasks_from: str = "main", *argv: str, **consent: bool) -> Result:
        return vm_lab.role(
            "nvidia_driver",
            tasks_from,
            "-v",
            *argv,
            limit=NODE,
            nvidia_driver_source="cuda_repo",
            nvidia_driver_version=version,
            nvidia_driver_repository_url=f"file:{about['path']}",
            nvidia_driver_repository_key=f"{about['path']}/repository.asc",
            nvidia_driver_repository_fingerprint=about["fingerprint"],
            nvidia_driver_nvidia_smi=SMI,
            nvidia_driver_reboot_timeout_s=REBOOT_TIMEOUT_S,
            **{f"nvidia_driver_allow_{name}": value for name, value in consent.items()},
        )

    yield role
    let_go(vm_lab)
    removed = role(OLD, "remove", unload=True)
    vm_lab.shell(NODE, f"dpkg --purge linux-headers-{kernel}; rm -r {about['path']}; {AS_BEFORE}")
    right(removed)


def test_the_driver_is_unloaded_with_consent_and_when_nothing_uses_it(vm_lab: VmLab, driver: Role) -> None:
    lab = vm_lab
    assert right(driver(OLD, upgrade=True, unload=True))["changed"] == 1
    before = see(lab)
    assert (before["nvidia"], before["nvidia_uvm"], before["persistenced"]) == (OLD, OLD, "active")
    assert lab.run(NODE, "readlink", "/sys/bus/pci/devices/1000:00:00.0/driver").endswith("/nvidia\n")
    # The option came with the load.
    assert "RmProfilingAdminOnly: 1" in lab.run(NODE, "cat", "/proc/driver/nvidia/params")

    # Without consent to touch what runs; with it, but in use; and in use by something that only the kernel knows of.
    refused(
        driver(NEW, upgrade=True),
        "consent_missing",
        "nvidia_driver_allow_unload",
        "nvidia_driver_allow_reboot",
        OLD,
        NEW,
    )
    assert see(lab) == before
    hold(lab, "/dev/nvidiactl")
    refused(driver(NEW, upgrade=True, unload=True), "in_use", "the GPUs are used by python3 (")
    assert see(lab) == before
    let_go(lab)
    lab.shell(NODE, "mknod /root/lab-control c 10 $(grep nvidiactl /proc/misc | cut -d' ' -f1)")
    hold(lab, "/root/lab-control")
    refused(driver(NEW, upgrade=True, unload=True), "in_use", "Module nvidia is in use", "runs again")
    # nvidia_uvm had gone already, and persistenced was stopped: both are back.
    assert see(lab) == before
    let_go(lab)
    lab.run(NODE, "rm", "/root/lab-control")

    assert right(driver(NEW, upgrade=True, unload=True))["changed"] == 1
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
        driver(OLD, "verify"),
        "driver_wrong",
        f"The kernel runs driver {NEW}, but the libraries are those of {OLD}",
        f"The kernel runs driver {NEW}, but the module on disk is {OLD}",
        "nvidia_driver_allow_unload",
    )
    assert see(lab)["nvidia"] == NEW
    assert right(driver(OLD, unload=True))["changed"] == 1
    healed = see(lab)
    assert (healed["nvidia"], healed["boot"]) == (OLD, before["boot"])


def test_the_role_reboots_once_and_the_new_driver_runs(vm_lab: VmLab, driver: Role) -> None:
    lab = vm_lab
    if see(lab).get("nvidia") != OLD:
        right(driver(OLD, upgrade=True, unload=True))
    # Now it is the role's own setting that keeps nouveau away.
    lab.run(NODE, "rm", "-f", "/etc/modprobe.d/lab-nouveau.conf")
    hold(lab, "/dev/nvidiactl")
    before, files = see(lab), lab.shell(NODE, SCRIPT)
    consent = {"upgrade": True, "unload": True, "reboot": True}
    planned = driver(NEW, "main", "--check", "--diff", **consent)
    assert right(planned)["changed"] == 1
    assert f"upgrade libcuda1 {OLD}-1 to {NEW}-1" in planned.output
    assert not difference(files, lab.shell(NODE, SCRIPT))
    assert see(lab) == before

    # A job keeps the driver busy, so it cannot be unloaded: what remains is the reboot.
    done = driver(NEW, **consent)
    assert right(done)["changed"] == 1
    assert "rebooted: true" in done.output
    after = see(lab)
    assert (after["boot"] != before["boot"], int(after["boots"])) == (True, int(before["boots"]) + 1)
    assert (after["nvidia"], after["persistenced"]) == (NEW, "active")
    assert lab.shell(NODE, "ls -d /sys/module/nouveau 2>/dev/null || true") == ""

    again = driver(NEW, **consent)
    assert right(again)["changed"] == 0
    assert see(lab) == after


# -- mofed ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mofed(vm_lab: VmLab, modules: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Role]:
    """The role on a node that runs the kernel's own mlx5_core, and has RDMA over Ethernet; as it was afterwards."""
    kernel, release = vm_lab.shell(NODE, "uname -r; cat /etc/debian_version").split()
    maker = ROOT / "molecule/mofed/files/vendor.py"
    archives, sums = {}, {}
    for name, fitting in (("fits", kernel), ("other", "5.4.0-1")):
        directory = tmp_path_factory.mktemp(name)
        about = made(maker, directory, f"debian{release}", fitting, modules / "mlx5_core")
        sums[name] = about["sha256"]
        for version in (OFED, NEWER_OFED):
            archives[f"{name}-{version}.tgz"] = (directory / about["files"][version]).read_bytes()
    address = vm_lab.lab["nodes"][NODE]["fabric_address"]
    netdev = vm_lab.run(NODE, "ip", "-4", "-o", "address", "show", "to", address).split()[1]

    def role(version: str, tasks_from: str = "main", *argv: str, build: str = "fits", **consent: bool) -> Result:
        return vm_lab.role(
            "mofed",
            tasks_from,
            "-v",
            *argv,
            limit=NODE,
            mofed_source="mlnx_ofed",
            mofed_version=version,
            mofed_sha256=sums[build],
            mofed_artifact=f"/opt/lab-ofed/{build}-{version}.tgz",
            mofed_vendor_packages=[],
            mofed_kernel_support=False,
            mofed_rxe_netdev=netdev,
            mofed_allow_replace=True,
            mofed_reboot_timeout_s=REBOOT_TIMEOUT_S,
            **{f"mofed_allow_{name}": value for name, value in consent.items()},
        )

    vm_lab.shell(NODE, "mkdir -p /opt/lab-ofed")
    vm_lab.unpack(NODE, pack(archives), "/opt/lab-ofed")
    right(vm_lab.role("mofed", "remove", limit=NODE))
    vm_lab.shell(
        NODE,
        "modprobe -a mlx5_core rdma_rxe ib_uverbs; echo 7 >/sys/module/mlx5_core/parameters/debug_mask;"
        f"[ -e /sys/class/infiniband/rxe0 ] || rdma link add rxe0 type rxe netdev {netdev}; udevadm settle; ls /dev/infiniband/uverbs0 >&2",
    )
    yield role
    let_go(vm_lab)
    removed = role(NEWER_OFED, "remove")
    vm_lab.shell(NODE, "rm -rf /opt/lab-ofed; modprobe -r mlx5_core; rdma link delete rxe0 2>/dev/null || true")
    right(removed)


def test_rdma_modules_are_replaced_with_consent_and_when_nobody_works_over_them(vm_lab: VmLab, mofed: Role) -> None:
    lab, before = vm_lab, see(vm_lab)
    # The kernel's own module, with a setting that a new load would lose.
    assert (before["mlx5_core"], before["debug_mask"]) == ("inbox", "7")
    refused(
        mofed(OFED, build="other", restart=True), "kernel_mismatch", "no modules for the kernel", "mofed_kernel_support"
    )
    refused(mofed(OFED), "consent_missing", "mofed_allow_restart", "mofed_allow_reboot")
    hold(lab, "/dev/infiniband/uverbs0")
    refused(mofed(OFED, restart=True), "in_use", "python3 (pid")
    let_go(lab)
    assert see(lab) == before

    assert right(mofed(OFED, restart=True))["changed"] >= 1
    after = see(lab)
    assert (after["mlx5_core"], after["boot"]) == (OFED, before["boot"])


def test_rdma_modules_that_do_not_let_go_wait_for_a_reboot_that_the_role_makes(vm_lab: VmLab, mofed: Role) -> None:
    lab = vm_lab
    if see(lab)["mlx5_core"] != OFED:
        right(mofed(OFED, restart=True))
    hold(lab, "/dev/lab_mlx5")
    before = see(lab)
    refused(mofed(NEWER_OFED, restart=True), "still_loaded", "old mlx5_core is still loaded", "mofed_allow_reboot")
    # Now the new modules are on the disk, and the kernel runs the old ones.
    refused(mofed(NEWER_OFED, "verify"), "rdma_mismatch", "other builds of mlx5_core")
    waiting = see(lab)
    planned = mofed(NEWER_OFED, "main", "--check", "--diff", reboot=True)
    assert right(planned)["changed"] >= 1
    assert "mlx5_core loaded from another build" in planned.output
    assert see(lab) == waiting
    assert (waiting["mlx5_core"], waiting["boot"]) == (OFED, before["boot"])

    right(mofed(NEWER_OFED, restart=True, reboot=True))
    after = see(lab)
    assert after["mlx5_core"] == NEWER_OFED
    assert (after["boot"] != before["boot"], int(after["boots"])) == (True, int(before["boots"]) + 1)
    assert lab.run(NODE, "cat", "/sys/class/infiniband/rxe0/ports/1/state") == "4: ACTIVE\n"
    assert right(mofed(NEWER_OFED, restart=True, reboot=True))["changed"] == 0
    assert see(lab) == after
