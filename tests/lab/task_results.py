# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A task result as the callback in benchmarks/converge/callbacks writes it down."""

from __future__ import annotations

import typing as t


class TaskResult(t.NamedTuple):
    """``role`` is empty for tasks of no role."""

    play: str
    role: str
    task: str
    host: str
    kind: str
    changed: bool


__all__ = ["TaskResult"]
