# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nothing that is done below a directory leads out of it."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import stat
import threading
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.part_file import part_file
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import beneath


@pytest.mark.parametrize("name", ["a", "a/b", "..a/b..", "a/...", " ", "ä/\n"])
def test_proper_names(name: str) -> None:
    assert beneath.is_proper(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "/", "/a", "a/", "a//b", "a/./b", "a/../b", "../a", "a\0b", None, 7, b"a"]
)
def test_names_that_lead_elsewhere(name: t.Any) -> None:
    assert not beneath.is_proper(name)


@pytest.fixture
def trap(tmp_path: pathlib.Path) -> pathlib.Path:
    """A directory of a user, in which links lead to what is root's."""
    (tmp_path / "etc/deep").mkdir(parents=True)
    (tmp_path / "etc/passwd").write_text("root")
    data = tmp_path / "data"
    (data / "real").mkdir(parents=True)
    (data / "out").symlink_to(tmp_path / "etc")
    (data / "real/out").symlink_to("../../etc")
    (data / "back").symlink_to("real")  # also one that stays within
    return data


LINKED = ("out/passwd", "out/deep/x", "real/out/passwd", "back/x")


@pytest.mark.parametrize("name", LINKED)
def test_nothing_is_done_through_a_link(trap: pathlib.Path, name: str) -> None:
    def write() -> None:
        with part_file(str(trap / name), str(trap)) as (write, _handle):
            write(b"mine")

    for act in (
        write,
        lambda: beneath.unlink(str(trap), name),
        lambda: beneath.look(str(trap), name),
        lambda: beneath.refuse_links(str(trap), ["real/fine", name]),
    ):
        with pytest.raises(ClusterError, match="is a symbolic link") as caught:
            act()
        assert caught.value.kind == "bad_input"
    assert (trap.parent / "etc/passwd").read_text() == "root"
    assert sorted(path.name for path in (trap.parent / "etc").iterdir()) == ["deep", "passwd"]
    assert list((trap.parent / "etc/deep").iterdir()) == []


def test_a_tree_is_removed_and_nothing_that_links_in_or_above_it_point_to(trap: pathlib.Path) -> None:
    beneath.remove_tree(str(trap), "real")
    assert not (trap / "real").exists()
    for name in ("missing", "missing/deeper"):
        beneath.remove_tree(str(trap), name)
    with pytest.raises(ClusterError, match="is a symbolic link"):
        beneath.remove_tree(str(trap), "out/deep")
    beneath.remove_tree(str(trap), "out")
    assert sorted(path.name for path in (trap.parent / "etc").iterdir()) == ["deep", "passwd"]


def test_the_directory_itself_may_be_reached_through_a_link(tmp_path: pathlib.Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "data").symlink_to("disk")
    with part_file(str(tmp_path / "data/a/b/x"), str(tmp_path / "data")) as (write, _handle):
        write(b"mine")
    assert (tmp_path / "disk/a/b/x").read_bytes() == b"mine"
    found = beneath.look(str(tmp_path / "data"), "a/b/x")
    assert found is not None
    assert found.st_size == 4
    beneath.refuse_links(str(tmp_path / "data"), ["a/b/x", "missing/y"])
    beneath.unlink(str(tmp_path / "data"), "a/b/x")
    assert beneath.look(str(tmp_path / "data"), "a/b/x") is None
    assert beneath.look(str(tmp_path / "data"), "missing/x") is None


def test_a_link_at_the_end_is_replaced_and_not_written_through(trap: pathlib.Path) -> None:
    (trap / "real/x").symlink_to(trap.parent / "etc/passwd")
    found = beneath.look(str(trap), "real/x")
    assert found is not None
    assert stat.S_ISLNK(found.st_mode)
    with part_file(str(trap / "real/x"), str(trap)) as (write, _handle):
        write(b"mine")
    assert (trap / "real/x").read_bytes() == b"mine"
    assert not (trap / "real/x").is_symlink()
    assert (trap.parent / "etc/passwd").read_text() == "root"


def test_a_name_that_climbs_out_is_refused(trap: pathlib.Path) -> None:
    for path in (trap / "../etc/passwd", trap.parent / "etc/passwd"):
        with pytest.raises(ClusterError, match="leads out of"), part_file(str(path), str(trap)):
            pass
    assert (trap.parent / "etc/passwd").read_text() == "root"


def test_a_link_in_place_of_a_directory_that_was_just_made_is_not_opened_to_readers(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody swaps it between mkdir and what follows."""
    private, mkdir = tmp_path / "private", os.mkdir
    private.mkdir(0o700)

    def swapped(name: str, mode: int, *, dir_fd: int) -> None:
        mkdir(name, mode, dir_fd=dir_fd)
        os.rmdir(name, dir_fd=dir_fd)
        os.symlink(private, name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", swapped)
    with (
        pytest.raises(ClusterError, match="is a symbolic link"),
        beneath.parent_of(str(tmp_path), "new/x", make=True),
    ):
        pass
    assert stat.S_IMODE(private.stat().st_mode) == 0o700


def test_a_directory_that_is_there_is_not_made_again(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each file and level, on a shared file system, that would be a question to its servers."""
    (tmp_path / "a/b").mkdir(parents=True)
    monkeypatch.setattr(os, "mkdir", lambda *_words, **_more: pytest.fail("mkdir was called"))
    with beneath.parent_of(str(tmp_path), "a/b/x", make=True) as (_parent, last):
        assert last == "x"


def test_whoever_swaps_a_directory_for_a_link_meanwhile_gains_nothing(tmp_path: pathlib.Path) -> None:
    """A user of the directory plays against root: swaps for as long as root writes."""
    data, etc = tmp_path / "data", tmp_path / "etc"
    (data / "train").mkdir(parents=True)
    etc.mkdir()
    over = threading.Event()

    def swap() -> None:
        for turn in itertools.count():
            aside = data / f"aside{turn}"
            # The writer may have made the directory anew in between: then a step fails, and the next turn goes on with that.
            with contextlib.suppress(OSError):
                os.rename(data / "train", aside)
            with contextlib.suppress(OSError):
                os.symlink(etc, data / "train")
            with contextlib.suppress(OSError):
                os.unlink(data / "train")
            with contextlib.suppress(OSError):
                os.rename(aside, data / "train")
            if over.is_set():
                return

    swapping = threading.Thread(target=swap)
    swapping.start()
    refused = written = 0
    try:
        for number in range(2000):
            try:
                with part_file(str(data / f"train/f{number}"), str(data)) as (write, _handle):
                    write(b"mine")
                written += 1
            except (ClusterError, OSError):
                refused += 1
    finally:
        over.set()
        swapping.join()
    assert list(etc.iterdir()) == []
    assert written
