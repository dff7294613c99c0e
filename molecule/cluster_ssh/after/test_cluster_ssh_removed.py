# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After the trust was removed and given back, and exchanged once more without the last node."""

from __future__ import annotations

import typing as t

from lab.seen import seen


def test_removal_leaves_what_was_there_byte_for_byte(host: t.Any) -> None:
    found = seen(host)
    assert "# mine, and no newline at the end" in found["before"]
    assert found["after"] == found["before"]


def test_a_node_that_does_not_answer_keeps_its_lines(host: t.Any) -> None:
    assert f"{seen(host)['left_out']}," in host.file("/root/.ssh/known_hosts").content_string
