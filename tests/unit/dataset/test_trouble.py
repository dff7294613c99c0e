# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a rank whose batches fail with io tries again, and when it ends."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.trouble import Trouble


def test_pauses_double_and_the_rank_ends_after_the_time_that_is_forgiven() -> None:
    trouble = Trouble(most=3, forgiven_s=60, pause_s=1)
    now, pauses = 1000.0, []
    while not trouble.failed(now):
        pauses.append(trouble.rest_s(now))
        now += pauses[-1]
    assert pauses == [1, 2, 4, 8, 15, 15, 15, 15]
    assert now - 1000 == 75


def test_few_failures_end_no_rank_however_long_they_last() -> None:
    trouble = Trouble(most=3, forgiven_s=60, pause_s=1)
    assert [trouble.failed(now) for now in (0, 1000, 2000, 3000)] == [False, False, False, True]


def test_a_batch_that_was_copied_ends_the_trouble() -> None:
    trouble = Trouble(most=3, forgiven_s=60, pause_s=1)
    for now in (0, 30, 61):
        trouble.failed(now)
    trouble.over()
    assert trouble.rest_s(61) == 0
    assert not trouble.failed(62)
    assert trouble.rest_s(62) == 1
    assert trouble.rest_s(62.75) == 0.25
    assert trouble.rest_s(64) == 0
