# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan is pure: a file of that name imports nothing with which it could reach the node."""

from __future__ import annotations

import ast
import pathlib

import pytest

UTILS = pathlib.Path(__file__).parents[3] / "plugins/module_utils"
PLANS = sorted(UTILS.glob("_*/plan.py"))
#: Modules of Python with which a program looks or acts outside of itself; os.path's arithmetic is posixpath's, too.
REACHING = {"os", "pathlib", "shutil", "subprocess", "socket", "tempfile", "glob", "io", "time", "urllib", "threading"}


def imported(path: pathlib.Path) -> set[str]:
    """The modules that a file imports, by their first names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.parent.name)
def test_a_plan_reaches_nothing(path: pathlib.Path) -> None:
    assert imported(path) & REACHING == set()


def test_there_are_plans() -> None:
    assert {"_nvme_raid", "_nvidia_driver", "_rdma", "_shards"} <= {path.parent.name for path in PLANS}
