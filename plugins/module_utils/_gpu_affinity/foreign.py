# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Whose the file is that stands where one of ours is to be: what another author wrote is kept, unless the user consents.

Ours begin with a comment that says so (``HEAD`` in those that read ``#`` as one, ``MARK`` in NCCL's).
"""

from __future__ import annotations

import os
import re
import stat
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

HEAD = "# Ansible managed (hpcai.gpu_cluster.numa_pinning): changes are overwritten.\n"
MARK = "<!-- Ansible managed (hpcai.gpu_cluster.numa_pinning): changes are overwritten. -->\n"
# A map that was written by hand is still one: rank, GPUs, CPUs, memory, and what an older release did not have.
_MAP_LINE = re.compile(r"(#.*|\d+( \S+){3,5}|)")


def read_regular(path: str) -> str | None:
    """A regular file; None where there is none. What is none could keep its reader waiting."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return None
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_foreign_text(have: str, ours: str) -> bool:
    """Whether a file's text is somebody else's. ``ours``: what is to be there, which an earlier release wrote without its head."""
    for mark in (HEAD, MARK):
        if ours.startswith(mark):
            return bool(have.strip()) and not have.startswith(mark) and have != ours[len(mark) :]
    raise ValueError("a file of ours begins with its mark")


def is_map(text: str) -> bool:
    """Whether a file's text is a map, of ours or by hand."""
    return text.startswith(HEAD) or all(map(_MAP_LINE.fullmatch, text.splitlines()))


def foreign_among(texts: t.Mapping[str, str]) -> list[str]:
    """The paths, of those where these texts are to be, where a file of somebody else stands."""
    read = {path: read_regular(path) for path in texts}
    return [path for path, have in read.items() if have is not None and is_foreign_text(have, texts[path])]


def refuse(paths: t.Sequence[str]) -> None:
    """Raise ClusterError (``foreign_files``) where files of somebody else would be replaced."""
    if paths:
        raise ClusterError(
            "foreign_files",
            f"{' and '.join(paths)} {'was' if len(paths) == 1 else 'were'} not written by this collection. Nothing was changed.",
            "Name another path, move it away, or set `allow_overwrite: true` to replace it.",
            files=list(paths),
        )


__all__ = ["HEAD", "MARK", "foreign_among", "is_foreign_text", "is_map", "read_regular", "refuse"]
