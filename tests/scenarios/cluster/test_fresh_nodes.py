# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that no role has touched yet."""

from __future__ import annotations

import typing as t

import pytest
from lab.fingerprint import SCRIPT, difference

if t.TYPE_CHECKING:
    from conftest import Lab

pytestmark = pytest.mark.fresh


def test_check_mode_lists_what_would_change_and_changes_nothing(lab: Lab) -> None:
    before = {node: lab.run(node, "sh", "-c", SCRIPT) for node in lab.nodes}
    result = lab.playbook("site", {}, "--check", "--diff")
    assert result.rc == 0, result.output[-5000:]
    for node in lab.nodes:
        assert not difference(before[node], lab.run(node, "sh", "-c", SCRIPT)), node
        assert result.recap(node)["changed"] >= 5, result.output[-3000:]
    staged = lab.dataset_files
    for expected in ("+++ after", "/etc/gpu-bind/map", "authorized_keys", f"{staged} of {staged} files verified"):
        assert expected in result.output, expected
