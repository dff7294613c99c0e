# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which tasks of a playbook changed a host, or would have in check mode, as ansible-playbook printed it."""

from __future__ import annotations

import re

_TASK = re.compile(r"^(?:TASK|RUNNING HANDLER) \[(?:hpcai\.gpu_cluster\.)?(.*)\] \*+$")
_CHANGED = re.compile(r"^changed: \[([^\] ]+)")


def changed_tasks(output: str) -> dict[str, set[str]]:
    """The hosts that each task changed, by ``role: title``. The file of a task, which its name begins with, is left out."""
    found: dict[str, set[str]] = {}
    title = ""
    for line in output.splitlines():
        task, changed = _TASK.match(line), _CHANGED.match(line)
        if task:
            role, colon, name = task[1].rpartition(" : ")
            title = f"{role}{colon and ': '}{name.rpartition(' | ')[2]}"
        elif changed:
            found.setdefault(title, set()).add(changed[1])
    return found


__all__ = ["changed_tasks"]
