# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module nvidia_driver on nodes of EL, with the real rpm and dnf."""

from __future__ import annotations

import shutil

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.dnf import Dnf
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Action
from el_modules import Nodes, driver, own_devices, site
from el_node import Node
from lab.layered_node.node import Programs, told
from lab.package_repository import el
from lab.package_repository.rpms import Rpm

AGREED = {"allow_upgrade": True, "allow_unload": True}
LIST = "/etc/dnf/plugins/versionlock.list"


def versions(node: Node) -> set[str]:
    """The versions of all that belongs to the driver."""
    parts = {name: found for name, found in node.installed.items() if "nvidia" in name and "dnf" not in name}
    return {version.partition("-")[0] for found in parts.values() for version in found}


def stream(node: Node) -> str:
    """The stream of the driver's module that is enabled."""
    lines = node.read("/etc/dnf/modules.d/nvidia-driver.module").splitlines()
    return next((line.partition("=")[2] for line in lines if line.startswith("stream=")), "")


def test_the_key_of_el_10_has_to_be_told(nodes: Nodes) -> None:
    """Its fingerprint is in no document that could be checked."""
    node = nodes.fresh("10")
    before = node.installed
    result = driver(node, repository_url="", repository_key="", repository_fingerprint="")
    assert result["error_kind"] == "bad_input"
    assert "CDF6BA43.pub" in result["msg"]
    assert "`repository_fingerprint`" in result["msg"]
    assert node.installed == before


@pytest.mark.parametrize("major", ["8", "9", "10"])
def test_a_driver_is_installed_beside_two_kernels_and_stays(nodes: Nodes, major: str) -> None:
    node = nodes.with_driver(major, el.NEW)
    assert versions(node) == {el.NEW}
    # Only what is needed: nothing that is recommended, nor a Fabric Manager without NVSwitches.
    assert not {"nvidia-xconfig", "nvidia-fabricmanager", "nvidia-fabric-manager"} & set(node.installed)
    assert len(node.installed["kernel-devel"]) == 2
    assert stream(node) == ("580-open" if major != "10" else "")
    assert node.read("/sys/module/nvidia/version").strip() == el.NEW
    before = node.installed
    again = driver(node)
    assert (again["failed"], again["changed"]) == (False, False), again
    # An upgrade of the whole system leaves the driver alone.
    node.must("dnf", "-y", "-q", "upgrade")
    assert node.installed == before


def test_a_release_that_is_not_known_is_refused_before_anything_is_asked_of_dnf(nodes: Nodes) -> None:
    node = nodes.fresh("10")
    node.write("/usr/lib/os-release", node.release.os_release.replace("10.0", "11.0"))
    before = node.installed
    result = driver(node)
    assert result["error_kind"] == "unsupported_distribution"
    assert "Rocky Linux 11.0" in result["msg"]
    assert node.installed == before
    assert not node.path("/etc/yum.repos.d/nvidia-driver.repo").exists()
    # What an image brought is looked at.
    assert driver(node, source="preinstalled", version="")["error_kind"] == "driver_wrong"


@pytest.mark.parametrize("major", ["9", "10"])
def test_headers_of_the_running_kernel_are_installed_beside_those_of_another(nodes: Nodes, major: str) -> None:
    node = nodes.fresh(major)
    older, newer = node.release.kernels
    node.must("rpm", "--erase", f"kernel-devel-{older}")
    result = driver(node)
    assert not result["failed"], result["msg"]
    assert node.installed["kernel-devel"] == sorted([older, newer])


def test_a_kernel_whose_headers_nobody_has_is_refused_before_anything_is_done(nodes: Nodes) -> None:
    node = nodes.with_driver("9")
    before = node.installed
    gone = f"5.14.0-362.8.1.el9_3.{el.MACHINE}"
    result = driver(node, kernel=gone, **AGREED)
    assert result["error_kind"] == "not_available"
    assert f"kernel-devel-{gone}" in result["msg"]
    assert node.installed == before
    assert node.read("/sys/module/nvidia/version").strip() == el.OLD


