# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a failed request is made again."""

from __future__ import annotations

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.patience import Patience, retry_after_s

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, 0.0),
        ("", 0.0),
        ("7", 7.0),
        (" 120 ", 120.0),
        ("soon", 0.0),
        ("-5", 0.0),
        ("1e9", 0.0),
        ("\u0663", 0.0),  # a digit, and not one of HTTP's
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60.0),  # NOW is 22:13:20
        ("Tue, 14 Nov 2023 22:12:20 GMT", 0.0),
        ("Tue, 99 Nov 2023 22:12:20 GMT", 0.0),
    ],
)
def test_what_the_service_asks_for(value: str | None, seconds: float) -> None:
    assert retry_after_s(value, NOW) == seconds


def test_pauses_double_up_to_a_limit_and_retries_run_out() -> None:
    patience = Patience(retries=7, deadline_s=1000)
    assert [patience.pause_s() for _attempt in range(8)] == [0.25, 0.5, 1, 2, 4, 8, 8, None]


def test_a_busy_service_costs_no_retry_and_names_its_pause() -> None:
    patience = Patience(retries=1, deadline_s=1000)
    assert [patience.pause_s(busy=True, asked_s=asked) for asked in (0, 30, 0)] == [0.25, 30, 1]
    assert patience.pause_s() == 2
    assert patience.pause_s() is None
    assert patience.pause_s(busy=True) == 4


def test_nothing_is_tried_after_the_deadline() -> None:
    patience = Patience(retries=99, deadline_s=10)
    assert patience.pause_s(busy=True, asked_s=11) is None
    assert patience.pause_s(busy=True, asked_s=5) == 5
    assert Patience(retries=99, deadline_s=0.2).pause_s() is None
