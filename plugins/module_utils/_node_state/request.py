# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What a task asks of ``node_state``: which of its items count."""

from __future__ import annotations

import typing as t

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

#: The options that list items, in the order of the documentation.
LISTS = ("packages", "directories", "archives", "files", "links", "absent", "units")


def wanted_items(params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The parameters without the items whose ``when`` is false, and without the ``when`` of the others."""
    wanted = dict(params)
    for option in LISTS:
        if isinstance(params.get(option), (list, tuple)):
            wanted[option] = [_without_when(item) for item in params[option] if _is_wanted(item, option)]
    return wanted


def _is_wanted(item: t.Any, option: str) -> bool:
    when = item.get("when", True) if isinstance(item, t.Mapping) else True
    try:
        return bool(boolean(when))
    except TypeError:
        raise ClusterError(
            "bad_input", f"`when` of an item of `{option}` is {when!r}, which is not a boolean.", "Write true or false."
        ) from None


def _without_when(item: t.Any) -> t.Any:
    return {key: value for key, value in item.items() if key != "when"} if isinstance(item, t.Mapping) else item


__all__ = ["LISTS", "wanted_items"]
