# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fault table: our side of every row, on a real AzCopy and Azurite."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from lab.blob.faults import FAULTS, Fault, Stage, play_ours
from lab.blob.service import Azurite, azurite

pytestmark = [pytest.mark.blob, pytest.mark.slow]


@pytest.fixture(scope="module")
def server() -> t.Iterator[Azurite]:
    with azurite() as running:
        yield running


def test_the_table_has_every_row() -> None:
    assert {fault.row for fault in FAULTS} == set(range(1, 21))
    assert len({fault.key for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.key for fault in FAULTS])
def test_row(fault: Fault, server: Azurite, tmp_path: pathlib.Path) -> None:
    with Stage(fault, server, tmp_path) as stage:
        # Seconds for the rows that stall: the others must end by themselves, however slow the machine is.
        ending = play_ours(stage, stall_timeout_s=5 if fault.kind == "stalled" else 120)
        assert ending.verdict == (fault.kind or "ok"), ending.message
        assert not ending.silent
        assert ending.wrong_names == ()
        assert ending.leftovers == 0
        if not fault.kind:
            assert ending.whole
