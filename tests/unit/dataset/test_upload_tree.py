# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an upload takes from a directory: all of it, or it says by name what it does not take."""

from __future__ import annotations

import errno
import os
import pathlib
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.tree import read_tree
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError


@pytest.fixture
def source(tmp_path: pathlib.Path) -> pathlib.Path:
    """A checkpoint whose optimizer lies elsewhere."""
    (tmp_path / "real/deep").mkdir(parents=True)
    (tmp_path / "real/a").write_bytes(bytes(10))
    (tmp_path / "real/deep/b").write_bytes(bytes(20))
    saved = tmp_path / "saved"
    (saved / "empty").mkdir(parents=True)
    (saved / "meta.json").write_bytes(bytes(5))
    return saved


def refused(source: pathlib.Path, links: t.Any = "refuse") -> ClusterError:
    with pytest.raises(ClusterError) as caught:
        read_tree(str(source), links)
    assert caught.value.remedy
    return caught.value


def test_files_at_any_depth(source: pathlib.Path) -> None:
    tree = read_tree(str(source.parent / "real"))
    assert (tree.names, tree.bytes, tree.left_out) == (["a", "deep/b"], 30, [])


@pytest.mark.parametrize("target", ["../real", "../real/a", "meta.json", "."])
def test_a_link_is_refused_by_name(source: pathlib.Path, target: str) -> None:
    (source / "optim").symlink_to(target)
    error = refused(source)
    assert (error.kind, "optim" in error.message) == ("bad_input", True)


def test_links_are_followed(source: pathlib.Path) -> None:
    (source / "optim").symlink_to(source.parent / "real")
    (source / "again").symlink_to("optim")
    (source / "file").symlink_to("../real/a")
    tree = read_tree(str(source), "follow")
    assert tree.names == ["again/a", "again/deep/b", "file", "meta.json", "optim/a", "optim/deep/b"]
    assert tree.bytes == 5 + 10 + 30 + 30


def test_links_are_left_out_and_named(source: pathlib.Path) -> None:
    (source / "optim").symlink_to("../real")
    (source / "gone").symlink_to("nowhere")
    tree = read_tree(str(source), "skip")
    assert (tree.names, tree.bytes, tree.left_out) == (["meta.json"], 5, ["gone", "optim"])


@pytest.mark.parametrize("links", ["refuse", "follow"])
def test_a_broken_link_is_refused_by_name(source: pathlib.Path, links: str) -> None:
    (source / "gone").symlink_to("nowhere")
    assert "gone" in refused(source, links).message


@pytest.mark.parametrize("where", ["up", "empty/up"])
def test_a_circle_is_refused_by_name(source: pathlib.Path, where: str) -> None:
    (source / where).symlink_to(source)
    error = refused(source, "follow")
    assert f": {where}." in error.message


def test_what_is_no_file_is_refused_by_name(source: pathlib.Path) -> None:
    os.mkfifo(source / "pipe")
    for links in ("refuse", "follow", "skip"):
        assert "pipe" in refused(source, links).message


def test_at_most_five_are_named(source: pathlib.Path) -> None:
    for number in range(7):
        (source / f"link{number}").symlink_to("meta.json")
    assert ": link0, link1, link2, link3, link4, …." in refused(source).message


def test_the_state_of_a_staging_is_left_out_and_nothing_else_of_that_name(source: pathlib.Path) -> None:
    for name in (".staging/manifest.jsonl", "sub/.staging/receipts/all.jsonl", "mine/.staging/x"):
        (source / name).parent.mkdir(parents=True)
        (source / name).write_text("x")
    tree = read_tree(str(source))
    assert tree.names == ["meta.json", "mine/.staging/x"]
    assert tree.left_out == [".staging", "sub/.staging"]


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_a_name_that_is_not_utf8_is_refused_so_that_it_can_be_printed(source: pathlib.Path, kind: str) -> None:
    path = os.fsencode(source) + b"/empty/caf\xe9"
    if kind == "file":
        open(path, "w").close()
    elif kind == "directory":
        os.mkdir(path)
    else:
        os.symlink("nowhere", path)
    error = refused(source, "skip")
    assert error.kind == "bad_input"
    assert "1 names below" in error.message
    assert r"are not UTF-8: 'empty/caf\udce9'." in error.message.encode().decode()


@pytest.mark.parametrize(("code", "kind"), [(errno.EACCES, "bad_input"), (errno.ECOMM, "io")])
def test_a_directory_that_cannot_be_read_is_named(
    source: pathlib.Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: str
) -> None:
    """Root reads all but what is on another machine's disk."""
    scandir = os.scandir

    def forbidden(path: str) -> t.Any:
        if path.endswith("empty"):
            raise OSError(code, os.strerror(code), path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", forbidden)
    error = refused(source)
    assert (error.kind, str(source / "empty") in error.message) == (kind, True)


def test_a_directory_that_goes_away_is_named(source: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def racing(path: str) -> t.Any:
        if path.endswith("empty"):
            (source / "empty").rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", racing)
    error = refused(source)
    assert (error.kind, str(source / "empty") in error.message) == ("changed_at_source", True)
