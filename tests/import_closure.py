# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a test imports, directly and through files of this repository, and whether Ansible is among it."""

from __future__ import annotations

import ast
import functools
import pathlib
import re
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[1]
_COLLECTION = "ansible_collections.hpcai.gpu_cluster."
# A program's name alone, or at the end of a path.
_PROGRAM = re.compile(r"(^|/)ansible(-(playbook|doc|galaxy|inventory|config|console|pull|vault))?$")

# What a test puts on ``sys.path`` is a folder from the root of the repository.
_FOLDER = re.compile(r"[a-z_]+/[a-z_/]+$")


class Source(t.NamedTuple):
    """``names`` are the modules that a file may import, ``folders`` those of this repository that it names, to import from.

    ``runs_ansible`` tells of a program of Ansible's that it names.
    """

    names: frozenset[str]
    folders: frozenset[pathlib.Path]
    runs_ansible: bool


@functools.cache
def _read(path: pathlib.Path) -> Source:
    names: set[str] = set()
    folders: set[pathlib.Path] = set()
    runs_ansible = False
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # Of ``from a import b`` nobody can say here whether b is a module.
            names.update([node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            runs_ansible = runs_ansible or bool(_PROGRAM.search(node.value))
            if _FOLDER.match(node.value) and (ROOT / node.value).is_dir():
                folders.add(ROOT / node.value)
    return Source(frozenset(names), frozenset(folders), runs_ansible)


def _files_of(name: str, importer: pathlib.Path) -> list[pathlib.Path]:
    """The files of this repository that an import of this name reads."""
    inner = name.removeprefix(_COLLECTION).replace(".", "/")
    usual = [importer.parent, ROOT / "tests", ROOT]
    places = [ROOT] if name.startswith(_COLLECTION) else [*usual, *_read(importer).folders]
    found = (place / f"{inner}{ending}" for place in places for ending in (".py", "/__init__.py"))
    return [path for path in found if path.is_file()]


def closure(path: pathlib.Path) -> frozenset[pathlib.Path]:
    """The file, the conftest.py of its folder, and all files of this repository that they import."""
    # The one above, tests/unit/conftest.py, is everybody's, and so says nothing about anybody.
    to_read = [path, *path.parent.glob("conftest.py")]
    seen: set[pathlib.Path] = set()
    while to_read:
        one = to_read.pop()
        if one not in seen:
            seen.add(one)
            to_read += [found for name in _read(one).names for found in _files_of(name, one)]
    return frozenset(seen)


@functools.cache
def touches_ansible(path: pathlib.Path) -> bool:
    """Whether another version of Ansible can make a difference to this test file."""
    sources = [_read(one) for one in closure(path)]
    return any(one.runs_ansible or any(name.split(".")[0] == "ansible" for name in one.names) for one in sources)


__all__ = ["ROOT", "closure", "touches_ansible"]
