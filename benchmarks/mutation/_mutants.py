# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which mutants of a file are tried: one for each of some places, drawn by a seed."""

from __future__ import annotations

import ast
import itertools
import random
import tempfile
from pathlib import Path

from cosmic_ray.commands import init
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec

#: Whether ``==`` and ``is`` differ depends on which objects Python happens to share, not on what the code means.
SAME = ("core/ReplaceComparisonOperator_Eq_Is", "core/ReplaceComparisonOperator_NotEq_IsNot")

Span = tuple[tuple[int, int], tuple[int, int]]


def places(path: Path) -> list[list[MutationSpec]]:
    """All mutants of a file, those of one place together. Annotations are left out: nothing ever evaluates them."""
    with tempfile.TemporaryDirectory() as folder, use_db(str(Path(folder) / "session"), WorkDB.Mode.create) as session:
        init([path], session, {})
        found = [mutation for item in session.work_items for mutation in item.mutations]
    found = [one for one in found if one.operator_name not in SAME]
    skipped = _annotations(path.read_text(encoding="utf-8"))
    kept = [one for one in found if not any(begin <= one.start_pos and one.end_pos <= end for begin, end in skipped)]
    kept.sort(key=lambda one: (one.start_pos, one.end_pos, one.operator_name, one.occurrence))
    return [list(group) for _place, group in itertools.groupby(kept, key=lambda one: (one.start_pos, one.end_pos))]


def draw(path: Path, number: int, seed: int) -> list[MutationSpec]:
    """One mutant for each of ``number`` places (0: of all), in the order of the file; the same for the same seed and file."""
    generator = random.Random(f"{seed} {path.parent.name}/{path.name}")
    every = [generator.choice(mutants) for mutants in places(path)]
    if not number or number >= len(every):
        return every
    return [every[index] for index in sorted(generator.sample(range(len(every)), number))]


def _annotations(text: str) -> list[Span]:
    found: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.append(node.returns)
        elif isinstance(node, (ast.arg, ast.AnnAssign)):
            found.append(node.annotation)
    return [
        ((one.lineno, one.col_offset), (one.end_lineno or one.lineno, one.end_col_offset or one.col_offset))
        for one in found
        if one is not None
    ]


__all__ = ["draw", "places"]
