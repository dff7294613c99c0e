# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What sites have in containerd's own file, in its versions, and a containerd that reads it.

That is the program of Debian's package, which ``prepare_container_packages`` of bin/_env.sh fetches and nobody installs. CONTAINERD
names another one, for example a containerd 2.
"""

from __future__ import annotations

import os
import pathlib
import shutil

import pytest

_FETCHED = pathlib.Path(__file__).resolve().parents[3] / ".cache" / "container_packages" / "containerd"
CONTAINERD = os.environ.get("CONTAINERD") or (str(_FETCHED) if _FETCHED.exists() else shutil.which("containerd") or "")
NEEDS_CONTAINERD = pytest.mark.skipif(not CONTAINERD, reason="needs containerd")
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
NEWEST = SITE.replace(CRI, "io.containerd.cri.v1.runtime").replace("version = 2", "version = 3")
