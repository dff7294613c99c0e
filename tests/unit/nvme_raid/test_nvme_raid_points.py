# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories that are to be given back when the mount point has changed. On a real disk: test_nvme_raid_loop.py."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid import points
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import Disk, Node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.plan import plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import wanted_from


@pytest.fixture
def immutable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> set[str]:
    """Directories that take nothing new, below the directory that stands for the root; those with mnt in their names are there."""
    found: set[str] = set()

    def look(path: str) -> bool:
        if "mnt" not in path:
            raise FileNotFoundError(path)
        return path.removeprefix(str(tmp_path)) in found

    monkeypatch.setattr(points, "is_immutable", look)
    monkeypatch.setattr(points, "protect", found.add)
    return found


def test_what_was_held_is_left_behind_when_it_belongs_elsewhere(immutable: set[str], tmp_path: Path) -> None:
    for point in ("/mnt/a", "/mnt/b", "/gone", "/mnt/c", "/mnt/a"):
        points.hold(tmp_path, "scratch", point)
    immutable.discard("/mnt/b")
    assert points.read_points(tmp_path, "scratch") == ("/mnt/a", "/mnt/b", "/gone", "/mnt/c")
    assert points.left_behind(tmp_path, "scratch", "/mnt/c", ()) == ("/mnt/a",)
    assert points.left_behind(tmp_path, "scratch", "/mnt/a", ()) == ("/mnt/c",)
    # Something is mounted on it, which hides it.
    assert points.left_behind(tmp_path, "scratch", "/mnt/c", {"/mnt/a"}) == ()
    assert points.left_behind(tmp_path, "other", "/mnt/c", ()) == ()


def test_what_another_one_holds_now_is_its_own(immutable: set[str], tmp_path: Path) -> None:
    points.hold(tmp_path, "scratch", "/mnt/a")
    points.hold(tmp_path, "scratch", "/mnt/b")
    points.hold(tmp_path, "scratch2", "/mnt/a")
    assert immutable == {"/mnt/a", "/mnt/b"}
    assert points.left_behind(tmp_path, "scratch", "/mnt/b", ()) == ()
    points.tidy(tmp_path, "scratch", "/mnt/b")
    assert points.read_points(tmp_path, "scratch") == ("/mnt/b",)
    assert points.read_points(tmp_path, "scratch2") == ("/mnt/a",)


def test_what_is_mounted_is_remembered_and_what_was_given_back_is_not(
    immutable: set[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mounted = {"/mnt/b", "/mnt/hidden"}
    monkeypatch.setattr(points.os.path, "ismount", lambda path: path in mounted)
    # By an earlier version, which wrote nothing down.
    points.tidy(tmp_path, "scratch", "/mnt/b")
    points.hold(tmp_path, "scratch", "/mnt/hidden")
    points.hold(tmp_path, "scratch", "/mnt/a")
    points.tidy(tmp_path, "scratch", "/mnt/b")
    assert points.read_points(tmp_path, "scratch") == ("/mnt/b", "/mnt/hidden")
    mounted.clear()
    points.tidy(tmp_path, "scratch", "/mnt/b")
    assert points.read_points(tmp_path, "scratch") == ("/mnt/b",)
    points.tidy(tmp_path, "scratch")
    points.tidy(tmp_path, "scratch")
    assert list(tmp_path.rglob("*nvme_raid*")) == []
    # Nothing is mounted, and nothing was held: no disks are there, and none are expected.
    points.tidy(tmp_path, "scratch", "/mnt/b")
    assert list(tmp_path.rglob("*nvme_raid*")) == []
    assert immutable


@pytest.mark.parametrize("text", ["", "{", "3", '{"a": 1}'])
def test_a_record_that_cannot_be_read_names_nothing(immutable: set[str], tmp_path: Path, text: str) -> None:
    points.hold(tmp_path, "scratch", "/mnt/a")
    next(tmp_path.rglob("scratch.points.json")).write_text(text)
    assert points.read_points(tmp_path, "scratch") == ()
    assert immutable


def test_where_nothing_can_be_kept_the_directory_is_protected_all_the_same(
    immutable: set[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "var").write_text("no directory")
    points.hold(tmp_path, "scratch", "/mnt/a")
    assert immutable == {"/mnt/a"}
    monkeypatch.setattr(points.os.path, "ismount", lambda _path: True)
    points.tidy(tmp_path, "scratch", "/mnt/a")
    assert points.read_points(tmp_path, "scratch") == ()


@pytest.mark.parametrize(
    ("state", "kinds"),
    [("present", ["mkfs", "mount", "release"]), ("absent", ["release"]), ("inspected", [])],
)
def test_it_is_given_back_last(state: str, kinds: list[str]) -> None:
    """Also by who gives the disks back, but not by who only looks."""
    request: dict[str, t.Any] = {"mount_point": "/mnt/b", "state": state, "level": "single"}
    node = Node((Disk("nvme0n1", bytes=1 << 40),), left_behind=("/mnt/a",))
    made = plan(wanted_from(request), node)
    assert [step.kind for step in made.steps] == kinds
    assert [step.what for step in made.steps if step.kind == "release"] == ["let /mnt/a be written to again"] * bool(
        kinds
    )
