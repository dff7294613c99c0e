# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is brought to disk: files and the directories that lead to them, each of them asked for, through no link."""

from __future__ import annotations

import os
import pathlib

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.durable import DurableTree, sync_directory


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of what fsync(2) was asked for. It is done, too."""
    paths: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        fsync(descriptor)
        paths.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(os, "fsync", note)
    return paths


def make(root: pathlib.Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def test_a_file_is_followed_by_every_directory_that_is_new(tmp_path: pathlib.Path, synced: list[str]) -> None:
    make(tmp_path, "a/b/x", "a/b/y", "a/z")
    tree = DurableTree(str(tmp_path))
    tree.sync(["a/b/x", "a/b/y", "a/z"])
    assert sorted(synced[:3]) == [f"{tmp_path}/a/b/x", f"{tmp_path}/a/b/y", f"{tmp_path}/a/z"]
    assert sorted(synced[3:]) == [str(tmp_path), f"{tmp_path}/a", f"{tmp_path}/a/b"]
    synced.clear()
    make(tmp_path, "a/b/w")
    tree.sync(["a/b/w"])
    assert synced == [f"{tmp_path}/a/b/w", f"{tmp_path}/a/b"], "the entries above are on disk since the first time"


def test_a_thousand_files_of_one_directory(tmp_path: pathlib.Path, synced: list[str]) -> None:
    names = [f"f{number}" for number in range(1000)]
    make(tmp_path, *names)
    DurableTree(str(tmp_path)).sync(names)
    assert sorted(synced) == sorted([str(tmp_path), *(f"{tmp_path}/{name}" for name in names)])


@pytest.mark.parametrize("way", ["file", "directory"])
def test_no_link_is_followed(tmp_path: pathlib.Path, synced: list[str], way: str) -> None:
    make(tmp_path, "elsewhere/x")
    root = tmp_path / "root"
    root.mkdir()
    (root / "d").symlink_to(tmp_path / "elsewhere")
    (root / "x").symlink_to(tmp_path / "elsewhere/x")
    with pytest.raises((OSError, ClusterError)):
        DurableTree(str(root)).sync(["x" if way == "file" else "d/x"])
    assert synced == []


def test_a_pipe_in_the_place_of_a_file_is_an_error_and_no_hang(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "x")
    with pytest.raises(OSError, match="Invalid argument"):
        DurableTree(str(tmp_path)).sync(["x"])


def test_a_file_that_is_gone_is_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError):
        DurableTree(str(tmp_path)).sync(["gone"])


def test_what_is_no_directory_is_an_error(tmp_path: pathlib.Path) -> None:
    make(tmp_path, "x")
    with pytest.raises(NotADirectoryError):
        sync_directory(str(tmp_path / "x"))
