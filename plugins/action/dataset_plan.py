# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of dataset_plan: no SAS in a URL, a SAS through stdin only, messages that name the role's variables.

It knows the whole play, too, of which the node sees nothing.
"""

from __future__ import annotations

import os
import typing as t

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._by_stdin import PipedModuleAction
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._other_hosts import values_elsewhere
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._places import PlacesModuleAction
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._play import whole_play
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import names_role_variables

_NAMED = 3


class ActionModule(PlacesModuleAction, PipedModuleAction):
    """See plugins/modules/dataset_plan.py for the documentation."""

    @names_role_variables
    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run it, for all hosts of the play where that is asked for."""
        if boolean(self._task.args.get("whole_play", False), strict=False):
            self._task.args["hosts"] = whole_play(self._task, task_vars or {})
        elif self._task.run_once and self._task.args.get("scope", "shared") == "shared":
            error = self._apart(task_vars or {})
            if error is not None:
                return {"failed": True, "changed": False, **error.as_result()}
        return super().run(tmp, task_vars)

    def _apart(self, variables: dict[str, t.Any]) -> ClusterError | None:
        """The error (``not_shared``) where the hosts that are to copy to one directory name different ones."""
        written = ((self._task.get_ds() or {}).get(self._task.action) or {}).get("destination")
        hosts = self._task.args.get("hosts") or []
        hosts = hosts.split(",") if isinstance(hosts, str) else hosts  # as Ansible takes a text for a list
        here = os.path.normpath(str(self._task.args.get("destination")))
        elsewhere = values_elsewhere(written, hosts, self._templar, variables)
        other = {host: value for host, value in elsewhere.items() if os.path.normpath(str(value)) != here}
        if not other:
            return None
        named = [f"{host} has {value}" for host, value in list(other.items())[:_NAMED]]
        more = f", and {len(other) - _NAMED} more have others" if len(other) > _NAMED else ""
        return ClusterError(
            "not_shared",
            f"`destination` is {here} on {variables['inventory_hostname']}, but {', '.join(named)}{more}. All nodes copy to one directory "
            "that they share. Nothing was listed or copied.",
            "Where every node is to keep a share on a disk of its own, set `scope: local`. Else give all of them the same directory.",
        )
