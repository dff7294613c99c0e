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
    assert settings["storage-driver"] == "vfs"
    assert settings["log-opts"] == {"max-size": "10m"}


def test_docker_runs_with_the_settings_of_both(host: t.Any) -> None:
    """Of a real Docker: that it took them, which no file tells."""
    said = json.loads(host.check_output("docker info --format '{{json .}}'"))
    assert said["DefaultRuntime"] == "nvidia"
    assert {"kata", "nvidia", "runc"} <= set(said["Runtimes"])
    assert said["Driver"] == "vfs"
    assert host.service("docker").is_enabled


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


def pods(plugins: dict[str, t.Any]) -> dict[str, t.Any]:
    """What counts for Kubernetes' containers in a dump, without what is empty or off, which is the same as not set."""

    def told(value: t.Any) -> t.Any:
        if not isinstance(value, dict):
            return value
        return {key: part for key, one in value.items() if (part := told(one))}

    return t.cast("dict[str, t.Any]", told(plugins["io.containerd.grpc.v1.cri"]))


def test_containerd_keeps_all_that_it_had_beside_the_nvidia_runtime(host: t.Any) -> None:
    """By the dump of the containerd that runs here, with the files as packages and the role have left them."""
    config = tomllib.loads(host.file("/etc/containerd/config.toml").content_string)
    assert config["imports"] == ["/etc/containerd/conf.d/*.toml"]
    before = tomllib.loads(host.file("/run/lab-site/dump.toml").content_string)
    after = tomllib.loads(host.check_output("containerd config dump"))
    assert after["grpc"] == before["grpc"]
    assert after["grpc"]["gid"] == 4
    had, has = pods(before["plugins"]), pods(after["plugins"])
    nvidia = has["containerd"]["runtimes"].pop("nvidia")
    assert has["containerd"].pop("default_runtime_name") == "nvidia"
    assert had["containerd"].pop("default_runtime_name") == "runc"
    assert has == had
    assert nvidia["options"] == {"BinaryName": "/usr/bin/nvidia-container-runtime", "Root": "/run/site-runc"}
    assert has["containerd"]["runtimes"]["kubelet"]["options"] == {"SystemdCgroup": True}
    for value in ("localhost/lab/pause:1", "/opt/site/cni/bin", "/etc/containerd/certs.d", "native"):
        assert value in json.dumps(has)


def test_scratch_is_data_in_enroots_containers(host: t.Any) -> None:
    assert (
        "/mnt/scratch /data none x-create=dir,bind,rw"
        in host.file("/etc/enroot/mounts.d/50-scratch.fstab").content_string
    )
    assert host.file("/mnt/resource_nvme/enroot/cache").mode == 0o1777
    assert "required spank_pyxis.so" in host.file("/etc/slurm/plugstack.conf.d/pyxis.conf").content_string
