# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of work trees and commits, in small repositories."""

from __future__ import annotations

import pathlib

import pytest
from proof import ledger
from proof.tree import CommitTree, Objects, WorkTree
from small_repository import Repository


@pytest.fixture
def repository(tmp_path: pathlib.Path) -> Repository:
    made = Repository(tmp_path)
    made.write(".gitignore", "*.log\n/cache/\n")
    made.write("a/b c.txt", "one\n")
    made.write("a/gone.txt", "gone\n")
    (tmp_path / "link").symlink_to("a/b c.txt")
    made.commit()
    return made


def test_a_work_tree_has_new_files_but_neither_ignored_nor_deleted_ones(repository: Repository) -> None:
    repository.write("new/ä.txt", "new\n")
    repository.write("x.log", "ignored\n")
    repository.write("cache/y", "ignored\n")
    (repository.root / "a/gone.txt").unlink()
    tree = WorkTree(repository.root)
    assert tree.paths() == {".gitignore", "a/b c.txt", "link", "new/ä.txt"}
    assert tree.read("new/ä.txt") == b"new\n"


def test_the_content_of_a_link_is_its_target(repository: Repository) -> None:
    with Objects(repository.root) as objects:
        assert CommitTree(repository.root, "HEAD", objects).read("link") == b"a/b c.txt"
    assert WorkTree(repository.root).read("link") == b"a/b c.txt"


def test_a_commit_keeps_what_the_work_tree_lost(repository: Repository) -> None:
    first = repository.git("rev-parse", "HEAD")
    (repository.root / "a/gone.txt").unlink()
    repository.write("a/b c.txt", "two\n")
    second = repository.commit()
    with Objects(repository.root) as objects:
        before, after = (CommitTree(repository.root, commit, objects) for commit in (first, second))
        assert before.read("a/gone.txt") == b"gone\n"
        assert after.paths() == before.paths() - {"a/gone.txt"}
        assert (before.read("a/b c.txt"), after.read("a/b c.txt")) == (b"one\n", b"two\n")
        assert before.identity("link") == after.identity("link")
        assert before.identity("a/b c.txt") != after.identity("a/b c.txt")


def test_a_work_tree_and_its_commit_name_contents_alike(repository: Repository) -> None:
    work = WorkTree(repository.root)
    with Objects(repository.root) as objects:
        commit = CommitTree(repository.root, "HEAD", objects)
        assert {path: work.identity(path) for path in work.paths()} == {
            path: commit.identity(path) for path in commit.paths()
        }


def test_an_unknown_object_is_told(repository: Repository) -> None:
    with Objects(repository.root) as objects, pytest.raises(FileNotFoundError, match="no object 0000"):
        objects.read("0" * 40)


def test_a_repository_inside_is_no_file(repository: Repository) -> None:
    inner = repository.root / "inner"
    inner.mkdir()
    Repository(inner).write("x", "x")
    Repository(inner).commit()
    assert not [path for path in WorkTree(repository.root).paths() if path.startswith("inner")]


def test_a_fingerprint_does_not_follow_the_ledger(repository: Repository) -> None:
    """Every step that ends well writes it, and asks then whether anything has changed."""
    first = WorkTree(repository.root).fingerprint()
    repository.write(ledger.PATH, "{}")
    assert WorkTree(repository.root).fingerprint() == first


def test_a_fingerprint_follows_every_change_and_nothing_else(repository: Repository) -> None:
    def now() -> str:
        return WorkTree(repository.root).fingerprint()

    first = now()
    repository.write("x.log", "ignored\n")
    assert now() == first
    repository.write("a/b c.txt", "two\n")
    changed = now()
    repository.write("new", "")
    assert len({first, changed, now()}) == 3
    (repository.root / "new").unlink()
    repository.write("a/b c.txt", "one\n")
    assert now() == first
