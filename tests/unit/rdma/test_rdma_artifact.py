# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendor's file for a node, and its sum."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import artifact, model

UBUNTU = model.System("ubuntu22.04", "x86_64", "dpkg", "5.15.0-25-generic")
ROCKY = model.System("rhel9.4", "x86_64", "rpm", "5.14.0-427.el9.x86_64")
OFED = "24.10-3.2.5.0"
DOCA = "3.2.1-044000-25.10"


@pytest.mark.parametrize(
    ("source", "version", "system", "url"),
    [
        ("mlnx_ofed", OFED, UBUNTU, f"https://m/MLNX_OFED-{OFED}/MLNX_OFED_LINUX-{OFED}-ubuntu22.04-x86_64.tgz"),
        ("doca", DOCA, UBUNTU, f"https://m/DOCA_v3.2.1/host/doca-host_{DOCA}-ubuntu2204_amd64.deb"),
        (
            "doca",
            "3.1.0-091000-25.07",
            ROCKY,
            "https://m/DOCA_v3.1.0/host/doca-host-3.1.0-091000_25.07_rhel94.x86_64.rpm",
        ),
        # From DOCA 3.2 on one file serves all minor releases of RHEL.
        ("doca", DOCA, ROCKY, "https://m/DOCA_v3.2.1/host/doca-host-3.2.1-044000_25.10_rhel9.x86_64.rpm"),
        (
            "doca",
            "3.10.0-000001-27.01",
            dataclasses.replace(ROCKY, os="rhel10.1"),
            "https://m/DOCA_v3.10.0/host/doca-host-3.10.0-000001_27.01_rhel10.x86_64.rpm",
        ),
        # Its numbers are other ones.
        ("mlnx_ofed", OFED, ROCKY, f"https://m/MLNX_OFED-{OFED}/MLNX_OFED_LINUX-{OFED}-rhel9.4-x86_64.tgz"),
        # The two families spell ARM in two ways.
        (
            "doca",
            DOCA,
            dataclasses.replace(UBUNTU, arch="aarch64"),
            f"https://m/DOCA_v3.2.1/host/doca-host_{DOCA}-ubuntu2204_arm64.deb",
        ),
        (
            "doca",
            DOCA,
            dataclasses.replace(ROCKY, arch="aarch64"),
            "https://m/DOCA_v3.2.1/host/doca-host-3.2.1-044000_25.10_rhel9.aarch64.rpm",
        ),
    ],
)
def test_the_vendors_file_names(source: str, version: str, system: model.System, url: str) -> None:
    assert artifact.artifact_url(source, "https://m/", version, system) == url


def test_a_sum_is_required() -> None:
    good = "a" * 64
    assert artifact.chosen_sum({f"{OFED}-ubuntu22.04-x86_64": good.upper()}, "mlnx_ofed", OFED, UBUNTU) == good
    for sums in ({}, {f"{OFED}-ubuntu22.04-x86_64": "abc"}, {f"{OFED}-ubuntu24.04-x86_64": good}):
        with pytest.raises(ClusterError, match=f"{OFED}-ubuntu22.04-x86_64"):
            artifact.chosen_sum(sums, "mlnx_ofed", OFED, UBUNTU)


def test_a_sum_has_the_name_of_its_file_and_may_name_the_minor_release() -> None:
    good = "a" * 64
    for key in (f"{DOCA}-rhel9-x86_64", f"{DOCA}-rhel9.4-x86_64"):
        assert artifact.chosen_sum({key: good}, "doca", DOCA, ROCKY) == good
    assert (
        artifact.chosen_sum({f"{DOCA}-rhel9.4-x86_64": "b" * 64, f"{DOCA}-rhel9-x86_64": good}, "doca", DOCA, ROCKY)
        == good
    )
    with pytest.raises(ClusterError, match=f"no valid entry {DOCA}-rhel9-x86_64"):
        artifact.chosen_sum({}, "doca", DOCA, ROCKY)
    old = "3.1.0-091000-25.07"
    with pytest.raises(ClusterError, match=f"no valid entry {old}-rhel9.4-x86_64"):
        artifact.chosen_sum({f"{old}-rhel9-x86_64": good}, "doca", old, ROCKY)
