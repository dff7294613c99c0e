# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What containerd's files set for the plugin that starts Kubernetes' containers, carried over into our part.

containerd 1 puts an imported file's section of a plugin in the place of the whole section that was there, so a part that named
the NVIDIA runtime alone would lose registries, sandbox image, CNI and ``SystemdCgroup``. containerd 2 merges (containerd#5837,
#7982, #9982), and files of version 3 are only its own. In both each runtime has options of its own, and all have to agree on the
driver of cgroups (containerd, docs/cri/config.md), so ours takes those of the runtime that is the default without it.

There is no TOML parser in Python before 3.11. Only headers of tables are read; what is in them is copied line by line.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

RUNTIME, BINARY = "nvidia", "/usr/bin/nvidia-container-runtime"
_RUNC = "io.containerd.runc.v2"
_HEADER = re.compile(r"^\s*\[(\[?)\s*([^\[\]]+?)\s*\]{1,2}\s*(?:#.*)?$")
_PART = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([\w-]+))\s*(?:\.|$)""")
_DEFAULT = re.compile(r"""^\s*default_runtime_name\s*=\s*["']([^"']*)["']""", re.M)
_BINARY = re.compile(r"""^\s*BinaryName\s*=\s*["']([^"']*)["']""", re.M)
_KEY = re.compile(r"""^\s*((?:"[^"]*"|'[^']*'|[\w.-])+)\s*=""")
_QUIET = re.compile(r""""[^"]*"|'[^']*'|#.*""")
# In a dump the same as not set; there is one sandboxer only.
_NOTHING = ("", '""', "''", "false", "0", "[]", "{}", '"podsandbox"', "'podsandbox'")

