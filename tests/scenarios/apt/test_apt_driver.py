# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module nvidia_driver on nodes of Ubuntu, with the real dpkg and apt and Ubuntu's names.

What no quicker test can show: that apt takes our words, pins and holds for packages whose relations are Canonical's.
"""

from __future__ import annotations

import pytest
from lab.layered_node.node import told
from lab.package_repository import repository, ubuntu
from lab.package_repository.ubuntu_driver import BREAK
from ubuntu_modules import AGREED, HEADLESS, Nodes, driver, vendor_driver
from ubuntu_node import INSTALL, Node, versions


def firmware(node: Node) -> set[str]:
    """The packages of firmware, which have the driver's version in their names."""
    return {name for name in node.installed if name.startswith("nvidia-firmware-")}


@pytest.mark.parametrize("release", ["22.04", "24.04"])
def test_a_driver_is_installed_for_both_kernels_and_stays(nodes: Nodes, release: str) -> None:
    node = nodes.with_driver(release)
    assert versions(node) == {ubuntu.NEW}
    assert {HEADLESS, "nvidia-dkms-580-server-open", "nvidia-utils-580-server"} <= set(node.installed)
    # Only what is needed: no desktop, nothing that is recommended, nor a Fabric Manager without NVSwitches.
    assert not {"nvidia-settings", "xserver-xorg-video-nvidia-580-server", "nvidia-fabricmanager-580"} & set(
        node.installed
    )
    assert {f"linux-headers-{node.release.kernels[0]}", f"linux-headers-{node.release.flavor}"} <= set(node.installed)
    assert node.loaded == ubuntu.NEW
    before = node.installed
    again = driver(node)
    assert (again["failed"], again["changed"]) == (False, False), again
    # An upgrade of the whole system brings the next kernel, and dkms builds the same driver for it.
    node.repository("updates")
    node.upgrade("-o", "APT::Get::Always-Include-Phased-Updates=true")
    assert {name: version for name, version in node.installed.items() if name in before and "nvidia" in name} == {
        name: version for name, version in before.items() if "nvidia" in name
    }
    assert node.module_of(1) == ubuntu.NEW


def test_without_a_hold_the_pin_keeps_the_driver(nodes: Nodes) -> None:
    node = nodes.with_driver("24.04")
    node.must("apt-mark", "unhold", *node.held)
    node.repository("updates")
    node.upgrade("-o", "APT::Get::Always-Include-Phased-Updates=true")
    assert versions(node) == {ubuntu.NEW}
    result = driver(node)
    assert not result["failed"], result["msg"]
    assert HEADLESS in node.held


def test_the_kernel_that_boots_next_gets_headers_and_driver(nodes: Nodes) -> None:
    node = nodes.with_driver("22.04")
    node.must("dpkg", "--purge", f"linux-headers-{node.release.flavor}")
    node.repository("kernel")
    node.upgrade()
    assert node.module_of(1) == ""
    result = driver(node)
    assert not result["failed"], result["msg"]
    assert f"linux-headers-{node.release.kernels[1]}" in node.installed
    assert node.module_of(1) == ubuntu.NEW
    node.boot(1)
    assert not driver(node)["failed"]
    assert node.loaded == ubuntu.NEW


@pytest.mark.parametrize("release", ["22.04", "24.04"])
def test_an_upgrade_to_another_branch_changes_every_name(nodes: Nodes, release: str) -> None:
    node = nodes.with_driver(release, ubuntu.OLD)
    refused = driver(node)
    assert refused["error_kind"] == "consent_missing"
    assert versions(node) == {ubuntu.OLD}
    result = driver(node, **AGREED)
    assert not result["failed"], result["msg"]
    assert versions(node) == {ubuntu.NEW}
    assert firmware(node) == {f"nvidia-firmware-580-server-{ubuntu.NEW}"}
    assert not [name for name in node.installed if "-570-" in name]
    assert node.loaded == ubuntu.NEW
    assert not driver(node, **AGREED)["changed"]


