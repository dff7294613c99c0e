# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Lists as a survey gives them, in which every answer is a text."""

from __future__ import annotations

import json
import typing as t


def listed(value: t.Any) -> t.Any:
    """A text that is a list or a dictionary in JSON as the list that it stands for; any other value as it is.

    Ansible itself takes a text for a list, too, and separates it at every comma, those of JSON included.
    """
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    try:
        found = json.loads(value)
    except ValueError:
        return value
    return found if isinstance(found, list) else [found]


__all__ = ["listed"]
