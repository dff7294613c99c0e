# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module rdma_stack with DOCA on nodes of Ubuntu, with the real dpkg and apt.

What no quicker test can show: which version apt takes of what the distribution, two releases of DOCA and our pins offer.
"""

from __future__ import annotations

import hashlib
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import preview
from lab.layered_node.node import LOCAL
from lab.package_repository import repository, ubuntu
from ubuntu_modules import Nodes, rdma
from ubuntu_node import INSTALL, Node

UNFINISHED = "/var/lib/mofed/unfinished"
LIBRARIES = ("rdma-core", "libibverbs1", "ibverbs-providers")


def prepared(nodes: Nodes, release: str = "24.04") -> Node:
    """A node with the distribution's RDMA packages and the headers of its kernel."""
    node = nodes.base(release).child()
    node.must(*INSTALL, f"linux-headers-{node.kernel}")
    return node


def build_of(version: str) -> str:
    """What all libraries of a release of DOCA have in their versions."""
    return ubuntu.DOCA[version].partition("-")[2].replace(".", "") + "mlnx"


@pytest.mark.parametrize("version", ["3.1.0", "3.2.1"])
@pytest.mark.parametrize("release", ["22.04", "24.04"])
def test_doca_is_found_by_its_name_installed_and_removed(nodes: Nodes, release: str, version: str) -> None:
    node = prepared(nodes, release)
    result = rdma(node, version)
    assert not result["failed"], result["msg"]
    assert {"doca-host", "doca-ofed", "mlnx-ofed-kernel-dkms", "ofed-scripts"} <= set(node.installed)
    assert all(node.installed[name].startswith(build_of(version)) for name in LIBRARIES)
    # The vendor's own is newer, and kept away.
    assert not node.installed["dkms"].startswith("99:")
    assert "updates/dkms" in node.must("modinfo", "-k", node.kernel, "mlx5_core")
    assert result["stack"]["source"] == "doca"
    assert not rdma(node, version)["changed"]
    removed = rdma(node, version, state="absent")
    assert not removed["failed"], removed["msg"]
    assert not {"doca-host", "doca-ofed", "doca-ofed-userspace", "mlnx-ofed-kernel-dkms"} & set(node.installed)
    assert node.read("/etc/apt/sources.list.d/doca.list") == ""


@pytest.mark.parametrize("release", ["22.04", "24.04"])
def test_another_version_of_doca_takes_the_place_of_the_installed_one_in_both_directions(
    nodes: Nodes, release: str
) -> None:
    node = prepared(nodes, release)
    for version in ("3.1.0", "3.2.1", "3.1.0"):
        result = rdma(node, version)
        assert not result["failed"], result["msg"]
        assert node.installed["doca-ofed"].startswith(version)
        # Also what the new packages would have been content with.
        assert all(node.installed[name].startswith(build_of(version)) for name in LIBRARIES)
        assert node.installed["mlnx-ofed-kernel-dkms"].startswith(ubuntu.DOCA[version].partition("-")[2])
        assert result["stack"]["version"].startswith(version)
        assert not rdma(node, version)["changed"]


@pytest.mark.parametrize("release", ["22.04", "24.04"])
def test_what_was_interrupted_is_finished(nodes: Nodes, release: str) -> None:
    node = prepared(nodes, release)
    node.write(ubuntu.BREAK_DOCA, "")
    result = rdma(node, "3.2.1")
    assert result["failed"]
    assert node.read(UNFINISHED)
    node.path(ubuntu.BREAK_DOCA).unlink()
    result = rdma(node, "3.2.1")
    assert not result["failed"], result["msg"]
    assert "doca-ofed" in node.installed
    assert node.must("dpkg", "--audit") == ""
    assert not node.read(UNFINISHED)


def test_a_held_library_stops_another_version_of_doca_before_it_begins(nodes: Nodes) -> None:
    node = prepared(nodes)
    node.must("apt-mark", "hold", "libibverbs1")
    before, held = node.installed, node.held
    result = rdma(node, "3.1.0")
    assert result["error_kind"] == "held"
    assert "libibverbs1" in result["msg"]
    assert "Nothing has been changed" in result["msg"]
    assert (node.installed, node.held, node.read(UNFINISHED)) == (before, held, "")
    node.must("apt-mark", "unhold", "libibverbs1")
    assert not rdma(node, "3.1.0")["failed"]
    node.must("apt-mark", "hold", "libibverbs1", "dkms")
    before = node.installed
    assert not rdma(node, "3.1.0")["changed"]
    result = rdma(node, "3.2.1")
    assert result["error_kind"] == "held"
    assert "libibverbs1" in result["msg"]
    assert "dkms" not in result["msg"]
    assert (node.installed, node.read(UNFINISHED)) == (before, "")
    node.must("apt-mark", "unhold", "libibverbs1")
    assert not rdma(node, "3.2.1")["failed"]


