# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What beeond leaves on a node while the file system runs."""

from __future__ import annotations

import json
import typing as t

POINT = "/mnt/beeond"
STATUS = "/run/hpcai_beeond/1000.status"


def test_the_file_system_is_mounted_for_everybody(host: t.Any) -> None:
    assert host.mount_point(POINT).exists
    assert host.file(POINT).mode == 0o1777


def test_the_first_node_manages_and_all_serve(host: t.Any) -> None:
    rows = [line.split(",") for line in host.file(STATUS).content_string.splitlines()]
    own = {"beegfs-mgmtd", "beegfs-meta"} if host.check_output("hostname") == "gpu-1" else set()
    assert {row[1] for row in rows} == own | {"beegfs-storage", "beegfs-client"}
    for row in rows:
        if row[1] != "beegfs-client":
            pid = host.file(row[4]).content_string.strip()
            assert row[1] in host.file(f"/proc/{pid}/cmdline").content_string


def test_the_data_is_marked_as_of_this_file_system(host: t.Any) -> None:
    mark = json.loads(host.file("/mnt/resource_nvme/beeond/.hpcai_beeond").content_string)
    assert mark["state"] == "used"
    assert mark["mount_point"] == POINT
    assert mark["layout"]["nodes"] == ["gpu-1", "gpu-2", "gpu-3"][: len(mark["layout"]["nodes"])]
