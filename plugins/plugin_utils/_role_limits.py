# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Limits of a role's options, which an argument spec cannot tell: ``meta/limits.yml`` of the role.

A limit says of a value

* for a number: ``least`` and ``most``, the smallest and the greatest; ``above``, one that is too small; ``not_above``, an option whose
  number it may not exceed, where that is not 0;
* for a path: ``absolute``, and ``not_root``, and ``below`` that of another option, where that is given; ``or`` lists words beside paths;
* for a text: ``octal``, a mode; ``matches``, an expression, and ``meant``, that in words. ``required``: it may not be empty.
  Of a dictionary the ``entry`` is meant, a key with options in braces;
* for a list: ``filled``, it may not be empty; ``profiles``, it holds directories with profiles, one of which another option names;
* ``form``, what a text, a list or a dictionary of texts has to look like (``_role_forms``);
* ``switch``, for a boolean of the type raw; ``places``, for URLs in blob storage with what goes with them.

It holds ``where`` other options have one of these values, and where one of these ``phases`` of the role runs.
"""

from __future__ import annotations

import math
import posixpath
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.ownership import MODE
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._places import faults_of
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profiles import SHIPPED, FileLibrary
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_forms import misformed

Limit = t.Mapping[str, t.Any]
Values = t.Mapping[str, t.Any]
#: What the filter ``bool`` knows. It takes any other word for false.
_BOOLEANS = ("true", "false", "yes", "no", "on", "off", "1", "0")


def beyond(
    limits: t.Mapping[str, Limit],
    options: t.Mapping[str, Limit],
    values: Values,
    phases: t.Container[str] = (),
) -> list[str]:
    """One sentence for every value that is outside its limit. A value of a wrong type is for the argument spec to refuse.

    ``phases``: those of the role that are going to run.
    """
    found = {name: limit for name, limit in limits.items() if name in options and _holds(limit, values, phases)}
    return [text for name, limit in found.items() for text in _sentences(name, limit, options[name], values)]


def phases_of(role: str, entry_point: str, host: Values) -> list[str]:
    """The phases of a role that this run's tags, which are among the host's variables, leave to run."""
    if entry_point != "main":
        return [entry_point]
    wanted, skipped = {*host.get("ansible_run_tags", ["all"])}, {*host.get("ansible_skip_tags", [])}
    tags = {phase: {"all", "tagged", f"{role}_{phase}"} for phase in ("install", "configure", "verify")}
    return [phase for phase, names in tags.items() if wanted & names and not skipped & names]


def _holds(limit: Limit, values: Values, phases: t.Container[str]) -> bool:
    """Whether a limit counts here. What another option will be is not always known yet."""
    where = all(str(values.get(other)) in choices for other, choices in limit.get("where", {}).items())
    return where and ("phases" not in limit or any(phase in phases for phase in limit["phases"]))


def _sentences(name: str, limit: Limit, option: Limit, values: Values) -> t.Iterator[str]:
    value = values.get(name)
    if "form" in limit and value is not None:
        yield from (f"{name}: {fault}" for fault in misformed(limit["form"], value))
    if "profiles" in limit:
        yield from _profile_faults(limit["profiles"], name, values)
    elif "entry" in limit:
        yield from _entry_faults(name, limit, values)
    elif limit.get("places"):
        yield from (f"{name}: {fault}" for fault in faults_of(value))
    elif value is not None or limit.get("required"):
        excess = _excess(limit, value, option.get("default"), values)
        if excess:
            yield f"{name} is {_shown(value)}: {excess}"


def _shown(value: t.Any) -> str:
    return "empty" if value in (None, "", []) else f"{value!s:.80}"


def _excess(limit: Limit, value: t.Any, default: t.Any, values: Values) -> str:
    if limit.get("absolute"):
        return _path_excess(limit, value, default, values)
    if limit.get("octal"):
        right = value == default or bool(MODE.fullmatch(str(value)))
        return "" if right else 'it has to be four octal digits in quotes, the first a zero, such as "0640".'
    if "matches" in limit:
        return _text_excess(limit, value, values)
    if limit.get("filled"):
        return "it has to name at least one." if value == [] else ""
    if limit.get("switch"):
        right = value in (0, 1) or str(value).lower() in _BOOLEANS
        return "" if right else "it has to be true or false."
    number = _number(value)
    return "" if number is None else _number_excess(limit, number, values)


def _number_excess(limit: Limit, number: float, values: Values) -> str:
    if "above" in limit and not limit["above"] < number < math.inf:
        return f"it has to be more than {limit['above']}."
    if "least" in limit and not limit["least"] <= number < math.inf:
        return f"it has to be {limit['least']} or more."
    if "most" in limit and number > limit["most"]:
        return f"it has to be {limit['most']} or less."
    other = str(limit.get("not_above", ""))
    most = _number(values.get(other))
    if most is not None and 0 < most < number:
        return f"it has to be {values[other]} or less, because {other} says so."
    return ""


def _text_excess(limit: Limit, value: t.Any, values: Values) -> str:
    if isinstance(value, (list, dict)):
        return ""
    empty = value is None or value == ""
    if (empty and not limit.get("required")) or (not empty and re.fullmatch(limit["matches"], str(value))):
        return ""
    because = " and ".join(f"{other} is {values[other]}" for other in limit.get("where", {}))
    return f"it has to be {limit['meant']}{because and f', because {because}'}."


def _entry_faults(name: str, limit: Limit, values: Values) -> t.Iterator[str]:
    """What is wrong with the one value of a dictionary that is going to be read."""
    entries = values.get(name)
    try:
        key = limit["entry"].format_map(values)
    except KeyError:
        return
    if isinstance(entries, dict):
        value = entries.get(key)
        excess = _text_excess(limit, value, values)
        if excess:
            yield (
                f"{name} has no entry {key}: {excess}"
                if value is None
                else f"{name}: {key} is {_shown(value)}: {excess}"
            )


def _profile_faults(other: str, name: str, values: Values) -> t.Iterator[str]:
    """Directories that the controller does not have, and a profile that is in none of them."""
    wanted, directories = str(values.get(other) or ""), values.get(name) or []
    if not isinstance(directories, list) or not (wanted or directories):
        return
    try:
        library = FileLibrary([*(Path(str(path)).expanduser() for path in directories), SHIPPED], name)
        if wanted and library.load(wanted) is None:
            known = ", ".join(sorted(str(profile["name"]) for profile in library.load_all()))
            yield f"{other} is {wanted}: it has to be one of {known}, or {wanted}.yml has to be in a directory of {name}."
    except ClusterError as error:
        yield f"{name}: {error}"


def _path_excess(limit: Limit, value: t.Any, default: t.Any, values: Values) -> str:
    if value in limit.get("or", ()):
        return ""
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


__all__ = ["beyond", "phases_of"]