def test_a_driver_that_the_image_came_with_makes_way_for_another_branch(nodes: Nodes) -> None:
    """By Canonical's conflicts alone, without a pin of ours, apt refuses this."""
    node = nodes.fresh("24.04", "mirror")
    full = node.release.full(ubuntu.OLD)
    node.must(*INSTALL, f"nvidia-headless-570-server-open={full}", f"nvidia-utils-570-server={full}", *_parts(full))
    result = driver(node, **AGREED)
    assert not result["failed"], result["msg"]
    assert versions(node) == {ubuntu.NEW}
    assert not [name for name in node.installed if "-570-" in name]


def _parts(full: str) -> list[str]:
    """What those depend on, which apt would take in a newer version."""
    names = ("nvidia-headless-no-dkms", "nvidia-dkms", "nvidia-kernel-source")
    shared = ("nvidia-kernel-common", "libnvidia-compute", "nvidia-compute-utils", "libnvidia-cfg1")
    return [*(f"{one}-570-server-open={full}" for one in names), *(f"{one}-570-server={full}" for one in shared)]


@pytest.mark.parametrize("release", ["22.04", "24.04"])
def test_both_directions_within_a_branch_leave_no_firmware_of_the_other_version(nodes: Nodes, release: str) -> None:
    node = nodes.with_driver(release)
    for version in (ubuntu.NEWEST, ubuntu.NEW):
        result = driver(node, version=version, **AGREED)
        assert not result["failed"], result["msg"]
        assert versions(node) == {version}
        assert firmware(node) == {f"nvidia-firmware-580-server-{version}"}
        assert node.loaded == version
        assert not driver(node, version=version)["changed"]
    full = node.release.full
    line = f"package {HEADLESS}: downgrade {HEADLESS} {full(ubuntu.NEWEST)} to {full(ubuntu.NEW)}"
    assert line in told(result)


def test_the_other_kernel_module_takes_the_place_of_the_open_one(nodes: Nodes) -> None:
    node = nodes.with_driver("24.04")
    result = driver(node, kernel_module="proprietary", **AGREED)
    assert not result["failed"], result["msg"]
    assert "nvidia-headless-580-server" in node.installed
    assert not [name for name in node.installed if name.endswith("-open")]
    assert "Open" not in node.read("/proc/driver/nvidia/version")


def test_a_desktop_s_driver_makes_way_for_the_one_for_servers(nodes: Nodes) -> None:
    node = nodes.fresh("24.04", "mirror")
    node.must(*INSTALL, f"nvidia-driver-580-open={node.release.full(ubuntu.NEW)}", f"linux-headers-{node.kernel}")
    result = driver(node)
    assert not result["failed"], result["msg"]
    assert HEADLESS in node.installed
    assert not [name for name in node.installed if name.endswith(("-580", "-580-open"))]


def test_fabric_manager_has_the_driver_s_version(nodes: Nodes) -> None:
    node = nodes.with_driver("24.04", switches=1)
    manager, full = "nvidia-fabricmanager-580", node.release.full
    assert node.installed[manager] == full(ubuntu.NEW)
    result = driver(node, version=ubuntu.NEWEST, **AGREED)
    assert not result["failed"], result["msg"]
    assert node.installed[manager] == full(ubuntu.NEWEST)


@pytest.mark.parametrize("release", ["22.04", "24.04"])
def test_a_fabric_manager_of_another_version_is_brought_to_the_driver_s(nodes: Nodes, release: str) -> None:
    node = nodes.with_driver(release, switches=1)
    manager, full = "nvidia-fabricmanager-580", node.release.full
    node.must("dpkg", "--force-depends", "--install", deb(node, "updates", manager, full(ubuntu.NEWEST)))
    result = driver(node)
    assert not result["failed"], result["msg"]
    assert node.installed[manager] == full(ubuntu.NEW)
    assert "unit nvidia-fabricmanager.service: restart" in told(result)
    # That alone does not touch the driver that runs.
    assert not [line for line in told(result) if line.startswith("kernel module")]


def deb(node: Node, place: str, name: str, version: str) -> str:
    """The file of a package in a repository."""
    (path,) = node.path(f"{repository.PLACE}/{place}").glob(f"{name}_{version}_*.deb")
    return f"{repository.PLACE}/{place}/{path.name}"


