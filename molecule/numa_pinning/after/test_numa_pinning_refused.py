# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After requests that do not fit the node, a map that was changed by hand, and the removal."""

from __future__ import annotations

import typing as t

import pytest
from lab.seen import seen


@pytest.mark.parametrize(
    ("what", "kind"),
    [("foreign", "profile_does_not_fit"), ("crowded", "too_few_cpus"), ("changed", "not_as_planned")],
)
def test_what_does_not_fit_is_refused(host: t.Any, what: str, kind: str) -> None:
    assert seen(host)[what] == kind


def test_verify_leaves_a_map_that_was_changed_by_hand(host: t.Any) -> None:
    assert seen(host)["map"] == "0 0 0 0 - -"


def test_removal_leaves_gres_conf_without_which_slurmd_would_not_start(host: t.Any) -> None:
    """And nothing else: the file for NCCL goes, too, although the map no longer named it."""
    assert seen(host)["left"] == ["/etc/gpu-bind/gres.conf"]
