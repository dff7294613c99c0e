# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After MLNX_OFED and DOCA, as stand-ins with their names and layout, were refused, installed, exchanged, and removed."""

from __future__ import annotations

import re
import typing as t

import pytest
from lab.seen import seen


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("wrong_sha256", "checksum"),
        ("distribution_in_the_way", "conflict"),
        ("modules_in_a_container", "container"),
        ("vendor_in_the_way", "conflict"),
        ("distribution_in_doca_s_way", "conflict"),
    ],
)
def test_what_cannot_work_is_refused_without_changing_a_package(host: t.Any, name: str, kind: str) -> None:
    found = seen(host)[name]
    assert (found["kind"], found["same_packages"]) == (kind, True), found["msg"]


def test_an_installer_that_breaks_is_named_with_its_reason(host: t.Any) -> None:
    found = seen(host)["broken_installer"]
    assert found["kind"] == "command_failed", found["msg"]
    assert "out of luck" in found["msg"]


@pytest.mark.parametrize(
    ("name", "source", "version"),
    [
        ("mlnx_ofed", "mlnx_ofed", "24.10-3.2.5.0"),
        ("another_version", "mlnx_ofed", "24.10-4.1.4.0"),
        ("doca", "doca", "3.2.1-044000-25.10-debian{release}"),
    ],
)
def test_a_stack_comes_in_the_first_run_and_stays_in_the_second(
    host: t.Any, name: str, source: str, version: str
) -> None:
    found = seen(host)
    version = version.format(release=found["debian"].replace(".", ""))
    assert found[name] == {"changed": True, "source": source, "version": version, "changed_again": False}


def test_firmware_and_kernel_are_left_alone(host: t.Any) -> None:
    assert seen(host)["arguments"][2:] == [
        "--without-fw-update", "--force", "--user-space-only", "--all", "--without-neohost-backend",
    ]  # fmt: skip


def test_dkms_stays_the_distribution_s(host: t.Any) -> None:
    policy = seen(host)["dkms"]
    assert "99" in policy
    assert not re.search(r"Candidate. 99", policy)


def test_doca_comes_without_its_open_mpi_where_that_is_not_wanted(host: t.Any) -> None:
    found = seen(host)["openmpi"]
    assert "mofed-provides-openmpi installed" in found
    assert "openmpi installed" not in found


@pytest.mark.parametrize("stack", ["mlnx_ofed", "doca"])
def test_removal_leaves_nothing(host: t.Any, stack: str) -> None:
    assert seen(host)[f"left_of_{stack}"] == []
