# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module container_runtime on a node of EL, with the real rpm and dnf.

What no quicker test can show: what dnf, which is told to erase what is in the way, would erase for Docker's packages.
"""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.modules import container_runtime
from el_modules import Nodes, site
from lab.package_repository import rpms
from lab.package_repository.rpms import Rpm

OPTIONS = {"toolkit": False, "docker": "never", "docker_packages": ["containerd.io"], "phases": ["install"]}


def test_what_docker_s_packages_would_push_out_is_named_and_stays(nodes: Nodes) -> None:
    """Docker's containerd.io and EL's podman, as they exclude each other by their programs to run containers."""
    node = nodes.base("9").child()
    site(node, Rpm("runc", "4:1.1.12-2.el9"), Rpm("podman", "4:4.9.4-4.el9", requires=("runc",)))
    docker = Rpm("containerd.io", "1.6.31-3.1.el9", conflicts=("runc",), provides=("containerd",))
    place = node.path("/srv/docker")
    place.mkdir()
    rpms.build([docker], place)
    rpms.index(place)
    node.write(
        "/etc/yum.repos.d/docker.repo", "[docker]\nname=docker\nbaseurl=file:///srv/docker\nenabled=1\ngpgcheck=0\n"
    )
    before = node.installed
    result = node.module(container_runtime.main, **OPTIONS)
    assert result["error_kind"] == "conflict"
    assert "podman, runc. No package was changed" in result["msg"]
    assert node.installed == before
    node.must("dnf", "-y", "-q", "remove", "podman", "runc")
    result = node.module(container_runtime.main, **OPTIONS)
    assert not result["failed"], result["msg"]
    assert "containerd.io" in node.installed
