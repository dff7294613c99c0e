# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module nvidia_driver on nodes of Ubuntu, whose archive keeps the newest only, and has modules that are built and signed.

What no quicker test can show: which versions the real apt takes or leaves of what an archive offers now, held and pinned by us.
"""

from __future__ import annotations

import pytest
from lab.layered_node.node import told
from lab.package_repository import ubuntu
from ubuntu_modules import AGREED, HEADLESS, Nodes, driver
from ubuntu_node import Node, versions


def test_a_version_that_the_archive_has_no_more_is_named_with_those_that_it_has(nodes: Nodes) -> None:
    node = nodes.fresh("24.04", "updates")
    before = node.installed
    result = driver(node)
    assert result["error_kind"] == "not_available"
    full = node.release.full(ubuntu.NEWEST)
    assert f"{HEADLESS} {ubuntu.NEW} is in no repository of this node. There is {full}." in result["msg"]
    assert result["available"] == [ubuntu.NEWEST]
    assert node.installed == before


def test_a_driver_that_the_archive_has_no_more_does_not_keep_a_kernel_from_its_headers(nodes: Nodes) -> None:
    node = nodes.with_driver("24.04")
    node.must("dpkg", "--purge", f"linux-headers-{node.release.flavor}")
    node.repository("updates")
    node.without("mirror")
    node.upgrade()
    result = driver(node)
    assert not result["failed"], result["msg"]
    assert versions(node) == {ubuntu.NEW}
    assert node.module_of(1) == ubuntu.NEW


def test_what_is_there_in_any_version_stays_at_the_one_that_it_has(nodes: Nodes) -> None:
    node = nodes.with_driver("24.04", switches=1)
    node.must("dpkg", "--purge", "nvidia-fabricmanager-580")
    before = node.installed
    node.repository("kernel")
    result = driver(node)
    assert not result["failed"], result["msg"]
    # Neither the package that brings headers of kernels nor the kernels that it would bring.
    assert [line for line in told(result) if line.startswith("package ")] == [
        f"package nvidia-fabricmanager-580: install nvidia-fabricmanager-580 {node.release.full(ubuntu.NEW)}"
    ]
    assert {name: version for name, version in node.installed.items() if name in before} == before


def test_an_update_that_comes_by_and_by_is_taken_when_asked_for_and_not_by_the_way(nodes: Nodes) -> None:
    node = nodes.with_driver("24.04", switches=1)
    node.must("dpkg", "--purge", "nvidia-fabricmanager-580")
    node.repository("updates")
    dkms = node.installed["dkms"]
    node.upgrade()
    # That it is not the pin which keeps this one: apt knows that it is not this machine's turn.
    assert node.installed["dkms"] == dkms
    assert not driver(node)["failed"]
    assert (node.installed["dkms"], versions(node)) == (dkms, {ubuntu.NEW})
    node.without("mirror")
    result = driver(node, version=ubuntu.NEWEST, **AGREED)
    assert not result["failed"], result["msg"]
    assert versions(node) == {ubuntu.NEWEST}
    assert node.installed["dkms"] == dkms


def test_a_branch_that_ubuntu_gave_up_is_not_replaced_by_another_without_a_word(nodes: Nodes) -> None:
    node = nodes.with_driver("24.04", ubuntu.ENDED)
    assert versions(node) == {ubuntu.ENDED}
    node.repository("updates")
    node.without("mirror")
    # The packages of the next branch bear the wanted version in part.
    node.upgrade("-o", "APT::Get::Always-Include-Phased-Updates=true")
    assert not driver(node, version=ubuntu.ENDED)["changed"]
    fresh = nodes.fresh("24.04", "updates")
    before = fresh.installed
    result = driver(fresh, version=ubuntu.ENDED)
    assert result["error_kind"] == "mixed_versions"
    assert ubuntu.NEWEST in result["msg"]
    assert fresh.installed == before


# -- modules that Canonical builds and signs -----------------------------------------------------------------------------


def signed(node: Node, **options: object) -> dict[str, object]:
    """The driver with Canonical's modules, as Ubuntu's own images for GPUs have it."""
    names = ["nvidia-headless-no-dkms-580-server-open", "nvidia-utils-580-server"]
    names.append(f"linux-modules-nvidia-580-server-open-{node.release.flavor}")
    return driver(node, packages=names, kernel_headers=False, **options)


@pytest.mark.parametrize("release", ["22.04", "24.04"])
def test_signed_modules_come_without_dkms_and_follow_the_kernel(nodes: Nodes, release: str) -> None:
    node = nodes.fresh(release, "mirror")
    result = signed(node)
    assert not result["failed"], result["msg"]
    assert f"linux-modules-nvidia-580-server-open-{node.kernel}" in node.installed
    assert not {"dkms", f"linux-headers-{node.kernel}"} & set(node.installed)
    assert node.loaded == ubuntu.NEW
    assert not signed(node)["changed"]
    # The next kernel comes with modules for the same driver.
    node.repository("kernel")
    node.upgrade()
    assert node.module_of(1) == ubuntu.NEW
    node.boot(1)
    assert not signed(node)["failed"]
    assert node.loaded == ubuntu.NEW


def test_signed_modules_are_those_of_the_wanted_driver(nodes: Nodes) -> None:
    node = nodes.fresh("24.04", "mirror")
    for version in (ubuntu.NEW, ubuntu.NEWEST, ubuntu.NEW):
        result = signed(node, version=version, **AGREED)
        assert not result["failed"], result["msg"]
        assert versions(node) == {version}
        assert node.module_of(0) == version
        assert node.loaded == version


def test_a_removal_takes_signed_modules_along(nodes: Nodes) -> None:
    node = nodes.fresh("24.04", "updates")
    result = signed(node, version=ubuntu.NEWEST)
    assert not result["failed"], result["msg"]
    result = driver(node, state="absent", version=ubuntu.NEWEST, allow_unload=True)
    assert not result["failed"], result["msg"]
    assert not [name for name in node.installed if "nvidia" in name]


def test_modules_built_here_take_the_place_of_signed_ones(nodes: Nodes) -> None:
    node = nodes.fresh("24.04", "updates")
    assert not signed(node, version=ubuntu.NEWEST)["failed"]
    result = driver(node, version=ubuntu.NEWEST, **AGREED)
    assert not result["failed"], result["msg"]
    assert HEADLESS in node.installed
    assert node.loaded == ubuntu.NEWEST


@pytest.mark.parametrize("version", [ubuntu.NEW, ubuntu.NEWEST])
def test_signed_modules_take_the_place_of_modules_built_here(nodes: Nodes, version: str) -> None:
    node = nodes.with_driver("24.04")
    result = signed(node, version=version, **AGREED)
    assert not result["failed"], result["msg"]
    assert not [name for name in node.installed if name.startswith("nvidia-dkms") or name == HEADLESS]
    assert f"linux-modules-nvidia-580-server-open-{node.kernel}" in node.installed
    assert node.module_of(0) == version
    assert not signed(node, version=version, **AGREED)["changed"]