@pytest.mark.parametrize("major", ["8", "9", "10"])
def test_an_upgrade_to_another_branch_switches_the_stream_and_moves_the_lock(nodes: Nodes, major: str) -> None:
    node = nodes.with_driver(major)
    assert stream(node) == ("570-open" if major != "10" else "")
    node.write(LIST, f"perl-0:1.0-1.el{major}.*\n" + node.read(LIST))
    refused = driver(node)
    assert refused["error_kind"] == "consent_missing"
    assert versions(node) == {el.OLD}
    result = driver(node, **AGREED)
    assert not result["failed"], result["msg"]
    assert versions(node) == {el.NEW}
    assert node.read("/sys/module/nvidia/version").strip() == el.NEW
    lines = node.read(LIST).splitlines()
    assert lines[0] == f"perl-0:1.0-1.el{major}.*"
    assert all(el.NEW in line for line in lines[1:])
    assert f"nvidia-open-3:{el.NEW}-1.el{major}.*" in lines
    assert not driver(node, **AGREED)["changed"]


@pytest.mark.parametrize("major", ["8", "9", "10"])
def test_a_downgrade_within_a_branch(nodes: Nodes, major: str) -> None:
    node = nodes.with_driver(major, el.NEWEST)
    result = driver(node, **AGREED)
    assert not result["failed"], result["msg"]
    assert versions(node) == {el.NEW}
    downgrade = next(line for line in told(result) if "package nvidia-open: " in line)
    assert (
        downgrade == f"package nvidia-open: downgrade nvidia-open 3:{el.NEWEST}-1.el{major} to 3:{el.NEW}-1.el{major}"
    )


@pytest.mark.parametrize("major", ["9", "10"])
def test_a_downgrade_to_an_older_branch(nodes: Nodes, major: str) -> None:
    node = nodes.with_driver(major, el.NEW)
    result = driver(node, version=el.OLD, **AGREED)
    assert not result["failed"], result["msg"]
    assert versions(node) == {el.OLD}


@pytest.mark.parametrize("major", ["9", "10"])
def test_fabric_manager_follows_the_driver_under_its_new_name(nodes: Nodes, major: str) -> None:
    node = nodes.with_driver(major, switches=1)
    assert node.installed["nvidia-fabric-manager"] == [f"{el.OLD}-1"]
    result = driver(node, **AGREED)
    assert not result["failed"], result["msg"]
    assert "nvidia-fabric-manager" not in node.installed
    assert node.installed["nvidia-fabricmanager"] == [f"{el.NEW}-1"]
    # What takes its place is told, and what goes.
    assert f"package nvidia-fabric-manager: remove nvidia-fabric-manager {el.OLD}-1" in told(result)


@pytest.mark.parametrize("major", ["8", "9", "10"])
def test_a_fabric_manager_of_another_version_is_brought_to_the_driver_s(nodes: Nodes, major: str) -> None:
    node = nodes.with_driver(major, el.NEW, switches=1)
    node.must("dnf", "-y", "-q", "--disableplugin=versionlock", "install", f"nvidia-fabricmanager-{el.NEWEST}")
    result = driver(node)
    assert not result["failed"], result["msg"]
    assert node.installed["nvidia-fabricmanager"] == [f"{el.NEW}-1"]
    # Its package lets the old one run.
    assert "unit nvidia-fabricmanager.service: restart" in told(result)
    # That alone does not touch the driver that runs.
    assert not [line for line in told(result) if line.startswith("kernel module")]


@pytest.mark.parametrize("major", ["9", "10"])
def test_the_other_kernel_module_takes_the_place_of_the_open_one(nodes: Nodes, major: str) -> None:
    node = nodes.with_driver(major, el.NEW)
    result = driver(node, kernel_module="proprietary", **AGREED)
    assert not result["failed"], result["msg"]
    assert {"cuda-drivers", "kmod-nvidia-latest-dkms"} <= set(node.installed)
    assert not {"nvidia-open", "kmod-nvidia-open-dkms"} & set(node.installed)
    assert stream(node) == ("580-dkms" if major != "10" else "")


