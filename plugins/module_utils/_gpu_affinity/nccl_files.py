# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Where the files for NCCL lie on a node, and whose they are.

The profile of a machine type names them in NCCL's variables, which jobs are given: Azure's HPC images bring them there, other
images do not. What an image brought is left alone; ours begins with a comment, which NCCL skips (since 2.6).
"""

from __future__ import annotations

import dataclasses
import os
import stat
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.foreign import MARK

AUTO = "auto"
# In the head of the map, which is always at a place that is known, so that removal needs no profile.
_ALSO = "# Also written: "


@dataclasses.dataclass(frozen=True)
class NcclFile:
    """``option`` of the module, NCCL's ``variable``, the ``key`` of the text in a plan. ``needed``: NCCL ends jobs whose variable
    names a file that is not there."""

    option: str
    variable: str
    key: str
    needed: bool


FILES = (
    NcclFile("nccl_topology", "NCCL_TOPO_FILE", "nccl_topology_xml", needed=False),
    NcclFile("nccl_graph", "NCCL_GRAPH_FILE", "nccl_graph_xml", needed=True),
)


def place(wanted: str, file: NcclFile, profile: t.Mapping[str, t.Any]) -> str:
    """The path of a file: as given, for ``auto`` the one that the profile names; empty where there is to be none."""
    if wanted != AUTO:
        return wanted
    named: t.Any = profile
    for key in ("nccl", "env"):
        named = named.get(key) or {}
        if not isinstance(named, t.Mapping):
            raise ClusterError(
                "bad_input",
                f"`profile`: `{key}` of its NCCL settings is no mapping: {named!r}.",
                "Correct the profile.",
            )
    return str(named.get(file.variable) or "")


def require_distinct(paths: t.Sequence[str]) -> None:
    """Refuse paths that no file can be kept at: the head of the map names them, one a line, and a removal finds them there."""
    wrong = [path for path in paths if not path.startswith("/") or not path.isprintable() or path.endswith("/")]
    if wrong:
        raise ClusterError(
            "bad_input",
            f"{wrong[0]!r} is not the absolute path of a file.",
            "Correct it, in the option or in the profile.",
        )
    plain = [os.path.normpath(path) for path in paths]
    twice = sorted({path for path in plain if plain.count(path) > 1})
    if twice:
        raise ClusterError(
            "bad_input", f"Two files are to be written to {twice[0]}.", "Give each of them a path of its own."
        )


def is_foreign(path: str) -> bool:
    """Whether something is at a path that we did not write. A link is never ours, whatever it points at."""
    try:
        # What is no file could keep its reader waiting.
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return True
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(len(MARK)) != MARK
    except (FileNotFoundError, NotADirectoryError):
        return False


def folders(path: str) -> list[str]:
    """The directories above a path that may go when they are empty, nearest first: its own, and below /opt, which belongs to
    nobody else, those above it; none right below the root."""
    found = []
    above = os.path.dirname(path)
    while above.count("/") > 1:
        found.append(above)
        above = os.path.dirname(above) if above.startswith("/opt/") else "/"
    return found


def also_written(paths: t.Iterable[str]) -> str:
    """Lines for the head of the map that name these files."""
    return "".join(f"{_ALSO}{path}\n" for path in paths)


def written_beside(text: str) -> list[str]:
    """The files that the head of a map names."""
    return [line[len(_ALSO) :] for line in text.splitlines() if line.startswith(_ALSO + "/")]


__all__ = [
    "AUTO",
    "FILES",
    "NcclFile",
    "also_written",
    "folders",
    "is_foreign",
    "place",
    "require_distinct",
    "written_beside",
]
