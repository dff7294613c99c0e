# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What container_runtime leaves on a node."""

from __future__ import annotations

import json
import typing as t

import pytest
import tomllib


def test_dockers_settings_are_merged(host: t.Any) -> None:
    settings = json.loads(host.file("/etc/docker/daemon.json").content_string)
    assert settings["default-runtime"] == "nvidia"
    assert set(settings["runtimes"]) == {"kata", "nvidia"}
    assert settings["live-restore"] is True
    assert settings["log-opts"] == {"max-size": "10m"}


@pytest.mark.parametrize(
    "name",
    [
        "nvidia-container-toolkit",
        "nvidia-container-toolkit-base",
        "libnvidia-container-tools",
        "libnvidia-container1",
    ],
)
def test_every_part_of_the_toolkit_is_of_the_pinned_release(host: t.Any, name: str) -> None:
    assert host.package(name).version == "1.17.8-1"


def test_containerd_imports_our_part_and_keeps_its_own(host: t.Any) -> None:
    config = tomllib.loads(host.file("/etc/containerd/config.toml").content_string)
    assert config["imports"] == ["/etc/containerd/conf.d/*.toml"]
    assert config["grpc"] == {"address": "/run/containerd.sock"}
    part = tomllib.loads(host.file("/etc/containerd/conf.d/99-nvidia.toml").content_string)
    assert part["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]["default_runtime_name"] == "nvidia"


def test_scratch_is_data_in_enroots_containers(host: t.Any) -> None:
    assert (
        "/mnt/scratch /data none x-create=dir,bind,rw"
        in host.file("/etc/enroot/mounts.d/50-scratch.fstab").content_string
    )
    assert host.file("/mnt/resource_nvme/enroot/cache").mode == 0o1777
    assert "required spank_pyxis.so" in host.file("/etc/slurm/plugstack.conf.d/pyxis.conf").content_string
