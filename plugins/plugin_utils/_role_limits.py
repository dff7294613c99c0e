# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Limits of a role's options, which an argument spec cannot tell: ``meta/limits.yml`` of the role.

A limit has ``least``, the smallest number; ``above``, a number that is too small; or ``absolute``, for a path.
"""

from __future__ import annotations

import math
import typing as t

Limit = t.Mapping[str, t.Any]


def beyond(limits: t.Mapping[str, Limit], options: t.Mapping[str, Limit], values: t.Mapping[str, t.Any]) -> list[str]:
    """One sentence for every value that is outside its limit. A value of a wrong type is for the argument spec to refuse."""
    found = [
        (name, values[name], _excess(limit, values[name], options[name].get("default")))
        for name, limit in limits.items()
        if name in options and values.get(name) is not None
    ]
    return [f"{name} is {value!s:.80}: {excess}" for name, value, excess in found if excess]


def _excess(limit: Limit, value: t.Any, default: t.Any) -> str:
    if limit.get("absolute"):
        # A home directory and variables of the environment are those of the node.
        right = str(value).startswith(("/", "~", "$")) or value == default == ""
        return "" if right else "it has to be an absolute path, such as /data."
    number = _number(value)
    if number is None:
        return ""
    if "above" in limit:
        return "" if limit["above"] < number < math.inf else f"it has to be more than {limit['above']}."
    return "" if limit["least"] <= number < math.inf else f"it has to be {limit['least']} or more."


def _number(value: t.Any) -> float | None:
    """What a number or a text that says one stands for."""
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None


__all__ = ["beyond"]
