# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The vendor's file for a node: where it lies, and by which sum it is believed. Pure."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.model import System

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def _file_os(source: str, version: str, system: System) -> str:
    """The distribution in the name of the vendor's file: one of DOCA 3.2 or newer fits all minor releases of RHEL."""
    found = re.match(r"(\d+)\.(\d+)", version)
    for_all = source == "doca" and found and (int(found[1]), int(found[2])) >= (3, 2)
    return system.os.partition(".")[0] if for_all and system.os.startswith("rhel") else system.os


def sum_key(source: str, version: str, system: System) -> str:
    """Under which name a sha256 is written down."""
    return f"{version}-{_file_os(source, version, system)}-{system.arch}"


def artifact_url(source: str, mirror: str, version: str, system: System) -> str:
    """Where the vendor keeps the file for this node (names as on content.mellanox.com and www.mellanox.com)."""
    mirror = mirror.rstrip("/")
    if source == "mlnx_ofed":
        return f"{mirror}/MLNX_OFED-{version}/MLNX_OFED_LINUX-{version}-{system.os}-{system.arch}.tgz"
    release, os_name = version.split("-")[0], _file_os(source, version, system).replace(".", "")
    directory = f"{mirror}/DOCA_v{release}/host"
    if system.manager == "dpkg":
        return f"{directory}/doca-host_{version}-{os_name}_{_ARCHITECTURES.get(system.arch, system.arch)}.deb"
    # The version of an rpm has one hyphen, before its release.
    number, _hyphen, build = version.partition("-")
    return f"{directory}/doca-host-{number}-{build.replace('-', '_')}_{os_name}.{system.arch}.rpm"


def chosen_sum(sums: t.Mapping[str, t.Any], source: str, version: str, system: System) -> str:
    """The sha256 of this node's file; there is no default, because nobody could vouch for one."""
    key = sum_key(source, version, system)
    # A file for all minor releases may be listed under the one of this node.
    digest = str(sums.get(key, sums.get(f"{version}-{system.os}-{system.arch}", ""))).lower()
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise ClusterError(
            "checksum_missing",
            f"`sha256` has no valid entry {key}.",
            "Compute it with sha256sum from a copy of the file that you trust, and write it into `sha256`.",
        )
    return digest


__all__ = ["artifact_url", "chosen_sum", "sum_key"]