@pytest.mark.parametrize("major", ["8", "9", "10"])
def test_without_epel_the_refusal_names_dkms_before_anything_is_done(nodes: Nodes, major: str) -> None:
    node = nodes.with_driver(major)
    node.must("rpm", "--erase", "--nodeps", "dkms")
    node.path("/etc/yum.repos.d/epel.repo").unlink()
    result = driver(node, **AGREED)
    assert result["failed"]
    assert result["lacking"] == ["dkms"]
    assert versions(node) == {el.OLD}
    assert node.read("/sys/module/nvidia/version").strip() == el.OLD


def test_a_package_that_a_site_excludes_is_not_said_to_be_missing(nodes: Nodes) -> None:
    node = nodes.fresh("9")
    node.must("rpm", "--erase", f"kernel-devel-{node.release.kernels[0]}")
    node.write("/etc/dnf/dnf.conf", node.read("/etc/dnf/dnf.conf") + "exclude=kernel*\n")
    result = driver(node)
    assert result["error_kind"] == "not_available"
    assert f"kernel-devel-{node.release.kernel(0)}, but dnf hides it (exclude filtering)" in result["msg"]


def test_a_version_that_came_since_the_repository_was_read_is_found(nodes: Nodes) -> None:
    node = nodes.fresh("9")
    node.write("/etc/yum.repos.d/epel.repo", "[epel]\nname=epel\nbaseurl=file:///srv/epel\nenabled=1\ngpgcheck=0\n")
    shutil.copytree(node.path(f"{el.PLACE}/doca"), node.path("/srv/epel"))
    node.must("dnf", "-q", "makecache")
    shutil.rmtree(node.path("/srv/epel"))
    shutil.copytree(node.path(f"{el.PLACE}/foreign"), node.path("/srv/epel"))
    (action,) = node.inside(simulated, ["cuda-toolkit-12-9-12.9.2"])
    assert action.text() == "install cuda-toolkit-12-9 12.9.2-1"


def simulated(words: list[str]) -> list[Action]:
    """What dnf says on the node that it would do."""
    return Dnf(Programs()).simulate(words)


def test_a_key_or_a_package_that_is_not_the_vendor_s_is_refused(nodes: Nodes) -> None:
    node = nodes.fresh("9")
    result = driver(node, repository_fingerprint="0" * 40)
    assert result["error_kind"] == "wrong_key"
    node.repository("foreign", signed=True)
    result = driver(node, cuda_version="12.9")
    assert result["error_kind"] == "package_failed"
    assert "cuda-toolkit-12-9-12.9.2-1.noarch.rpm is not signed" in result["msg"]
    assert "nvidia-open" not in node.installed


@pytest.mark.parametrize("major", ["8", "9", "10"])
def test_a_transaction_that_was_cut_off_is_finished(nodes: Nodes, major: str) -> None:
    node = nodes.with_driver(major, el.NEW)
    node.write(el.BREAK, "")
    assert driver(node, version=el.NEWEST, **AGREED)["failed"]
    node.path(el.BREAK).unlink()
    # The old and the new version of what was installed so far.
    assert [name for name, found in node.installed.items() if len(found) == 2 and "kernel" not in name]
    result = driver(node, version=el.NEWEST, **AGREED)
    assert not result["failed"], result["msg"]
    assert versions(node) == {el.NEWEST}
    assert node.run("dnf", "check")[0] == 0
    assert not driver(node, version=el.NEWEST)["changed"]


@pytest.mark.parametrize("major", ["9", "10"])
def test_going_back_from_a_transaction_that_was_cut_off_brings_the_old_version_back(nodes: Nodes, major: str) -> None:
    node = nodes.with_driver(major, el.NEW)
    before = node.installed
    node.write(el.BREAK, "")
    assert driver(node, version=el.NEWEST, **AGREED)["failed"]
    node.path(el.BREAK).unlink()
    result = driver(node, **AGREED)
    assert not result["failed"], result["msg"]
    assert node.installed == before
    assert node.run("dnf", "check")[0] == 0
    assert node.read("/sys/module/nvidia/version").strip() == el.NEW
    assert not driver(node)["changed"]


