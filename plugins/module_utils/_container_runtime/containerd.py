# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What containerd's settings become: its own file imports our part, and the part fits what is read before it.

containerd reads ``config.toml``, then what that imports, then what these import, each file once (``LoadConfig`` in its
``server/config``). Before 2.3 the last file that names a version decides in which one all of them are read.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t
from pathlib import PurePosixPath

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime import cri, settings, toml
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

# The plugin that starts Kubernetes' containers, by the version of config.toml (containerd, docs/PLUGINS.md and docs/cri/config.md).
_CRI_PLUGINS = {1: "cri", 2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}
_MERGES = max(_CRI_PLUGINS)
# What an array of texts is made of; a bracket in a text or in a remark does not end it.
_TOKEN = re.compile(
    rf"(?P<text>{toml.TEXT.pattern})|(?P<remark>\#[^\n]*)|(?P<comma>,)|(?P<end>\])|\s+", toml.TEXT.flags
)

#: A file that containerd reads: its path and text.
File = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class _Imports:
    """The array ``imports``: its texts, where its closing bracket is, and of what kind the tokens before that are, in order."""

    items: tuple[str, ...]
    end: int
    kinds: tuple[str, ...]

    def with_item(self, text: str, item: str) -> str:
        """The file with one more item. What follows a remark needs a line of its own."""
        remark = self.kinds[-1:] == ("remark",)
        values = [kind for kind in self.kinds if kind != "remark"]
        more = f", {item}" if values[-1:] == ["text"] else f" {item}" if values else item
        return text[: self.end].rstrip(" \t\r\n") + (f"\n{more}\n" if remark else more) + text[self.end :]


def _read(text: str, path: str = "") -> toml.Document:
    return toml.read(text, path or f"{settings.CONTAINERD}, or a file that it imports,")


def _trees(texts: t.Iterable[str]) -> list[toml.Tree]:
    return [_read(text).tree for text in texts]


def _imports(text: str, document: toml.Document, path: str) -> _Imports | None:
    if "imports" not in document.tree:
        return None
    at, end = document.spans.get("imports", (0, 0))
    items: list[str | None] = []
    kinds: list[str] = []
    token = re.compile(r"\[").match(text, at, end)
    while token and token.lastgroup != "end":
        token = _TOKEN.match(text, token.end(), end)
        kind = token.lastgroup if token else None
        if token and kind == "text":
            items.append(toml.text_of(token.group()))
        if kind and kind != "end":
            kinds.append(kind)
    if not token or None in items:
        raise ClusterError(
            "containerd_config",
            f"`imports` in {path or settings.CONTAINERD} is not a list of texts.",
            "Correct it, then run the role again.",
        )
    return _Imports(tuple(item or "" for item in items), token.start(), tuple(kinds))


def import_items(text: str, path: str = "") -> list[str]:
    """What a file of containerd imports. Refuses a file that does not read like TOML; ``path`` names it then."""
    found = _imports(text, _read(text, path), path)
    return list(found.items) if found else []


def version_of(texts: t.Iterable[str]) -> int:
    """The version in which containerd reads these files, which is 1 where none names one; at most the newest that is known here."""
    numbers = [_version(tree) for tree in _trees(texts)]
    # Like one that is not there, 0 replaces none.
    named = [number for number in numbers if number]
    return min(named[-1], max(_CRI_PLUGINS)) if named else 1


def _version(tree: toml.Tree) -> int:
    raw = tree.get("version", "0")
    try:
        number = int(raw, 0)
    except (TypeError, ValueError):
        number = -1
    if number < 0:
        raise ClusterError(
            "containerd_config",
            f"`version` in a file of containerd is {raw}, which is no version.",
            "Correct it, then run the role again.",
        )
    return number


def part_text(before: t.Sequence[str]) -> str:
    """What containerd imports: the NVIDIA runtime, as the default one.

    ``before``: the files that it reads before, in its order, ``config.toml`` first. The part has their version: a newer part is
    refused by containerd 2.3, and an older containerd reads all of them in the version of the last one.
    """
    version = version_of(before)
    plugin = _CRI_PLUGINS[version]
    # containerd 2 merges what is imported, and would keep what is deleted elsewhere.
    whole = version < _MERGES
    trees = _trees(before)
    there = cri.last(trees, plugin) if whole else cri.merged(trees, plugin)
    lines = toml.lines_of({"plugins": {plugin: cri.with_nvidia(there, whole=whole)}})
    return "\n".join([settings.MANAGED, f"version = {version}", *lines, ""])


def around(imported: t.Iterable[File], part: str) -> tuple[list[str], list[File]]:
    """The texts of the files that are read before our part, and the files that are read after it."""
    before: list[str] = []
    after: list[File] = []
    found = False
    for path, text in imported:
        if path == part:
            found = True
        elif found:
            after.append((path, text))
        else:
            before.append(text)
    return before, after


def overruling(before: t.Sequence[str], after: t.Sequence[File]) -> str:
    """The file that is read after our part and takes the NVIDIA runtime's place as the default; empty where there is none.

    With files below version 3 it is one that has anything of the plugin: containerd 1 puts its section in the place of ours.
    """
    plugin = _CRI_PLUGINS[version_of(before)]
    for path, text in reversed(after):
        found = cri.section(_read(text, path).tree, plugin)
        if found is None:
            continue
        if plugin != _CRI_PLUGINS[_MERGES]:
            return path
        chosen = cri.chosen(found)
        if chosen:
            return path if chosen != cri.RUNTIME else ""
    return ""


def lost(before: str, after: str, imported: t.Iterable[File]) -> str:
    """The first setting of a dump of containerd that it has no longer in a later one; empty where there is none.

    ``imported``: what it reads since. Those of its files that it did not read before may set what they name otherwise.
    """
    new = {*import_items(after)} - {*import_items(before)}
    return cri.lost(before, after, [text for path, text in imported if path in new])


def config_text(text: str) -> str:
    """containerd's own file, which must import our part; everything else in it stays.

    ``imports`` is a key of the root table, so it has to come before the first table (containerd-config.toml(5)).
    """
    pattern = f'"{settings.CONTAINERD_PARTS}/*.toml"'
    document = _read(text, settings.CONTAINERD)
    found = _imports(text, document, settings.CONTAINERD)
    if found:
        return text if _imports_ours(found.items) else found.with_item(text, pattern)
    if not text.strip("\ufeff \t\r\n"):
        return f"version = 2\nimports = [{pattern}]\n"
    newline = "\r\n" if "\r\n" in text else "\n"
    # A byte order mark stays the first of all.
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    head, rest = text[len(mark) : document.first_table].rstrip(" \t\r\n"), text[document.first_table :].lstrip("\r\n")
    above = f"{head}{newline}" if head else ""
    return f"{mark}{above}imports = [{pattern}]{newline}" + (f"{newline}{rest}" if rest else "")


def _imports_ours(items: t.Iterable[str]) -> bool:
    """Whether one of these items of ``imports`` leads to our part. They may be patterns."""
    # containerd 1.6 takes a relative pattern from where it runs; a part that is imported twice is read once.
    return any(item.startswith("/") and PurePosixPath(settings.CONTAINERD_PART).match(item) for item in items)


__all__ = ["File", "around", "config_text", "import_items", "lost", "overruling", "part_text", "version_of"]
