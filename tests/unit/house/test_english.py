# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sentences say who does what: none hangs a clause on somebody without a name."""

from __future__ import annotations

import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[3]
TURN = re.compile(
    r"\b(?:that|what|which|who|whom|whose|where|than|when|as)[\s#'\"]+(?:no|some|any|every)body\b", re.IGNORECASE
)
#: What has been released keeps its words.
RELEASED = ("changelogs/", "CHANGELOG.md")


def test_no_clause_hangs_on_somebody_unnamed() -> None:
    """With "a driver that nobody may remove" the reader does not learn who may not."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = []
    for name in listed.split("\0"):
        path = ROOT / name
        if not name or name.startswith(RELEASED) or path == pathlib.Path(__file__) or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="ignore")
        found += [f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}" for match in TURN.finditer(text)]
    assert found == []


@pytest.mark.parametrize(
    "text", ["a disk that nobody wiped", "files which\n# somebody else wrote", "What anybody may read"]
)
def test_the_turn_is_found(text: str) -> None:
    assert TURN.search(text)


@pytest.mark.parametrize("text", ["nobody knows", "somebody works over RDMA", "that body"])
def test_other_words_are_let_through(text: str) -> None:
    assert not TURN.search(text)
