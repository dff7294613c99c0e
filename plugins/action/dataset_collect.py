# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collect what dataset_stage did in the background, in the words of the role that started it."""

from __future__ import annotations

import typing as t

from ansible.plugins.action.async_status import ActionModule as AsyncStatusAction
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import names_role_variables


class ActionModule(AsyncStatusAction):
    """See plugins/modules/dataset_collect.py for the documentation."""

    @names_role_variables
    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Look once, as Ansible's own async_status does. That can delete the job's file, too."""
        self.validate_argument_spec(argument_spec={"jid": {"type": "str", "required": True}})
        return t.cast("dict[str, t.Any]", super().run(tmp, task_vars))