COMPANIONS = {"gdrcopy": True, "nscq": True}


def with_companions(nodes: Nodes) -> Node:
    """A node with NVSwitches, an old driver, GDRCopy of a site's repository, and the library that asks NVSwitches."""
    node = nodes.fresh("9", switches=1)
    own_devices(node)
    node.repository("gdrcopy")
    result = driver(node, version=el.OLD, gdrcopy_version=el.GDRCOPY[0], **COMPANIONS)
    assert not result["failed"], result["msg"]
    return node


def test_gdrcopy_and_nscq_come_with_the_driver_follow_it_and_go_with_it(nodes: Nodes) -> None:
    node = with_companions(nodes)
    assert node.installed["libnvidia-nscq-570"] == [f"{el.OLD}-1"]
    assert {name: node.installed[name] for name in ("gdrcopy", "gdrcopy-kmod")} == {
        "gdrcopy": ["2.4.4-1.el9"],
        "gdrcopy-kmod": ["2.4.4-1dkms.el9"],
    }
    # The module's package recommends the proprietary driver.
    assert "kmod-nvidia-latest-dkms" not in node.installed
    assert node.read("/run/lab-gdrdrv") == el.OLD
    assert node.path("/sys/module/gdrdrv").is_dir()
    assert node.path("/dev/gdrdrv").exists()
    assert not driver(node, version=el.OLD, gdrcopy_version=el.GDRCOPY[0], **COMPANIONS)["changed"]
    # Newer ones are there, and stay away: all are locked.
    before = node.installed
    node.must("dnf", "-y", "-q", "upgrade")
    assert node.installed == before
    result = driver(node, gdrcopy_version=el.GDRCOPY[1], **COMPANIONS, **AGREED)
    assert not result["failed"], result["msg"]
    assert "libnvidia-nscq-570" not in node.installed
    assert node.installed["libnvidia-nscq"] == [f"{el.NEW}-1"]
    assert node.installed["gdrcopy-kmod"] == ["2.5.1-1dkms.el9"]
    assert (node.read("/run/lab-gdrdrv"), node.path("/sys/module/gdrdrv").is_dir()) == (el.NEW, True)
    locked = [line for line in node.read(LIST).splitlines() if "nscq" in line or "gdr" in line]
    assert sorted(locked) == [
        "gdrcopy-0:2.5.1-1.el9.*",
        "gdrcopy-kmod-0:2.5.1-1dkms.el9.*",
        f"libnvidia-nscq-0:{el.NEW}-1.*",
    ]
    removed = driver(node, state="absent", gdrcopy=True, allow_unload=True)
    assert not removed["failed"], removed["msg"]
    assert not {"libnvidia-nscq", "gdrcopy", "gdrcopy-kmod"} & set(node.installed)
    assert not node.read(LIST).strip()


def test_verify_says_what_is_wrong_with_gdrcopy_and_nscq(nodes: Nodes) -> None:
    node = with_companions(nodes)
    asked = {"version": el.OLD, "gdrcopy_version": el.GDRCOPY[0], **COMPANIONS}
    assert not driver(node, state="verified", **asked)["failed"]
    node.must("rpm", "--erase", "libnvidia-nscq-570", "gdrcopy")
    shutil.rmtree(node.path("/sys/module/gdrdrv"))
    node.path("/run/lab-gdrdrv").unlink()
    said = driver(node, state="verified", **asked)
    assert said["error_kind"] == "driver_wrong"
    assert {one["message"] for one in said["findings"]} == {
        "libnvidia-nscq is not installed: DCGM does not see the NVSwitches.",
        "gdrcopy is not installed.",
        f"GDRCopy's kernel module gdrdrv is not built for kernel {node.release.kernel(0)}.",
    }
    # The next run brings all of it back, with the driver left alone.
    again = driver(node, **asked)
    assert not again["failed"], again["msg"]
    assert "kernel module gdrdrv: rebuild" in told(again)
    # Another version of the library is a finding of its own.
    node.must("rpm", "--erase", "libnvidia-nscq-570")
    node.must("dnf", "module", "reset", "-y", "-q", "nvidia-driver")
    node.must("dnf", "module", "enable", "-y", "-q", "nvidia-driver:580-open")
    node.must("dnf", "-y", "-q", "--disableplugin=versionlock", "install", f"libnvidia-nscq-{el.NEW}")
    said = driver(node, state="verified", **asked)
    assert f"libnvidia-nscq is {el.NEW}, the driver is {el.OLD}" in said["msg"]


