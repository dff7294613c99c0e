# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose directory something lies in, and what is opened in it."""

from __future__ import annotations

import os
import pathlib
import stat
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.own import (
    check_own_directory,
    make_own_directory,
    regular,
)

SOMEBODY = 65_533
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
BOTH = pytest.mark.parametrize("work", [check_own_directory, make_own_directory])


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "own").mkdir(mode=0o755)
    return tmp_path / "own"


def refuse(work: t.Callable[[str], None], path: pathlib.Path, why: str) -> None:
    with pytest.raises(ClusterError, match=why) as caught:
        work(str(path))
    assert caught.value.kind == "bad_input"
    assert str(path) in caught.value.message
    assert caught.value.remedy


@BOTH
def test_our_own_directory_is_right(directory: pathlib.Path, work: t.Callable[[str], None]) -> None:
    work(str(directory))
    work(str(directory.parent / "missing"))


@BOTH
@pytest.mark.parametrize("target", ["own", "nowhere"])
def test_a_link_in_its_place_is_refused(directory: pathlib.Path, work: t.Callable[[str], None], target: str) -> None:
    link = directory.parent / "link"
    link.symlink_to(target)
    refuse(work, link, "is a symbolic link")
    assert not (directory.parent / "nowhere").exists()


@as_root
@BOTH
def test_a_directory_of_somebody_else_is_refused(directory: pathlib.Path, work: t.Callable[[str], None]) -> None:
    """The probe of who we are on this file system leaves nothing."""
    os.chown(directory, SOMEBODY, -1)
    refuse(work, directory, f"belongs to user {SOMEBODY}, not to root")
    assert list(directory.iterdir()) == []


@as_root
def test_where_a_server_makes_our_files_somebody_elses_that_is_us(
    directory: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS with root_squash: no such server is here, so the file that tells is given away as it would do."""
    fstat = os.fstat

    def squashed(handle: int) -> os.stat_result:
        if stat.S_ISREG(fstat(handle).st_mode):
            os.fchown(handle, SOMEBODY, -1)
        return fstat(handle)

    os.chown(directory, SOMEBODY, -1)
    monkeypatch.setattr(os, "fstat", squashed)
    check_own_directory(str(directory))
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o1777])
def test_a_directory_that_everybody_may_write_to_is_refused(directory: pathlib.Path, mode: int) -> None:
    directory.chmod(mode)
    refuse(check_own_directory, directory, "Others may write")


@as_root
def test_a_directory_that_a_project_may_write_to_is_refused(directory: pathlib.Path) -> None:
    directory.chmod(0o775)
    check_own_directory(str(directory))
    os.chown(directory, -1, SOMEBODY)
    refuse(check_own_directory, directory, "Others may write")


@pytest.mark.parametrize("mode", [None, 0o755, 0o777])
def test_nobody_else_looks_into_what_was_made(directory: pathlib.Path, mode: int | None) -> None:
    if mode is not None:
        directory.chmod(mode)
    path = directory if mode is not None else directory / "deep/new"
    make_own_directory(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


@BOTH
def test_a_file_in_its_place_is_told_as_that(directory: pathlib.Path, work: t.Callable[[str], None]) -> None:
    (directory / "file").write_text("")
    with pytest.raises(ClusterError, match="file` is no directory, where one of our own belongs") as caught:
        work(str(directory / "file"))
    assert caught.value.kind == "bad_input"


def test_regular_files_are_read_and_written(directory: pathlib.Path) -> None:
    path = directory / "a"
    for mode, text in (("w", "one"), ("a", " two")):
        with open(path, mode, encoding="utf-8", opener=regular) as stream:
            stream.write(text)
    with open(path, encoding="utf-8", opener=regular) as stream:
        assert stream.read() == "one two"
    with pytest.raises(FileNotFoundError):
        regular(str(directory / "b"), os.O_RDONLY)


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "directory", "device"])
@pytest.mark.parametrize("mode", ["r", "w", "a"])
def test_nothing_else_is_opened(directory: pathlib.Path, kind: str, mode: str) -> None:
    """A pipe without this would keep the reader until somebody writes to it."""
    path = directory / "x"
    (directory / "target").write_text("root")
    if kind == "device":
        path = pathlib.Path("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("target" if kind == "link" else "nowhere")
    with pytest.raises(OSError, match=str(path)), open(path, mode, opener=regular):
        pass
    assert (directory / "target").read_text() == "root"
    assert not (directory / "nowhere").exists()
