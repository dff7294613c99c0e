# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What benchmarks/staging/s12_throttled.py counts as use of a limit, without a run."""

from __future__ import annotations

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "benchmarks/staging"))

from s12_throttled import Case

REQUESTS = Case("requests", 2000, 4096, {"requests_per_s": 100})
BYTES = Case("bytes", 600, 1_000_000, {"bytes_per_s": 10e6})


@pytest.mark.parametrize(
    ("case", "failed", "seconds", "requests_each", "used"),
    [
        (REQUESTS, 0, 60, 3, 1.0),
        (REQUESTS, 0, 120, 3, 0.5),
        (REQUESTS, 500, 60, 3, 0.75),
        (REQUESTS, 0, 20, 1, 1.0),
        (BYTES, 0, 60, 3, 1.0),
        (BYTES, 300, 60, 1, 0.5),
    ],
)
def test_only_what_arrived_is_use_of_a_limit(
    case: Case, failed: int, seconds: float, requests_each: int, used: float
) -> None:
    assert case.used(failed, seconds, requests_each) == pytest.approx(used)
