# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Settings that were written, and that a daemon which runs has not read: the note of a run that may end in between.

It lies below /run, which a boot empties: after one every daemon has read its files.
"""

from __future__ import annotations

import json
import os
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Runner
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.units import is_running, started_us

PATH = "/run/container_runtime.unread"

#: For each unit what lets it read its settings, ``reload`` or ``restart``.
Verbs = t.Mapping[str, str]


def read(host: Runner) -> dict[str, str]:
    """The units that run since before their settings were written. One that was started anew is none of them."""
    found = {}
    for unit, (verb, written_us) in _load().items():
        began_us = started_us(host, unit)
        if began_us and began_us <= written_us:
            found[unit] = verb
    return found


def note(verbs: Verbs) -> None:
    """Leave the note that settings of these units change now: before they do, and once more when they are written."""
    if is_running():
        now_us = time.monotonic_ns() // 1000
        _store({unit: (verb, now_us) for unit, verb in verbs.items()})


def forget(verbs: Verbs) -> None:
    """Take out of the note what has happened to these units. A reload does not do for what takes a restart."""
    noted = _load()
    if noted:
        _store({unit: one for unit, one in noted.items() if verbs.get(unit) not in (one[0], "restart")})


def _load() -> dict[str, tuple[str, int]]:
    try:
        with open(PATH, encoding="utf-8") as file:
            return {unit: (verb, written_us) for unit, (verb, written_us) in json.load(file).items()}
    except FileNotFoundError:
        return {}


def _store(noted: t.Mapping[str, tuple[str, int]]) -> None:
    if not noted:
        os.unlink(PATH)
        return
    part = f"{PATH}.part"
    with open(part, "w", encoding="utf-8") as file:
        json.dump(noted, file)
    os.replace(part, PATH)


__all__ = ["PATH", "Verbs", "forget", "note", "read"]
