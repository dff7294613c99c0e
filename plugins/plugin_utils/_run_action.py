# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Another action of Ansible's, run for the task and on the node that an action works on."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase

Result = dict[str, t.Any]


def run_action(action: ActionBase, name: str, args: dict[str, t.Any], variables: dict[str, t.Any]) -> Result:
    """The result of the action of this full name, with these arguments in place of the task's own. A failure is returned, too."""
    task = action._task.copy()
    task.args = args
    other = action._shared_loader_obj.action_loader.get(
        name,
        task=task,
        connection=action._connection,
        play_context=action._play_context,
        loader=action._loader,
        templar=action._templar,
        shared_loader_obj=action._shared_loader_obj,
    )
    return t.cast(Result, other.run(task_vars=variables))


__all__ = ["run_action"]
