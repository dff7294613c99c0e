# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Beside our part everything stays in effect that containerd's own files set for the plugin of Kubernetes.

``in_effect`` is containerd 1's rule: the section of a plugin in an imported file replaces the one that was there. It was compared with
``containerd config dump`` of containerd 1.6.20 (Debian 12) for SITE: sandbox image, CNI, snapshotter, registry and SystemdCgroup are
lost beside a part that names the runtime alone, and stay beside this one.
"""

from __future__ import annotations

import typing as t

import pytest
import tomllib
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime import cri, settings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

CRI = "io.containerd.grpc.v1.cri"
SITE = """version = 2
root = "/var/lib/containerd"
[plugins]
  [plugins."io.containerd.grpc.v1.cri"] # Kubernetes
    sandbox_image = "registry.example.org/pause:3.9"
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/opt/site/cni/bin"
    [plugins."io.containerd.grpc.v1.cri".containerd]
      snapshotter = "native"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes]
        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
          runtime_type = "io.containerd.runc.v2"
          pod_annotations = [
            "example.org/*",
          ]
          [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
            SystemdCgroup = true
    [plugins.'io.containerd.grpc.v1.cri'.registry]
      config_path = "/etc/containerd/certs.d"
      [plugins."io.containerd.grpc.v1.cri".registry.mirrors."docker.io"]
        endpoint = ["https://mirror.example.org"]
  [plugins."io.containerd.internal.v1.opt"]
    path = "/opt/containerd"
"""
KATA = SITE.replace('snapshotter = "native"', 'snapshotter = "native"\n      default_runtime_name = "kata"').replace(
    ".runtimes.runc", ".runtimes.kata"
)
V1 = """[plugins.cri]
  sandbox_image = "registry.example.org/pause:3.9"
[plugins.cri.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v1"
"""


def in_effect(config: str, *imported: str) -> dict[str, t.Any]:
    """The plugins' settings, as containerd 1 makes them of a file and what it imports."""
    plugins: dict[str, t.Any] = {}
    for text in (config, *imported):
        plugins.update(tomllib.loads(text).get("plugins", {}))
    return plugins


@pytest.mark.parametrize(("config", "base", "plugin"), [(SITE, "runc", CRI), (KATA, "kata", CRI), (V1, "runc", "cri")])
def test_everything_but_the_runtime_stays(config: str, base: str, plugin: str) -> None:
    part = settings.containerd_part(config)
    before, after = in_effect(config), in_effect(config, part)
    runtimes = after[plugin]["containerd"]["runtimes"]
    nvidia = runtimes.pop("nvidia")
    assert after[plugin]["containerd"].pop("default_runtime_name") == "nvidia"
    before[plugin]["containerd"].pop("default_runtime_name", None)
    assert after == before
    # What pods got from the default runtime they get from ours as well, its driver of cgroups above all.
    like = dict(runtimes[base])
    assert nvidia == {
        **like,
        "runtime_type": "io.containerd.runc.v2",
        "options": {**like.get("options", {}), "BinaryName": "/usr/bin/nvidia-container-runtime"},
    }


def test_a_part_that_is_read_again_stays_as_it_is() -> None:
    part = settings.containerd_part(SITE)
    assert tomllib.loads(settings.containerd_part(part)) == tomllib.loads(part)


def test_another_imported_file_has_the_last_word() -> None:
    other = f'version = 2\n[plugins."{CRI}"]\n  sandbox_image = "other"\n'
    after = in_effect(SITE, other, settings.containerd_part(SITE, [other, "version = 2\n"]))[CRI]
    assert after["sandbox_image"] == "other"
    assert "registry" not in after


def test_without_settings_containerd_keeps_its_own_runtime_too() -> None:
    containerd = in_effect("version = 2\n", settings.containerd_part("version = 2\n"))[CRI]["containerd"]
    assert containerd["runtimes"]["runc"] == {"runtime_type": "io.containerd.runc.v2"}
    assert containerd["default_runtime_name"] == "nvidia"


def test_containerd_2_merges_by_itself() -> None:
    config = SITE.replace(CRI, "io.containerd.cri.v1.runtime").replace("version = 2", "version = 3")
    (part,) = tomllib.loads(settings.containerd_part(config))["plugins"].values()
    assert set(part) == {"containerd"}
    assert set(part["containerd"]["runtimes"]) == {"nvidia"}


@pytest.mark.parametrize(
    "text",
    [
        f'[plugins]\n"{CRI}" = {{sandbox_image = "x"}}\n',
        f'[plugins]\n  "{CRI}".sandbox_image = "x"\n',
        f'plugins."{CRI}".sandbox_image = "x"\n',
    ],
)
def test_what_cannot_be_carried_over_is_refused(text: str) -> None:
    assert in_effect(text)[CRI] == {"sandbox_image": "x"}
    with pytest.raises(ClusterError, match="written as one value"):
        settings.containerd_part(f"version = 2\n{text}")


def test_a_disabled_plugin_is_no_table() -> None:
    assert cri.section(f'version = 2\ndisabled_plugins = ["{CRI}"]\n', CRI) == []
