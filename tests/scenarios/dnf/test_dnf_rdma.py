# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module rdma_stack with DOCA on nodes of EL, with the real rpm and dnf."""

from __future__ import annotations

import pytest
from el_modules import Nodes, carried, rdma, site
from el_node import Node
from lab.layered_node.node import told
from lab.package_repository import el
from lab.package_repository.rpms import Rpm, build, index

UNFINISHED = "/var/lib/mofed/unfinished"


def prepared(nodes: Nodes, major: str = "9") -> Node:
    """A node with EPEL and the distribution's RDMA packages."""
    node = nodes.base(major).child()
    node.repository("epel")
    return node


@pytest.mark.parametrize("version", ["3.1.0", "3.2.1"])
@pytest.mark.parametrize("major", ["8", "9", "10"])
def test_doca_is_found_by_its_name_installed_and_removed(nodes: Nodes, major: str, version: str) -> None:
    node = prepared(nodes, major)
    result = rdma(node, version)
    assert not result["failed"], result["msg"]
    assert {"doca-host", "doca-extra", "doca-kernel-repo", "doca-ofed", "mlnx-ofa_kernel"} <= set(node.installed)
    assert node.read("/run/doca-kernel").strip() == node.release.kernel(0)
    assert result["stack"]["source"] == "doca"
    assert not rdma(node, version)["changed"]
    removed = rdma(node, version, state="absent")
    assert not removed["failed"], removed["msg"]
    assert not {"doca-host", "doca-ofed", "doca-ofed-userspace"} & set(node.installed)


@pytest.mark.parametrize("major", ["8", "9", "10"])
def test_another_version_of_doca_takes_the_place_of_the_installed_one_in_both_directions(
    nodes: Nodes, major: str
) -> None:
    node = prepared(nodes, major)
    for version in ("3.1.0", "3.2.1", "3.1.0"):
        result = rdma(node, version)
        assert not result["failed"], result["msg"]
        assert node.installed["doca-ofed"] == [f"{version}-1"]
        # Also what the new packages would have been content with.
        assert node.installed["mlnx-ofa_kernel"] == [f"{el.DOCA[version][-5:].replace('.', '')}-1.el{major}"]
        assert result["stack"]["version"].startswith(version)


def test_doca_comes_from_its_own_repository_whatever_newer_ones_others_have(nodes: Nodes) -> None:
    """A mirror that is ahead of the release that was asked for, as sites have it for their next image."""
    node = prepared(nodes)
    node.repository("ahead")
    node.must("dnf", "-y", "-q", "install", "perftest-4.5")
    for version in ("3.1.0", "3.2.1", "3.1.0"):
        result = rdma(node, version)
        assert not result["failed"], result["msg"]
        build = el.DOCA[version][-5:].replace(".", "")
        assert node.installed["doca-ofed"] == [f"{version}-1"]
        assert node.installed["mlnx-ofa_kernel"] == [f"{build}-1.el9"]
        assert node.installed["perftest"] == [f"{build}.0-1"]
        assert result["stack"]["version"].startswith(version)


def test_what_another_doca_would_push_out_is_named_before_its_repository_comes(nodes: Nodes) -> None:
    """By dnf's own plan, which takes what a package carries of its repository for one that is there."""
    node = prepared(nodes)
    assert not rdma(node, "3.1.0")["failed"]
    (library,) = node.installed["libibverbs"]
    site(node, Rpm("site-bench", "1.0-1", requires=(f"libibverbs = {library}",)))
    before, caches = node.installed, sorted(node.path("/var/cache/dnf").iterdir())
    result = rdma(node, "3.2.1", **carried(node, "3.2.1"))
    assert result["error_kind"] == "conflict"
    assert "site-bench" in result["msg"]
    assert "`allow_replace: true`" in result["msg"]
    assert "Nothing has been changed" in result["msg"]
    assert (node.installed, node.read(UNFINISHED)) == (before, "")
    assert "doca-3.1.0" in node.read("/etc/yum.repos.d/doca.repo")
    assert sorted(node.path("/var/cache/dnf").iterdir()) == caches
    assert not list(node.path("/var/tmp").glob("mofed.*"))
    assert not rdma(node, "3.1.0")["changed"]
    result = rdma(node, "3.2.1", allow_replace=True)
    assert not result["failed"], result["msg"]
    assert node.installed["doca-ofed"] == ["3.2.1-1"]
    assert "site-bench" not in node.installed


