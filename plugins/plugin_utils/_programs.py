# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Programs that nodes run without Ansible, each built as one file from the code that modules run.

A program is a zipapp: a first line that names the interpreter, and a zip with ``__main__.py`` and those files of
``module_utils`` that its entry imports. They keep their names in it, so that the very same files run in modules, tests and
programs. Its bytes depend on its files and the interpreter only, so that a digest tells whether a node has it.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import types
import typing as t
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

_MODULE_UTILS = Path(__file__).resolve().parents[1] / "module_utils"
_PACKAGE = ("ansible_collections", "hpcai", "gpu_cluster", "plugins", "module_utils")
#: The oldest date that a zip can hold: files have none that would differ between controllers.
_DATE = (1980, 1, 1, 0, 0, 0)
_REGULAR_0644 = 0o100644 << 16
_UNIX = 3
#: An import of the collection's own, whole. Parsing whole files takes 15 times as long, for every node anew.
_IMPORT = re.compile(
    rf"^[ \t]*((?:from|import) +(?:{'[.]'.join(_PACKAGE)}\b|[.])(?:[^(\n]*\([^)]*\)|.*))", re.MULTILINE
)

# Valid for every Python, because it is there to refuse some: nothing but sys is imported before.
_MAIN = """\
import sys

if sys.version_info < (3, 9):
    sys.stderr.write(
        "{name} needs Python 3.9 or newer, but %s is Python %d.%d: install it again with the path of a newer one.\\n"
        % (sys.executable, sys.version_info[0], sys.version_info[1])
    )
    sys.exit(2)

from {module} import {function}

sys.exit({function}())
"""


@dataclass(frozen=True)
class Program:
    """A program of nodes. ``entry`` is ``package.module:function`` below ``module_utils``; the function returns the exit status."""

    name: str
    entry: str

    @property
    def module(self) -> str:
        """The entry's module, as ``package.module``."""
        return self.entry.partition(":")[0]

    @property
    def main(self) -> str:
        """The text of ``__main__.py``."""
        function = self.entry.partition(":")[2]
        return _MAIN.format(name=self.name, module=".".join((*_PACKAGE, self.module)), function=function)

    def files(self) -> dict[str, bytes]:
        """What the entry imports from ``module_utils``, directly or not, and the entry itself, by path below it."""
        found: dict[str, bytes] = {}
        waiting = [_path_of(self.module.split("."))]
        while waiting:
            path = waiting.pop()
            if path is not None and path not in found:
                found[path] = (_MODULE_UTILS / path).read_bytes()
                waiting += map(_path_of, _imported(PurePosixPath(path), found[path]))
        return found


def _path_of(names: t.Sequence[str]) -> str | None:
    """The file of a dotted name below ``module_utils``; None for a package."""
    path = "/".join(names) + ".py"
    return path if (_MODULE_UTILS / path).is_file() else None


def _imported(path: PurePosixPath, source: bytes) -> t.Iterator[t.Sequence[str]]:
    """All that an import could mean below ``module_utils``: what follows ``from``, and each name of it."""
    statements = "\n".join(_IMPORT.findall(source.decode()))
    for node in ast.parse(statements).body:
        names: list[tuple[str, ...]] = []
        if isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = tuple(node.module.split(".")) if node.module else ()
            if node.level:
                base = (*_PACKAGE, *path.parts[: -node.level], *base)
            names = [base, *((*base, alias.name) for alias in node.names)]
        yield from (name[len(_PACKAGE) :] for name in names if name[: len(_PACKAGE)] == _PACKAGE)


def _contents(program: Program) -> dict[str, bytes]:
    """Every file of the zip. Packages have an ``__init__.py``, which hides a collection that the node may have."""
    top = PurePosixPath(*_PACKAGE)
    contents = {str(top / path): text for path, text in program.files().items()}
    packages = {parent for path in contents for parent in PurePosixPath(path).parents if parent.name}
    contents.update({str(package / "__init__.py"): b"" for package in packages})
    contents["__main__.py"] = program.main.encode()
    return contents


def _require_interpreter(interpreter: str) -> None:
    if not re.fullmatch(r"/[^\s\0]+", interpreter):
        raise ClusterError(
            "bad_input",
            f"The interpreter {interpreter!r} cannot stand in the first line of a program.",
            "Set `interpreter` to an absolute path without blanks, such as /usr/bin/python3.",
        )


PROGRAMS: t.Mapping[str, Program] = types.MappingProxyType(
    {
        program.name: program
        for program in (
            Program("gpu-bind-check", "_gpu_bind.program:main"),
            Program("gpu-clocks", "_gpu_clocks.program:main"),
            Program("nvme-raid", "_nvme_raid.boot:main"),
        )
    }
)


@functools.cache
def build(name: str, interpreter: str) -> bytes:
    """The program of this name, to be written to a file with mode 0755.

    ``interpreter`` is the absolute path of the node's Python. It runs isolated and without site-packages (``-IS``): neither the
    environment of a job nor an Ansible of the node's own comes between. The zip is not compressed, because zlib does not
    give the same bytes everywhere. Raises ``ClusterError`` for an unknown name and for an interpreter that no first line
    can hold.
    """
    if name not in PROGRAMS:
        raise ClusterError(
            "bad_input", f"There is no program {name!r}.", f"Choose one of these: {', '.join(sorted(PROGRAMS))}."
        )
    _require_interpreter(interpreter)
    file = io.BytesIO(f"#!{interpreter} -IS\n".encode())
    file.seek(0, io.SEEK_END)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for path, content in sorted(_contents(PROGRAMS[name]).items()):
            entry = zipfile.ZipInfo(path, _DATE)
            entry.create_system, entry.external_attr = _UNIX, _REGULAR_0644
            archive.writestr(entry, content)
    return file.getvalue()


__all__ = ["PROGRAMS", "Program", "build"]
