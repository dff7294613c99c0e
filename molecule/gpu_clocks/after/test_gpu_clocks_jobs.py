# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After jobs, a boot, GPUs that break, the removal, and a node without GPUs."""

from __future__ import annotations

import typing as t

from lab.seen import seen


def first(host: t.Any) -> dict[str, t.Any]:
    """The notes of the first node, for only there things go wrong. Empty on the others."""
    found = seen(host)
    return found if found["first"] else {}


def test_a_job_gets_its_clocks_and_the_node_its_own_back(host: t.Any) -> None:
    assert seen(host)["of_job"] == ["1410"] * 8
    if found := first(host):
        assert found["after_job"] == ["1200"] * 8


def test_jobs_of_slurm_share_gpus(host: t.Any) -> None:
    if found := first(host):
        assert [line.split() for line in found["slurm"]] == [
            ["1410"] * 3 + ["1200"] * 5,
            ["1200", "1410", "1410"] + ["1200"] * 5,
            ["1200"] * 8,
        ]


def test_trouble_of_the_prolog_is_in_the_journal_and_does_not_fail_it(host: t.Any) -> None:
    if found := first(host):
        assert "begin of job 10" in found["journal"]
        assert "GPU 99 does not answer" in found["journal"]


def test_verify_notices_that_a_boot_has_reset_the_clocks(host: t.Any) -> None:
    if found := first(host):
        kind, message = found["booted"]
        assert kind == "not_applied"
        assert "8 of 8 GPUs" in message


def test_broken_gpus_are_named_and_the_others_set(host: t.Any) -> None:
    if found := first(host):
        broken = found["broken"]
        assert "GPU is lost" in broken["msg"]
        assert "GPU 5 (000c:00:00.0): the graphics clock of this GPU cannot be locked" in broken["msg"]
        assert (broken["changed"], broken["set"]) == (True, [0, 1, 2, 4, 6, 7])
        assert found["broken_clocks"].count("1005") == 6


def test_removal_leaves_nothing_and_the_gpus_as_they_were(host: t.Any) -> None:
    assert seen(host)["left"] == ["210, 1095, Disabled"] * 8


def test_check_mode_does_nothing_on_a_fresh_node(host: t.Any) -> None:
    assert seen(host)["checked"] == ["210, Disabled"] * 8


def test_a_node_without_gpus_is_refused_where_they_are_required(host: t.Any) -> None:
    if found := first(host):
        assert found["without"] == "no_driver"
