# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages of the role glusterfs on a node of EL, with the real rpm and dnf.

What no quicker test can show: that dnf finds the server, and what it needs, once the package that brings its repository is there.
"""

from __future__ import annotations

import typing as t

import yaml
from ansible_collections.hpcai.gpu_cluster.plugins.modules import node_state
from el_modules import ROOT, Nodes
from el_node import Node
from lab.package_repository import rpms
from lab.package_repository.rpms import Rpm

RELEASE, SERVER = "centos-release-gluster10", "glusterfs-server"


def offer(node: Node, name: str, *packages: Rpm) -> None:
    place = node.path(f"/srv/{name}")
    place.mkdir(parents=True)
    rpms.build(packages, place)
    rpms.index(place)


def repo(name: str, *, enabled: bool) -> str:
    return f"[{name}]\nname={name}\nbaseurl=file:///srv/{name}\nenabled={enabled:d}\ngpgcheck=0\n"


def asked_for(node: Node) -> list[str]:
    """What the role wants to have installed next."""
    packages = yaml.safe_load((ROOT / "roles/glusterfs/defaults/main.yml").read_text())["glusterfs_packages"]
    result: dict[str, t.Any] = node.module(node_state.main, packages=[*packages, {"rpm": [RELEASE], "first": True}])
    assert not result["failed"], result
    return list(result.get("needs", {}).get("packages", []))


def test_the_server_of_glusterfs_comes_from_the_repository_that_a_package_brings(nodes: Nodes) -> None:
    node = nodes.base("9").child()
    sig = "/etc/yum.repos.d/CentOS-Gluster-10.repo"
    offer(node, "extras", Rpm(RELEASE, "1.0-1.el9", files={sig: repo("gluster", enabled=True)}))
    offer(node, "crb", Rpm("python3-pyxattr", "0.7.2-4.el9", noarch=False))
    server = Rpm(SERVER, "10.5-1.el9s", noarch=False, requires=("glusterfs-fuse", "python3-pyxattr"))
    offer(node, "gluster", server, Rpm("glusterfs-fuse", "10.5-1.el9s", noarch=False))
    node.write("/etc/yum.repos.d/extras.repo", repo("extras", enabled=True))
    node.write("/etc/yum.repos.d/crb.repo", repo("crb", enabled=False))
    install = ("dnf", "-y", "-q", "install")
    assert "Unable to find a match" in node.run(*install, SERVER)[2]
    # As the action of node_state does it.
    assert asked_for(node) == [RELEASE]
    node.must(*install, RELEASE)
    following = asked_for(node)
    assert following == [SERVER, "glusterfs-fuse"]
    assert "python3-pyxattr" in node.run(*install, *following)[2]
    node.must("dnf", "-y", "-q", "--enablerepo=crb", "install", *following)
    assert asked_for(node) == []
