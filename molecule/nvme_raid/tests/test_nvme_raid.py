# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After nvme_raid and a reboot: the disks are one file system, and what was on it is there."""

from __future__ import annotations

import typing as t

import pytest

POINT = "/mnt/resource_nvme"


@pytest.mark.parametrize("package", ["mdadm", "xfsprogs"])
def test_the_tools_are_installed(host: t.Any, package: str) -> None:
    assert host.package(package).is_installed


def test_the_disks_are_one_file_system(host: t.Any) -> None:
    mounted = host.mount_point(POINT)
    assert (mounted.exists, mounted.filesystem) == (True, "xfs")
    assert "noatime" in mounted.options
    assert host.file(POINT).mode == 0o1777
    device = f"/sys/block/{host.check_output('basename $(realpath %s)', mounted.device)}"
    assert host.file(f"{device}/md/level").content_string.strip() == "raid0"
    assert len(host.file(f"{device}/slaves").listdir()) == 8


def test_the_unit_ran_at_boot(host: t.Any) -> None:
    unit = host.service("nvme-raid-scratch.service")
    assert unit.is_enabled
    assert unit.is_running, host.run("journalctl --no-pager --boot --unit nvme-raid-scratch.service").stdout


def test_data_outlived_the_reboot(host: t.Any) -> None:
    data = host.file(f"{POINT}/data")
    assert (data.content_string, data.mode) == ("kept", 0o640)