def test_the_vendor_s_driver_does_not_mix_with_the_distribution_s_of_the_same_names(nodes: Nodes) -> None:
    node = nodes.fresh("24.04", "mirror")
    result = vendor_driver(node, dcgm=True)
    assert not result["failed"], result["msg"]
    full = {version for name, version in node.installed.items() if "-580" in name}
    assert full == {f"{ubuntu.NEW}-0ubuntu1"}
    assert node.loaded == ubuntu.NEW
    assert not vendor_driver(node, dcgm=True)["changed"]
    newer = vendor_driver(node, version=ubuntu.NEWEST, dcgm=True, **AGREED)
    assert not newer["failed"], newer["msg"]
    assert versions(node, ("-580",)) == {ubuntu.NEWEST}


def test_a_machine_of_nvlink_5_gets_its_subnet_manager(nodes: Nodes) -> None:
    node = nodes.fresh("24.04", "mirror", gpus=0)
    for name, files in {
        "0001:00:00.0": {"vendor": "0x10de", "class": "0x030200", "device": "0x2901"},
        "0002:00:00.0": {"vendor": "0x15b3", "class": "0x020700", "device": "0x1021", "vpd": "SW_MNG"},
    }.items():
        for file, value in files.items():
            node.write(f"/sys/bus/pci/devices/{name}/{file}", value)
    result = vendor_driver(node)
    assert not result["failed"], result["msg"]
    assert {"nvlsm", "libnvsdm", "nvidia-fabricmanager", "infiniband-diags"} <= set(node.installed)
    assert node.installed["libnvsdm"] == f"{ubuntu.NEW}-1"


@pytest.mark.parametrize("how", ["fail", "kill"])
@pytest.mark.parametrize("release", ["22.04", "24.04"])
def test_a_transaction_that_was_cut_off_is_finished(nodes: Nodes, release: str, how: str) -> None:
    node = nodes.with_driver(release)
    node.write(BREAK, how)
    broken = driver(node, version=ubuntu.NEWEST, **AGREED)
    assert broken["failed"]
    node.path(BREAK).unlink()
    result = driver(node, version=ubuntu.NEWEST, **AGREED)
    assert not result["failed"], result["msg"]
    assert versions(node) == {ubuntu.NEWEST}
    assert firmware(node) == {f"nvidia-firmware-580-server-{ubuntu.NEWEST}"}
    assert node.must("dpkg", "--audit") == ""
    assert node.loaded == ubuntu.NEWEST
    assert not driver(node, version=ubuntu.NEWEST)["changed"]


def test_after_one_that_was_cut_off_the_way_back_is_open_too(nodes: Nodes) -> None:
    node = nodes.with_driver("24.04")
    node.write(BREAK, "kill")
    assert driver(node, version=ubuntu.NEWEST, **AGREED)["failed"]
    node.path(BREAK).unlink()
    result = driver(node, **AGREED)
    assert not result["failed"], result["msg"]
    assert versions(node) == {ubuntu.NEW}
    assert node.loaded == ubuntu.NEW


@pytest.mark.parametrize("release", ["22.04", "24.04"])
def test_a_removal_takes_the_driver_its_holds_and_its_files(nodes: Nodes, release: str) -> None:
    node = nodes.with_driver(release, switches=1)
    result = driver(node, state="absent", allow_unload=True)
    assert not result["failed"], result["msg"]
    assert not [name for name in node.installed if "nvidia" in name]
    assert not node.loaded
    assert (node.held, node.read("/etc/apt/preferences.d/nvidia-driver")) == (set(), "")
    # What came along stays: others may use it by now.
    assert {"dkms", f"linux-headers-{node.release.flavor}"} <= set(node.installed)


def test_packages_of_others_do_not_leave_with_the_old_driver(nodes: Nodes) -> None:
    node = nodes.with_driver("24.04", ubuntu.OLD)
    site = {"name": "site-monitoring", "version": "1.0-1", "depends": ["libnvidia-compute-570-server"]}
    place = node.path("/srv/site")
    place.parent.mkdir(parents=True, exist_ok=True)
    repository.make(place, repository.parse([site]), origin="site")
    node.write("/etc/apt/sources.list.d/site.list", repository.source("/srv/site"))
    node.must("apt-get", "-qq", "update")
    node.must(*INSTALL, "site-monitoring")
    before = node.installed
    result = driver(node, **AGREED)
    assert result["error_kind"] == "in_use"
    assert "site-monitoring" in result["msg"]
    assert node.installed == before
    assert node.loaded == ubuntu.OLD
