# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a repository: those of the work tree, or those of a commit."""

from __future__ import annotations

import hashlib
import os
import pathlib
import subprocess
import types
import typing as t

from proof import ledger


class Tree(t.Protocol):
    """Files by their paths, which are relative to the root of the repository. The content of a link is its target."""

    def paths(self) -> frozenset[str]:
        """All files."""

    def read(self, path: str) -> bytes:
        """The content of a file."""

    def identity(self, path: str) -> str:
        """A name for the content of a file. Equal names mean equal content, in whatever tree."""


def _git(root: pathlib.Path, *argv: str) -> list[str]:
    """The fields that a command prints with ``-z``."""
    done = subprocess.run(["git", "-C", str(root), *argv], capture_output=True, check=True)
    return [field for field in os.fsdecode(done.stdout).split("\0") if field]


class WorkTree:
    """Tracked files and new ones that git does not ignore.

    What was read once is kept. To see a later change, make another object.
    """

    def __init__(self, root: pathlib.Path) -> None:
        self._root = root
        listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        # A deleted file is still in the index; a repository inside this one is listed as a directory.
        self._paths = frozenset(
            path for path in listed if os.path.lexists(root / path) and not self._is_directory(path)
        )
        self._contents: dict[str, bytes] = {}

    def _is_directory(self, path: str) -> bool:
        return (self._root / path).is_dir() and not (self._root / path).is_symlink()

    def paths(self) -> frozenset[str]:
        return self._paths

    def fingerprint(self) -> str:
        """A name for all files with their contents: equal as long as nothing has changed but the ledger."""
        whole = hashlib.sha256()
        for path in sorted(self._paths - {ledger.PATH}):
            whole.update(f"{path}\0{self.identity(path)}\n".encode("utf-8", "surrogateescape"))
        return whole.hexdigest()

    def read(self, path: str) -> bytes:
        if path not in self._contents:
            where = self._root / path
            self._contents[path] = os.fsencode(where.readlink()) if where.is_symlink() else where.read_bytes()
        return self._contents[path]

    def identity(self, path: str) -> str:
        content = self.read(path)
        # Git's own name of the content, so that a commit's file has the same.
        return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


class Objects:
    """Contents by git's names of them, each read once, through one process."""

    def __init__(self, root: pathlib.Path) -> None:
        self._process = subprocess.Popen(
            ["git", "-C", str(root), "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._contents: dict[str, bytes] = {}

    def read(self, name: str) -> bytes:
        if name not in self._contents:
            questions, answers = self._process.stdin, self._process.stdout
            assert questions is not None
            assert answers is not None
            questions.write(name.encode() + b"\n")
            questions.flush()
            head = answers.readline().split()
            if len(head) != 3:
                raise FileNotFoundError(f"git has no object {name}: {b' '.join(head).decode()}")
            self._contents[name] = answers.read(int(head[2]))
            answers.read(1)
        return self._contents[name]

    def __enter__(self) -> t.Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        self._process.communicate()


class CommitTree:
    """The files of a commit. ``objects`` may be shared by many."""

    def __init__(self, root: pathlib.Path, revision: str, objects: Objects) -> None:
        self._objects = objects
        self._names: dict[str, str] = {}
        for line in _git(root, "ls-tree", "-r", "-z", "--full-tree", revision):
            about, _tab, path = line.partition("\t")
            _mode, kind, name = about.split()
            if kind == "blob":
                self._names[path] = name

    def paths(self) -> frozenset[str]:
        return frozenset(self._names)

    def read(self, path: str) -> bytes:
        return self._objects.read(self._names[path])

    def identity(self, path: str) -> str:
        return self._names[path]


__all__ = ["CommitTree", "Objects", "Tree", "WorkTree"]
