# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What an upload takes: links followed, or left out by name, or none at all. AzCopy itself passes over them in silence."""

from __future__ import annotations

import dataclasses
import fnmatch
import os
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.argv import CopyRequest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.tree import Links, walk
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

_NAMED = 5


def choose(request: CopyRequest, links: Links) -> tuple[CopyRequest, list[str]]:
    """The request as AzCopy has to have it, and the names of links that it leaves out. Downloads and single files stay as they are.

    Raises ClusterError (``bad_input``) with the names of links that are refused, and of what is no file.
    """
    if request.is_download or not os.path.isdir(request.source):
        return request, []
    if request.file_list is not None:
        return _of_list(request, request.file_list, links)
    takes = _takes(request.include_pattern)
    tree = walk(request.source, links, recursive=request.recursive, takes=takes)
    if links != "follow":
        return request, tree.left_out
    if not tree.links:
        return request, []
    # A list, because patterns are for names of files, and AzCopy would look for links to directories by them.
    return dataclasses.replace(request, include_pattern=None, file_list=tree.names, follow_links=True), []


def _of_list(request: CopyRequest, names: list[str], links: Links) -> tuple[CopyRequest, list[str]]:
    found = [name for name in names if os.path.islink(os.path.join(request.source, name))]
    if links == "refuse" and found:
        raise _refused("symbolic links", found, "Set `links` to `follow` to upload what they point to, or to `skip`.")
    if links == "follow":
        broken = [name for name in found if not os.path.exists(os.path.join(request.source, name))]
        if broken:
            raise _refused("links that lead nowhere", broken, "Correct them, or set `links` to `skip`.")
        return dataclasses.replace(request, follow_links=bool(found)), []
    left = set(names) - set(found)
    if not left:
        raise _refused("symbolic links", found, "Set `links` to `follow`: there is nothing else to upload.")
    return dataclasses.replace(request, file_list=[name for name in names if name in left]), found


def _refused(what: str, names: list[str], remedy: str) -> ClusterError:
    shown = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
    return ClusterError(
        "bad_input", f"{len(names)} files of file_list are {what}: {shown}. Nothing was uploaded.", remedy
    )


def _takes(pattern: str | None) -> t.Callable[[str], bool]:
    """Whether AzCopy takes a file by its name: any of the patterns between ``;``, with ``[^a]`` for what is ``[!a]`` in Python."""
    if pattern is None:
        return lambda _name: True
    patterns = [part.strip().replace("[^", "[!") for part in pattern.split(";") if part.strip()]
    return lambda name: any(fnmatch.fnmatchcase(name, one) for one in patterns)


__all__ = ["choose"]
