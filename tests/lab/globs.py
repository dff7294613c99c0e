# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What AzCopy copies for ``--include-pattern``, by the rules that the collection knows of Go's ``path.Match``."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._shards.patterns import SEPARATOR, tokens


def matches(pattern: str, name: str) -> bool:
    """Whether AzCopy takes the blob ``name`` for the single glob ``pattern``: only the last component counts."""
    return re.compile("".join(tokens(pattern)), re.DOTALL).fullmatch(name.rpartition("/")[2]) is not None


def selected(include_pattern: str, names: t.Iterable[str]) -> list[str]:
    """The names that AzCopy copies. An empty pattern would be all of them, and is refused."""
    globs = [glob for glob in include_pattern.split(SEPARATOR) if glob]
    assert globs, "an empty include pattern makes AzCopy copy everything"
    whole = re.compile("|".join(f"(?:{''.join(tokens(glob))})" for glob in globs), re.DOTALL)
    return [name for name in names if whole.fullmatch(name.rpartition("/")[2])]


__all__ = ["matches", "selected"]
