# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What gpu_clocks leaves on a node."""

from __future__ import annotations

import hashlib
import json
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._programs import build


def test_the_gpus_run_at_the_locked_clock(host: t.Any) -> None:
    answer = host.check_output("nvidia-smi --query-gpu=clocks.gr,persistence_mode --format=csv,noheader,nounits")
    assert answer.splitlines() == ["1200, Enabled"] * 8


def test_the_node_s_own_program_agrees(host: t.Any) -> None:
    status = json.loads(host.check_output("gpu-clocks status --json"))
    assert [gpu["graphics_lock"] for gpu in status["gpus"]] == ["1200-1200 MHz"] * 8
    assert status["gpus"][0]["layers"]["node"]["before"]["graphics_lock"] == "unknown"
    planned = json.loads(host.check_output("gpu-clocks apply --check --json"))
    assert (planned["changed"], planned["commands"]) == (False, [])


def test_the_unit_runs_at_boot_and_changes_nothing_now(host: t.Any) -> None:
    unit = host.service("gpu-clocks.service")
    assert unit.is_enabled
    before = host.file("/var/lib/gpu_clocks/state.json").content_string
    started = host.run("systemctl restart gpu-clocks.service")
    journal = host.run("journalctl --no-pager --unit gpu-clocks.service --lines 20").stdout
    assert started.rc == 0, journal
    assert unit.is_running, journal
    assert host.file("/var/lib/gpu_clocks/state.json").content_string == before


def test_what_is_saved_is_private(host: t.Any) -> None:
    saved = host.file("/var/lib/gpu_clocks/state.json")
    assert (saved.mode, saved.user) == (0o600, "root")
    assert host.file("/var/lib/gpu_clocks").mode == 0o700
    assert len(json.loads(saved.content_string)["gpus"]) == 8


def test_the_node_runs_the_module_s_own_files_as_one_program(host: t.Any) -> None:
    # The play's Python, which is not the same in every image.
    python = host.check_output("head -n 1 /usr/local/sbin/gpu-clocks").removeprefix("#!").removesuffix(" -IS")
    built = hashlib.sha256(build("gpu-clocks", python)).hexdigest()
    assert host.file("/usr/local/sbin/gpu-clocks").sha256sum == built
    assert sorted(host.file("/usr/local/lib/gpu_clocks").listdir()) == ["slurm-epilog.sh", "slurm-prolog.sh"]


@pytest.mark.parametrize(
    ("arguments", "status"), [("begin", 2), ("nonsense", 2), ("apply --config /nowhere", 2), ("end --job 9", 0)]
)
def test_exit_codes(host: t.Any, arguments: str, status: int) -> None:
    assert host.run(f"gpu-clocks {arguments}").rc == status