Path = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of a TOML file: where it is, how its header is written, and its lines."""

    path: Path
    header: str
    body: tuple[str, ...] = ()


def _path(header: str) -> Path:
    return tuple(next(name for name in found if name) for found in _PART.findall(header) if any(found))


def tables(text: str) -> list[Table]:
    """The tables of a file, in order; the root table has an empty path and header."""
    found = [Table((), "")]
    for line in text.splitlines():
        head = _HEADER.match(line)
        if head:
            found.append(Table(_path(head.group(2)), line.strip()))
        else:
            found[-1] = dataclasses.replace(found[-1], body=(*found[-1].body, line))
    return found


def section(text: str, plugin: str) -> list[Table]:
    """The tables of a plugin. Refuses one that is written another way, of which something would be lost."""
    found = [table for table in tables(text) if table.path[:2] == ("plugins", plugin)]
    inline = re.compile(rf"""^\s*(plugins\s*\.\s*)?["']?{re.escape(plugin)}["']?\s*[.=]""", re.M)
    for table in tables(text):
        if table.path in ((), ("plugins",)) and inline.search("\n".join(table.body)):
            raise ClusterError(
                "containerd_config",
                f"containerd's settings of {plugin} are written as one value and not as tables; they cannot be carried over.",
                "Write them as tables ([plugins.…]), or configure containerd another way and set `containerd: false`.",
            )
    return found


def last(texts: t.Sequence[str], plugin: str) -> list[Table]:
    """The section that is in effect where the last of these files that has one decides, as with containerd 1."""
    for text in reversed(texts):
        found = section(text, plugin)
        if found:
            return found
    return []


def merged(texts: t.Iterable[str], plugin: str) -> list[Table]:
    """The section as containerd 2 makes it of these files: each key is the last one's."""
    heads: dict[Path, Table] = {}
    bodies: dict[Path, dict[str, tuple[str, ...]]] = {}
    for table in (table for text in texts for table in section(text, plugin)):
        heads.setdefault(table.path, table)
        bodies.setdefault(table.path, {}).update(_entries(table.body))
    return [
        dataclasses.replace(head, body=tuple(line for lines in bodies[path].values() for line in lines))
        for path, head in heads.items()
    ]


def _entries(body: t.Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The lines of a table by their keys. A value may take several lines; what stands before the first key is left out."""
    found: dict[str, tuple[str, ...]] = {}
    key, depth = "", 0
    for line in body:
        starts = _KEY.match(line)
        if starts and not depth:
            key = starts.group(1).strip("\"'")
            found[key] = ()
        if key:
            found[key] += (line,)
            plain = _QUIET.sub("", line)
            depth += sum(map(plain.count, "[{")) - sum(map(plain.count, "]}"))
    return found


def chosen(found: t.Iterable[Table], plugin: str) -> str:
    """The default runtime that a section names; empty where it names none."""
    for table in found:
        match = _DEFAULT.search("\n".join(table.body)) if table.path == ("plugins", plugin, "containerd") else None
        if match:
            return match.group(1)
    return ""


def in_effect(dump: str) -> tuple[str, str] | None:
    """The default runtime of Kubernetes' containers and its program, in what `containerd config dump` says.

    None where the plugin is disabled.
    """
    bodies = {table.path: "\n".join(table.body) for table in tables(dump)}
    for path, body in bodies.items():
        # containerd 1's plugin, and containerd 2's.
        if path[2:] == ("containerd",) and path[0] == "plugins":
            name = _DEFAULT.search(body)
            if name:
                options = bodies.get((*path, "runtimes", name.group(1), "options"), "")
                binary = _BINARY.search(options)
                return name.group(1), binary.group(1) if binary else ""
    return None


def lost(before: str, after: str, others: t.Sequence[str]) -> str:
    """The first setting of one dump of containerd that another one lacks, or has otherwise; empty where there is none.

    Not counted: the default runtime, ours, what is read, what is as good as not set, and words that stand in files of ``others``.
    """
    now = {table.path: _entries(table.body) for table in tables(after)}
    for table in tables(before):
        if table.path[3:5] == ("runtimes", RUNTIME):
            continue
        for key, lines in _entries(table.body).items():
            counts = key != "default_runtime_name" and (table.path or key not in ("imports", "version"))
            value = "".join(lines).partition("=")[2].strip()
            told = any(key in text for text in others)
            if counts and not told and value not in _NOTHING and now.get(table.path, {}).get(key) != lines:
                return ".".join((*table.path, key))
    return ""


def _set(body: t.Sequence[str], key: str, value: str) -> tuple[str, ...]:
    """The lines of a table, with this key."""
    kept = [line for line in body if not re.match(rf"\s*{re.escape(key)}\s*=", line) and line.strip()]
    return (*kept, f'{key} = "{value}"')


def with_nvidia(found: t.Sequence[Table], plugin: str, *, whole: bool) -> list[Table]:
    """The NVIDIA runtime as the default one and otherwise like the one that was the default in the section ``found``.

    ``whole``: together with all of that section, because nothing else is in effect beside the part, containerd's own default of
    that runtime included.
    """
    root: Path = ("plugins", plugin, "containerd")
    runtimes = (*root, "runtimes")
    ours = (*runtimes, RUNTIME)
    named = chosen(found, plugin)
    base = named if named not in ("", RUNTIME) else "runc"
    bodies = {table.path: table.body for table in found}
    kept = [table for table in found if whole and table.path[: len(ours)] != ours and table.path != root]
    options = bodies.get((*runtimes, base, "options"), ())
    if whole and (*runtimes, base) not in bodies:
        kept.append(_table((*runtimes, base), _set((), "runtime_type", _RUNC)))
    return [
        *kept,
        _table(root, _set(bodies.get(root, ()) if whole else (), "default_runtime_name", RUNTIME)),
        _table(ours, _set(bodies.get((*runtimes, base), ()), "runtime_type", _RUNC)),
        _table((*ours, "options"), _set(options, "BinaryName", BINARY)),
    ]


def _table(path: Path, body: tuple[str, ...]) -> Table:
    names = [name if re.fullmatch(r"[\w-]+", name) else f'"{name}"' for name in path]
    return Table(path, f"[{'.'.join(names)}]", body)


def text_of(found: t.Iterable[Table]) -> list[str]:
    """The tables as lines."""
    return [line for table in found for line in (table.header, *table.body)]


__all__ = [
    "BINARY",
    "RUNTIME",
    "Table",
    "chosen",
    "in_effect",
    "last",
    "lost",
    "merged",
    "section",
    "tables",
    "text_of",
    "with_nvidia",
]
