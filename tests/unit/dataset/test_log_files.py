# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logs of AzCopy go a week after they were last written to."""

from __future__ import annotations

import os
import pathlib
import time

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.log_files import prune_logs

DAY_S = 86400
MINE = "20260101T000000-aaaaaa"


def logged(directory: pathlib.Path, *, days_ago: float) -> pathlib.Path:
    directory.mkdir(parents=True)
    (directory / "plans").mkdir()
    log = directory / "job.log"
    log.write_text("INFO")
    then = time.time() - days_ago * DAY_S
    for path in (log, directory / "plans", directory):
        os.utime(path, (then, then))
    return log


def test_logs_of_a_week_ago_go_and_nothing_else(tmp_path: pathlib.Path) -> None:
    logs = tmp_path / "azcopy"
    logged(logs / "20260102T000000-bbbbbb", days_ago=8)
    logged(logs / "20260103T000000-cccccc", days_ago=6)
    logged(logs / MINE, days_ago=30)
    logged(logs / "0123456789abcdef", days_ago=30)
    logged(logs / "20260104T000000-dddddd.mine", days_ago=30)
    # A long copy makes its files at the beginning, and writes to them to the end.
    busy = logged(logs / "20260105T000000-eeeeee", days_ago=8)
    os.utime(busy)
    elsewhere = logged(tmp_path / "20260106T000000-ffffff", days_ago=30)
    (logs / elsewhere.parent.name).symlink_to(elsewhere.parent)
    prune_logs(str(logs), MINE)
    assert sorted(path.name for path in logs.iterdir()) == [
        "0123456789abcdef",
        MINE,
        "20260103T000000-cccccc",
        "20260104T000000-dddddd.mine",
        "20260105T000000-eeeeee",
        "20260106T000000-ffffff",
    ]
    assert elsewhere.exists()


def test_where_nothing_was_logged_nothing_is_pruned(tmp_path: pathlib.Path) -> None:
    prune_logs(str(tmp_path / "missing"), MINE)
    assert list(tmp_path.iterdir()) == []
