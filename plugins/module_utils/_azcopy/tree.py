# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is in a directory that is to be uploaded. AzCopy leaves out links and pipes in silence; here all of it is named."""

from __future__ import annotations

import os
import stat
import typing as t
from dataclasses import dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.part_file import is_final
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.beneath import is_utf8

#: What becomes of symbolic links: the upload stops and names them, takes what they point to, or leaves them out.
Links = t.Literal["refuse", "follow", "skip"]
_NAMED = 5
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
    """Names relative to the directory. ``bytes`` are those of the files, ``links`` those of links; ``left_out`` is what was passed
    over, and links that are not followed.
    """

    names: list[str] = field(default_factory=list)
    bytes: int = 0
    left_out: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)


def _all(_name: str) -> bool:
    return True


def _none(_directory: os.DirEntry[str]) -> bool:
    return False


def walk(
    source: str,
    links: Links = "refuse",
    *,
    recursive: bool = True,
    takes: t.Callable[[str], bool] = _all,
    passes_over: t.Callable[[os.DirEntry[str]], bool] = _none,
) -> Tree:
    """Everything below ``source``. Raises ClusterError with names where something in it cannot be uploaded.

    ``takes`` tells by its last component whether a file is wanted, ``passes_over`` whether a directory is left out.
    """
    if not os.path.isdir(source):
        raise ClusterError("not_found", f"{source} is not a directory on this node.", "Check the path.")
    reader = _Reader(source, links, recursive, takes, passes_over)
    try:
        reader.read()
    except FileNotFoundError as exc:
        raise ClusterError(
            "changed_at_source",
            f"`{exc.filename}` went away while the directory was read.",
            "Run again when no program writes to it any more.",
        ) from exc
    except OSError as exc:
        kind = "bad_input" if is_final(exc) else "io"
        remedy = "Check its owner and mode." if is_final(exc) else "Check its file system, then run again."
        raise ClusterError(kind, f"`{exc.filename}` cannot be read: {exc.strerror}.", remedy) from exc
    for what, names in reader.refused.items():
        if names:
            shown = ", ".join(sorted(names)[:_NAMED]) + (", …" if len(names) > _NAMED else "")
            message = f"{len(names)} names below {source} are {what}: {shown}. Nothing was uploaded."
            raise ClusterError("bad_input", message, _REMEDIES[what])
    reader.tree.names.sort()
    reader.tree.left_out.sort()
    return reader.tree


class _Reader:
    """Walks a directory by a list of its own: trees may be deeper than calls."""

    def __init__(
        self,
        source: str,
        links: Links,
        recursive: bool,
        takes: t.Callable[[str], bool],
        passes_over: t.Callable[[os.DirEntry[str]], bool],
    ) -> None:
        self._source = source
        self._links = links
        self._recursive = recursive
        self._takes = takes
        self._passes_over = passes_over
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
        if not (self._recursive if entry.is_dir() else self._takes(entry.name)):
            return
        if not is_utf8(entry.name):
            self.refused["not UTF-8"].append(ascii(name))
            return
        is_link = entry.is_symlink()
        self.tree.links += [name] * is_link
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
        if self._passes_over(entry):
            self.tree.left_out.append(name)
        elif _identity(found) in above:
            self.refused["links to a directory that they are in"].append(name)
        else:
            self._todo.append((name, (*above, _identity(found))))


def _identity(found: os.stat_result) -> _Identity:
    return found.st_dev, found.st_ino


__all__ = ["Links", "Tree", "walk"]
