# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is in a directory that is to be uploaded. Nothing is left out without being named."""

from __future__ import annotations

import os
import stat
import typing as t
from dataclasses import dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import STATE_DIR
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.beneath import is_utf8

#: What becomes of symbolic links: the upload stops and names them, takes what they point to, or leaves them out.
Links = t.Literal["refuse", "follow", "skip"]
_NAMED = 5
#: One of these says that a directory of this name is the state of a staging.
_STATE_FILES = ("dataset.json", "manifest.jsonl", "receipts")
_REMEDIES = {
    "symbolic links": "Set `links` to `follow` to upload what they point to, to `skip` to leave them out, or remove them.",
    "links that lead nowhere": "Remove them, or set `links` to `skip`.",
    "links to a directory that they are in": "Remove them, or set `links` to `skip`.",
    "no regular files (pipes, sockets, devices)": "Remove them, or upload another directory.",
    "not UTF-8": "Rename them: blobs have no other names.",
}

#: Device and inode.
_Identity = tuple[int, int]


@dataclass
class Tree:
    """Names relative to the directory. ``bytes`` are those of the files; ``left_out`` is the state of a staging, and links."""

    names: list[str] = field(default_factory=list)
    bytes: int = 0
    left_out: list[str] = field(default_factory=list)


def read_tree(source: str, links: Links = "refuse") -> Tree:
    """Everything below ``source``. Raises ClusterError with names where something in it cannot be uploaded."""
    if not os.path.isdir(source):
        raise ClusterError("not_found", f"{source} is not a directory on this node.", "Check the path.")
    reader = _Reader(source, links)
    try:
        reader.read()
    except FileNotFoundError as exc:
        raise ClusterError(
            "changed_at_source",
            f"`{exc.filename}` went away while the directory was read.",
            "Run again when no program writes to it any more.",
        ) from exc
    except OSError as exc:
        raise ClusterError(
            "bad_input", f"`{exc.filename}` cannot be read: {exc.strerror}.", "Check its owner and mode."
        ) from exc
    for what, names in reader.refused.items():
        if names:
            shown = ", ".join(sorted(names)[:_NAMED]) + (", …" if len(names) > _NAMED else "")
            message = f"{len(names)} names below {source} are {what}: {shown}. Nothing was uploaded."
            raise ClusterError("bad_input", message, _REMEDIES[what])
    if not reader.tree.names:
        raise ClusterError("no_match", f"{source} holds no files.", "Check the path; nothing was uploaded.")
    reader.tree.names.sort()
    reader.tree.left_out.sort()
    return reader.tree


class _Reader:
    """Walks a directory by a list of its own: trees may be deeper than calls."""

    def __init__(self, source: str, links: Links) -> None:
        self._source = source
        self._links = links
        self._todo: list[tuple[str, tuple[_Identity, ...]]] = [("", (_identity(os.stat(source)),))]
        self.tree = Tree()
        self.refused: dict[str, list[str]] = {what: [] for what in _REMEDIES}

    def read(self) -> None:
        while self._todo:
            directory, above = self._todo.pop()
            with os.scandir(os.path.join(self._source, directory)) as entries:
                for entry in entries:
                    self._take(entry, os.path.join(directory, entry.name), above)

    def _take(self, entry: os.DirEntry[str], name: str, above: tuple[_Identity, ...]) -> None:
        if not is_utf8(entry.name):
            self.refused["not UTF-8"].append(ascii(name))
            return
        is_link = entry.is_symlink()
        if is_link and self._links != "follow":
            (self.refused["symbolic links"] if self._links == "refuse" else self.tree.left_out).append(name)
            return
        try:
            found = entry.stat(follow_symlinks=is_link)
        except OSError:
            if not is_link:
                raise
            self.refused["links that lead nowhere"].append(name)
            return
        if stat.S_ISDIR(found.st_mode):
            self._descend(entry, name, found, above)
        elif stat.S_ISREG(found.st_mode):
            self.tree.names.append(name)
            self.tree.bytes += found.st_size
        else:
            self.refused["no regular files (pipes, sockets, devices)"].append(name)

    def _descend(self, entry: os.DirEntry[str], name: str, found: os.stat_result, above: tuple[_Identity, ...]) -> None:
        if entry.name == STATE_DIR and any(os.path.lexists(os.path.join(entry.path, file)) for file in _STATE_FILES):
            self.tree.left_out.append(name)
        elif _identity(found) in above:
            self.refused["links to a directory that they are in"].append(name)
        else:
            self._todo.append((name, (*above, _identity(found))))


def _identity(found: os.stat_result) -> _Identity:
    return found.st_dev, found.st_ino


__all__ = ["Links", "Tree", "read_tree"]
