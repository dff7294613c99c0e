# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After the file system was stopped, started, broken, repaired and removed, of version 8, then of 7."""

from __future__ import annotations

import typing as t

from lab.seen import seen


def test_a_stop_leaves_the_data_alone(host: t.Any) -> None:
    found = seen(host)
    assert found["stopped"] == ["data"]
    assert found["kept"] == "kept"


def test_data_is_not_removed_without_consent(host: t.Any) -> None:
    assert seen(host)["refused"] == "data_would_be_lost"


def test_verify_names_node_and_service_and_the_repair_keeps_the_data(host: t.Any) -> None:
    found = seen(host)
    assert "gpu-2: beegfs-storage does not run" in found["noticed"]
    assert found["repaired"] == "kept"


def test_a_removal_with_consent_leaves_nothing(host: t.Any) -> None:
    assert seen(host)["removed"] == []


def test_check_mode_starts_nothing(host: t.Any) -> None:
    assert seen(host)["checked"] == []


def test_version_7_is_started_once_and_is_another_file_system(host: t.Any) -> None:
    found = seen(host)
    assert found["second"]["changed"] is False
    for node in found["second"]["nodes"].values():
        assert node["mounted"]
        assert "beegfs-meta" in node["services"]
        assert not node["problems"]
    assert found["other"] is False


def test_nothing_is_left_behind(host: t.Any) -> None:
    assert not host.mount_point("/mnt/beeond").exists
    assert host.run("pgrep -f /opt/beegfs/sbin/[b]eegfs").rc == 1
    for path in (
        "/mnt/resource_nvme/beeond",
        "/run/hpcai_beeond/1000.status",
        "/run/hpcai_beeond/1000",
    ):
        assert not host.file(path).exists