def test_gdrcopy_that_no_repository_has_is_explained_before_anything_is_done(nodes: Nodes) -> None:
    node = nodes.with_driver("9", el.NEW)
    before = node.installed
    result = driver(node, gdrcopy=True)
    assert result["error_kind"] == "not_available"
    assert "put them into a repository of yours" in result["remedy"]
    assert node.installed == before


@pytest.mark.parametrize("major", ["8", "9", "10"])
def test_a_removal_takes_the_driver_and_its_locks(nodes: Nodes, major: str) -> None:
    node = nodes.with_driver(major, el.NEW)
    node.write(LIST, f"perl-0:1.0-1.el{major}.*\n" + node.read(LIST))
    result = driver(node, state="absent", allow_unload=True)
    assert not result["failed"], result["msg"]
    assert not {"nvidia-open", "kmod-nvidia-open-dkms", "libnvidia-ml", "nvidia-persistenced"} & set(node.installed)
    assert not node.path("/sys/module/nvidia").exists()
    assert node.read(LIST) == f"perl-0:1.0-1.el{major}.*\n"
    # What came along stays: others may use it by now.
    assert "dkms" in node.installed


@pytest.mark.parametrize("major", ["9", "10"])
def test_a_removal_stops_at_what_others_need_of_the_driver(nodes: Nodes, major: str) -> None:
    node = nodes.with_driver(major, el.NEW)
    node.must("dnf", "-y", "-q", "install", "site-monitoring")
    result = driver(node, state="absent", allow_unload=True)
    assert result["error_kind"] == "in_use"
    assert "site-monitoring" in result["msg"]
    assert versions(node) == {el.NEW}


@pytest.mark.parametrize("major", ["9", "10"])
def test_packages_of_others_do_not_leave_with_the_old_driver(nodes: Nodes, major: str) -> None:
    """dnf would erase them: it is told to, or it could not exchange one branch's parts for another's."""
    node = nodes.with_driver(major, el.OLD)
    (library,) = node.installed["libnvidia-ml"]
    site(node, Rpm("site-exporter", "1.0-1", requires=(f"libnvidia-ml = 3:{library}",)))
    before = node.installed
    result = driver(node, **AGREED)
    assert result["error_kind"] == "in_use"
    assert "site-exporter" in result["msg"]
    assert "Nothing was changed" in result["msg"]
    assert node.installed == before
    node.must("dnf", "-y", "-q", "remove", "site-exporter")
    result = driver(node, **AGREED)
    assert not result["failed"], result["msg"]
    assert versions(node) == {el.NEW}


def test_a_gdrcopy_that_is_there_is_not_upgraded_by_the_way(nodes: Nodes) -> None:
    node = nodes.with_driver("9", el.NEW, switches=1)
    own_devices(node)
    node.repository("gdrcopy")
    assert not driver(node, gdrcopy=True, gdrcopy_version="2.4")["failed"]
    before = {name: version for name, version in node.installed.items() if "gdrcopy" in name}
    result = driver(node, gdrcopy=True, nscq=True)
    assert not result["failed"], result["msg"]
    assert {name: version for name, version in node.installed.items() if "gdrcopy" in name} == before