@pytest.mark.parametrize("kernel_support", [True, False])
@pytest.mark.parametrize("major", ["8", "9", "10"])
def test_without_epel_doca_is_not_begun(nodes: Nodes, major: str, kernel_support: bool) -> None:
    node = nodes.base(major).child()
    before = node.installed
    result = rdma(node, "3.2.1", kernel_support=kernel_support)
    assert result["error_kind"] == "no_dkms"
    assert "Enable EPEL" in result["remedy"]
    assert "Nothing has been changed" in result["remedy"]
    assert (node.installed, node.read(UNFINISHED)) == (before, "")
    assert not node.read("/etc/yum.repos.d/doca.repo")
    offered = node.path("/srv/extras")
    offered.mkdir()
    text = f"[epel]\nname=epel\nbaseurl=file://{el.PLACE}/epel\nenabled=1\ngpgcheck=0\n"
    build([Rpm("epel-release", f"{major}-1", files={"/etc/yum.repos.d/epel.repo": text})], offered)
    index(offered)
    node.write("/etc/yum.repos.d/extras.repo", "[extras]\nname=x\nbaseurl=file:///srv/extras\nenabled=1\ngpgcheck=0\n")
    dry = rdma(node, "3.2.1", kernel_support=kernel_support, epel=True, _ansible_check_mode=True)
    assert told(dry)[0] == "package epel-release: install"
    assert (node.installed, node.read("/etc/yum.repos.d/epel.repo")) == (before, "")
    result = rdma(node, "3.2.1", kernel_support=kernel_support, epel=True)
    assert not result["failed"], result["msg"]
    assert told(result)[0] == "package epel-release: install"
    assert {"epel-release", "dkms", "doca-ofed"} <= set(node.installed)


@pytest.mark.parametrize("major", ["8", "9", "10"])
def test_without_the_headers_of_the_kernel_doca_is_not_begun(nodes: Nodes, major: str) -> None:
    node = prepared(nodes, major)
    node.must("rpm", "--erase", f"kernel-devel-{node.release.kernels[0]}")
    before = node.installed
    result = rdma(node, "3.2.1")
    assert result["error_kind"] == "headers_missing"
    assert f"kernel-devel-{node.release.kernel(0)}" in result["msg"]
    assert (node.installed, node.read(UNFINISHED)) == (before, "")
    assert not node.read("/etc/yum.repos.d/doca.repo")


def test_what_was_interrupted_is_finished_by_the_next_run(nodes: Nodes) -> None:
    node = prepared(nodes)
    # The vendor's tool cannot make its directory.
    node.write("/tmp/DOCA.lab", "")
    result = rdma(node, "3.2.1")
    assert result["failed"]
    assert node.read(UNFINISHED)
    node.path("/tmp/DOCA.lab").unlink()
    result = rdma(node, "3.2.1")
    assert not result["failed"], result["msg"]
    assert "doca-ofed" in node.installed
    assert not node.read(UNFINISHED)


def test_packages_of_the_distribution_are_installed_once(nodes: Nodes) -> None:
    node = prepared(nodes)
    options = {"source": "inbox", "sha256": {}, "packages": [{"dpkg": "x", "rpm": "perftest"}, "rdma-core"]}
    result = rdma(node, "3.2.1", **options)
    assert not result["failed"], result["msg"]
    assert [one["name"] for one in result["changes"]] == ["perftest"]
    assert node.installed["perftest"] == ["4.5-20.el9"]
    assert not rdma(node, "3.2.1", **options)["changed"]
