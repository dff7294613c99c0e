# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An unexplained skip fails the run."""

from __future__ import annotations

import pathlib

import pytest
from proof import skips
from proof.records import Test

SKIPPED = Test("tests.unit.a.test_a::test_disks[raid0]", 0.0, "skipped", "no loop devices here")


def test_a_known_skip_is_known_by_its_test_and_by_what_it_says() -> None:
    known = skips.KnownSkip("tests.unit.a.test_a::test_disks", "no loop devices", "The VM lab proves it on NVMe disks.")
    other = skips.KnownSkip("tests.unit.a.test_a::test_disks", "no network", "There is none.")
    assert skips.unknown([SKIPPED], [known]) == []
    assert skips.unknown([SKIPPED], [other]) == [SKIPPED]
    assert skips.unknown([Test("tests.unit.a.test_a::test_else", 0, "passed")], []) == []


def test_the_list_gives_reasons() -> None:
    for one in skips.load():
        assert len(one.because) > 20, one


def test_an_entry_without_a_reason_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "known_skips.yml"
    path.write_text("- {test: a, says: b, because: ''}\n")
    with pytest.raises(ValueError, match="because"):
        skips.load(path)
