# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Limits of a role's options, which an argument spec cannot tell: ``meta/limits.yml`` of the role.

A limit has ``least``, the smallest number; ``above``, a number that is too small; ``absolute``, for a path, which may be ``not_root``
and ``below`` that of another option, where that is given; ``octal``, for a mode; ``places``, for URLs in blob storage with what
goes with them; or ``form``, what a text has to look like.
"""

from __future__ import annotations

import math
import posixpath
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.ownership import MODE
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._places import faults_of
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_forms import misformed

Limit = t.Mapping[str, t.Any]


def beyond(limits: t.Mapping[str, Limit], options: t.Mapping[str, Limit], values: t.Mapping[str, t.Any]) -> list[str]:
    """One sentence for every value that is outside its limit. A value of a wrong type is for the argument spec to refuse."""
    found = [
        (name, values[name], _excess(limit, values[name], options[name].get("default"), values))
        for name, limit in limits.items()
        if name in options and values.get(name) is not None
    ]
    faults = [
        *(
            (name, str(fault))
            for name, value, _excess in found
            if limits[name].get("places")
            for fault in faults_of(value)
        ),
        *(
            (name, fault)
            for name, value, _excess in found
            if "form" in limits[name]
            for fault in misformed(limits[name]["form"], value)
        ),
    ]
    return [
        *(f"{name} is {value!s:.80}: {excess}" for name, value, excess in found if excess),
        *(f"{name}: {fault}" for name, fault in faults),
    ]


def _excess(limit: Limit, value: t.Any, default: t.Any, values: t.Mapping[str, t.Any]) -> str:
    if limit.get("absolute"):
        return _path_excess(limit, value, default, values)
    if limit.get("octal"):
        right = value == default or bool(MODE.fullmatch(str(value)))
        return "" if right else 'it has to be four octal digits in quotes, the first a zero, such as "0640".'
    number = _number(value)
    if number is None or limit.get("places") or "form" in limit:
        return ""
    if "above" in limit:
        return "" if limit["above"] < number < math.inf else f"it has to be more than {limit['above']}."
    return "" if limit["least"] <= number < math.inf else f"it has to be {limit['least']} or more."


def _path_excess(limit: Limit, value: t.Any, default: t.Any, values: t.Mapping[str, t.Any]) -> str:
    # A home directory and variables of the environment are those of the node.
    if not (str(value).startswith(("/", "~", "$")) or value == default == ""):
        return "it has to be an absolute path, such as /data."
    path = posixpath.normpath(str(value))
    if limit.get("not_root") and path in ("/", "//"):
        return "it has to be a directory below /, which belongs to the whole node."
    other = str(limit.get("below", ""))
    above = str(values.get(other) or "")
    if above.startswith("/") and path.startswith("/"):
        above = posixpath.normpath(above)
        if posixpath.commonpath([above, path]) != above:
            return f"it has to be {above} or a directory below that, because {other} names it."
    return ""


def _number(value: t.Any) -> float | None:
    """What a number or a text that says one stands for."""
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None


__all__ = ["beyond"]
