# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a scenario's side_effect.yml noted on a node, for the tests in its after/."""

from __future__ import annotations

import json
import typing as t


def seen(host: t.Any) -> dict[str, t.Any]:
    """The notes on this node. ``host`` is testinfra's."""
    return t.cast("dict[str, t.Any]", json.loads(host.file("/run/lab-seen.json").content_string))


__all__ = ["seen"]
