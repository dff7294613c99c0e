# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files under their final names are whole, their directories open to readers, and what is left of others is swept."""

from __future__ import annotations

import errno
import os
import pathlib
import shutil
import stat
import types
import typing as t
from concurrent.futures import ThreadPoolExecutor

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip import part_file

#: BeeGFS's client gives ECOMM when a server is away; other file systems have numbers of their own for it.
KINDS = {
    "disk_full": (errno.ENOSPC, errno.EDQUOT),
    "bad_input": (
        errno.EACCES,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EROFS,
    ),
    "io": (
        *(errno.ECOMM, errno.EINTR, errno.EAGAIN, errno.EBUSY, errno.ENOMEM, errno.EIO, errno.ESTALE, errno.ETIMEDOUT),
        *(errno.EREMOTEIO, errno.ENOTCONN, 9999, None),
    ),
}


@pytest.mark.parametrize(("kind", "code"), [(kind, code) for kind, codes in KINDS.items() for code in codes])
def test_only_what_is_about_the_path_is_final_and_all_else_is_tried_again(kind: str, code: int | None) -> None:
    error = OSError(code, os.strerror(code)) if code else OSError("no number")
    with pytest.raises(ClusterError) as caught, part_file.disk_errors("/scratch/x"):
        raise error
    assert caught.value.kind == kind
    assert part_file.is_final(error) == (kind == "bad_input")


@pytest.fixture
def strict_umask() -> t.Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


def test_new_directories_are_open_whatever_the_umask(tmp_path: pathlib.Path, strict_umask: None) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    mine.chmod(0o2750)
    with part_file.part_file(str(mine / "a/b/x")) as (write, _handle):
        write(b"data")
    assert [stat.S_IMODE((mine / path).stat().st_mode) for path in (".", "a", "a/b", "a/b/x")] == [
        0o2750,  # was there before, and its group is inherited
        0o2755,
        0o2755,
        0o644,
    ]


def test_what_is_new_is_for_others_to_read_and_not_to_write(tmp_path: pathlib.Path) -> None:
    before = os.umask(0)
    try:
        with part_file.part_file(str(tmp_path / "a/b/x")) as (write, _handle):
            write(b"data")
            (part,) = (tmp_path / "a/b").iterdir()
            assert stat.S_IMODE(part.stat().st_mode) == 0o644
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / path).stat().st_mode) for path in ("a", "a/b", "a/b/x")]
    assert modes == [0o755, 0o755, 0o644]


@pytest.mark.parametrize("way", ["file", "link", "dangling link"])
def test_what_has_the_name_of_a_part_already_is_not_written_to(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    part, other = tmp_path / "x.part", tmp_path / "other"
    if way != "dangling link":
        other.write_bytes(b"of others")
    if way == "file":
        other.rename(part)
    else:
        part.symlink_to(other)
    monkeypatch.setattr(part_file, "_part_name", lambda _name, _tag: part.name)
    with pytest.raises(ClusterError, match="File exists"), part_file.part_file(str(tmp_path / "x")):
        pass
    if way == "dangling link":
        assert not other.exists()
    else:
        assert part.read_bytes() == b"of others"


def test_a_directory_that_somebody_removed_is_made_again(tmp_path: pathlib.Path, strict_umask: None) -> None:
    for _time in range(2):
        with part_file.part_file(str(tmp_path / "a/b/x")) as (write, _handle):
            write(b"data")
        assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o755
        shutil.rmtree(tmp_path / "a")


def test_a_reader_sees_the_old_file_or_the_new_one_and_never_half(tmp_path: pathlib.Path) -> None:
    final = tmp_path / "x"
    final.write_bytes(b"old")
    with part_file.part_file(str(final)) as (write, _handle):
        write(b"ne")
        assert final.read_bytes() == b"old"
        write(b"w")
    assert final.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [final]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_whoever_gives_up_leaves_the_old_file_and_no_part(tmp_path: pathlib.Path, error: type[BaseException]) -> None:
    final = tmp_path / "x"
    final.write_bytes(b"old")

    def give_up() -> None:
        with part_file.part_file(str(final)) as (write, _handle):
            write(b"half")
            raise error

    with pytest.raises(error):
        give_up()
    assert final.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [final]


def test_the_longest_name_leaves_room_for_its_part(tmp_path: pathlib.Path) -> None:
    final = tmp_path / ("n" * 255)
    with part_file.part_file(str(final)) as (write, _handle):
        write(b"data")
    assert final.read_bytes() == b"data"


def test_many_threads_make_the_same_directories(tmp_path: pathlib.Path) -> None:
    names = [f"a/b{number % 2}/c/d/e/f{number}" for number in range(64)]

    def make(name: str) -> None:
        with part_file.part_file(str(tmp_path / name)) as (write, _handle):
            write(b"data")

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(make, names))
    assert all((tmp_path / name).read_bytes() == b"data" for name in names)


def test_a_directory_that_another_rank_made_meanwhile_is_as_good(tmp_path: pathlib.Path) -> None:
    for _rank in range(2):
        part_file.make_directories(str(tmp_path / "a/b"))
    assert (tmp_path / "a/b").is_dir()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileExistsError):
        part_file.make_directories(str(tmp_path / "file"))


@pytest.mark.parametrize("way", ["file", "dangling link"])
def test_what_is_no_directory_is_refused(tmp_path: pathlib.Path, way: str) -> None:
    (tmp_path / "a").write_text("") if way == "file" else (tmp_path / "a").symlink_to("nowhere")
    with pytest.raises(ClusterError, match="cannot be written"), part_file.part_file(str(tmp_path / "a/b/x")):
        pass


def test_sweep_parts_takes_old_parts_of_ours_only(tmp_path: pathlib.Path) -> None:
    old, new = (str(tmp_path / part_file._part_name(name)) for name in ("old", "new"))
    others = [str(tmp_path / "keep.part"), str(tmp_path / ".download.part")]
    for path in (old, new, *others):
        pathlib.Path(path).write_bytes(b"")
    for path in (old, *others):
        os.utime(path, (1, 1))
    assert part_file.sweep_parts(str(tmp_path), older_than_s=60) == 1
    assert sorted(str(path) for path in tmp_path.iterdir()) == sorted([new, *others])


def test_a_part_is_old_from_its_last_second_on(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {stamp: str(tmp_path / part_file._part_name("x")) for stamp in (99, 100, 101)}
    for stamp, path in names.items():
        pathlib.Path(path).write_bytes(b"")
        os.utime(path, (stamp, stamp))
    monkeypatch.setattr(part_file, "time", types.SimpleNamespace(time=lambda: 160.0))
    assert part_file.sweep_parts(str(tmp_path), older_than_s=60) == 2
    assert [str(path) for path in tmp_path.iterdir()] == [names[101]]


def test_sweep_parts_passes_over_what_another_run_swept(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [str(tmp_path / part_file._part_name(name)) for name in ("a", "b")]
    for path in parts:
        pathlib.Path(path).write_bytes(b"")
    listed = list(os.walk(tmp_path))
    os.unlink(parts[0])
    monkeypatch.setattr(os, "walk", lambda _directory: listed)
    assert part_file.sweep_parts(str(tmp_path), older_than_s=0) == 1
    assert list(tmp_path.iterdir()) == []