def test_a_held_library_stops_doca_before_another_stack_is_removed(nodes: Nodes) -> None:
    node = prepared(nodes)
    node.write(f"{LOCAL}/ofed_info", "#!/bin/sh\necho MLNX_OFED_LINUX-24.10-0.7.0.0:\n")
    node.write(f"{LOCAL}/ofed_uninstall.sh", f"#!/bin/sh\nrm {LOCAL}/ofed_info {LOCAL}/ofed_uninstall.sh\n")
    node.must("apt-mark", "hold", "libibverbs1")
    result = rdma(node, "3.2.1", allow_replace=True)
    assert result["error_kind"] == "held"
    assert "Nothing has been changed" in result["msg"]
    assert node.read(f"{LOCAL}/ofed_info")
    assert not node.read(UNFINISHED)
    node.must("apt-mark", "unhold", "libibverbs1")
    result = rdma(node, "3.2.1", allow_replace=True)
    assert not result["failed"], result["msg"]
    assert not node.read(f"{LOCAL}/ofed_info")
    assert node.installed["doca-ofed"].startswith("3.2.1")


def carried(node: Node, version: str) -> dict[str, t.Any]:
    """Options for a doca-host that carries its repository in itself, as NVIDIA's does."""
    place, full = f"/usr/share/doca-host-{version}/repo", f"{version}-{ubuntu.DOCA[version]}"
    there = (node.repositories / f"doca-{version}").iterdir()
    files = {f"{place}/{path.name}": repository.File(path.read_bytes()) for path in there if path.is_file()}
    files["/etc/apt/sources.list.d/doca.list"] = repository.File(repository.source(place))
    release = node.release.version
    host = repository.Package("doca-host", f"{full}-ubuntu{release.replace('.', '')}", files=files)
    built = repository.build(host, node.path("/srv"))
    digest = hashlib.sha256(built.read_bytes()).hexdigest()
    return {"artifact": f"/srv/{built.name}", "sha256": {f"{full}-ubuntu{release}-x86_64": digest}}


def with_bench(node: Node) -> None:
    """Have a package of the site that needs just this library."""
    needs = f"libibverbs1 (= {node.installed['libibverbs1']})"
    bench = repository.parse([{"name": "site-bench", "version": "1.0-1", "depends": [needs]}])
    repository.make(node.path("/srv/site"), bench, origin="site")
    node.write("/etc/apt/sources.list.d/site.list", repository.source("/srv/site"))
    node.must("apt-get", "-qq", "update")
    node.must(*INSTALL, "site-bench")


@pytest.mark.parametrize("carries", [True, False])
def test_what_another_doca_would_push_out_is_named_before_its_repository_comes(nodes: Nodes, carries: bool) -> None:
    node = prepared(nodes)
    node.must(*INSTALL, "perftest")
    assert not rdma(node, "3.1.0")["failed"]
    with_bench(node)
    before, lists = node.installed, sorted(node.path("/var/lib/apt/lists").iterdir())
    options = carried(node, "3.2.1") if carries else {}
    result = rdma(node, "3.2.1", **options)
    assert result["error_kind"] == "conflict"
    assert "site-bench" in result["msg"]
    assert "Nothing has been changed" in result["msg"]
    assert (node.installed, node.read(UNFINISHED)) == (before, "")
    assert sorted(node.path("/var/lib/apt/lists").iterdir()) == lists
    assert not list(node.path("/var/tmp").glob("mofed.*"))
    assert "libibverbs1" not in node.must("apt-get", "-s", "-y", "upgrade")
    assert not rdma(node, "3.1.0")["changed"]
    result = rdma(node, "3.2.1", allow_replace=True, **options)
    assert not result["failed"], result["msg"]
    assert node.installed["doca-ofed"].startswith("3.2.1")
    assert "site-bench" not in node.installed


def test_after_a_refusal_by_what_only_the_new_repository_tells_the_way_back_is_named(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where doca-host does not say what it brings until it is installed."""
    monkeypatch.setattr(preview, "extract", lambda *_args: False)
    node = prepared(nodes)
    node.must(*INSTALL, "perftest")
    assert not rdma(node, "3.1.0")["failed"]
    with_bench(node)
    before = node.installed
    result = rdma(node, "3.2.1")
    assert result["error_kind"] == "conflict"
    assert "Nothing has been changed" not in result["msg"]
    former, now = (f"{version}-{ubuntu.DOCA[version]}" for version in ("3.1.0", "3.2.1"))
    assert f"doca-host is {now}-ubuntu2404 now, and was {former}-ubuntu2404" in result["msg"]
    assert f"set `version` to {former} again" in result["msg"]
    assert node.read(UNFINISHED)
    back = rdma(node, "3.1.0")
    assert not back["failed"], back["msg"]
    assert (node.installed, node.read(UNFINISHED)) == (before, "")


def test_packages_of_the_distribution_are_installed_once(nodes: Nodes) -> None:
    node = prepared(nodes)
    options = {"source": "inbox", "sha256": {}, "packages": [{"dpkg": "perftest", "rpm": "x"}, "rdma-core"]}
    result = rdma(node, "3.2.1", **options)
    assert not result["failed"], result["msg"]
    assert [one["name"] for one in result["changes"]] == ["perftest"]
    assert node.installed["perftest"] == node.release.rdma
    assert not rdma(node, "3.2.1", **options)["changed"]


@pytest.mark.parametrize("release", ["22.04", "24.04"])
def test_without_headers_nothing_is_begun(nodes: Nodes, release: str) -> None:
    node = nodes.base(release).child()
    before = node.installed
    result = rdma(node, "3.2.1")
    assert result["error_kind"] == "headers_missing"
    assert f"linux-headers-{node.kernel}" in result["msg"]
    assert node.installed == before
