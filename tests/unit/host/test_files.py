# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel shows as files and directories, and what it does not show."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import entry_names


def test_names_are_sorted_whatever_they_are(tmp_path: Path) -> None:
    for name in ("nvme1n1", "nvme0n1", ".hidden"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").write_text("")
    assert entry_names(tmp_path) == [".hidden", "file", "nvme0n1", "nvme1n1"]


def test_what_is_missing_or_no_directory_has_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert entry_names(tmp_path / "missing") == []
    assert entry_names(tmp_path / "file") == []
