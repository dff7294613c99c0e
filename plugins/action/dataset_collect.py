# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collect what dataset_stage did in the background, in the words of the role that started it."""

from __future__ import annotations

import shlex
import typing as t

from ansible.plugins.action.async_status import ActionModule as AsyncStatusAction
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.background import lost, question, unmarked
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import names_role_variables

_NOT_ENDED = {
    "msg": "The copy on this node has not ended, as far as is known. A disk or a mount may hang.",
    "remedy": "Look at its processes and at `dmesg` there; it may need a reboot. Then run again: that copies only what is missing.",
}
#: What async_status says where the job's file is gone, as after a reboot of a node whose disks are new each time.
_NO_FILE = "could not find job"
_OURS = "dataset_stage-"


def of_a_killed_worker(result: t.Mapping[str, t.Any]) -> bool:
    """Whether the job ended without a word: who started it found neither a result nor an error to pass on."""
    if not (result.get("finished") and result.get("failed")):
        return False
    if result.get("msg") == _NO_FILE and str(result.get("ansible_job_id", "")).startswith(_OURS):
        return True
    if "error_kind" in result:
        # One that ended with an exception was not killed: that is a defect, and stays a failure.
        return bool(result["error_kind"] == "worker_lost" and "Traceback" not in str(result.get("msg")))
    return "data" in result and not str(result["data"]).strip() and not str(result.get("stderr", "")).strip()


class ActionModule(AsyncStatusAction):
    """See plugins/modules/dataset_collect.py for the documentation."""

    @names_role_variables
    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Look once, as Ansible's own async_status does. That can delete the job's file, too.

        Whether the dataset is whole without a worker that was killed is for dataset_verify to say.
        """
        self.validate_argument_spec(argument_spec={"jid": {"type": "str", "required": True}})
        result = t.cast("dict[str, t.Any]", super().run(tmp, task_vars))
        reason = self._lost(result)
        if reason:
            # It may have ended between the two looks: then its result is there by now.
            result = t.cast("dict[str, t.Any]", super().run(tmp, task_vars))
            reason = self._lost(result)
        result = unmarked(result)
        if reason or of_a_killed_worker(result):
            host = (task_vars or {}).get("inventory_hostname", "this node")
            why = f": {reason}" if reason else ""
            said = f"The worker on {host} was killed{why}. What it had not copied is left to the others, or to the next round."
            kept = {key: result.get(key) for key in ("ansible_job_id", "results_file")}
            return {**kept, "started": True, "finished": True, "changed": True, "warnings": [said]}
        if not result.get("finished") and not result.get("failed"):
            return {**result, **_NOT_ENDED}  # shown when the task's retries are used up
        return result

    def _lost(self, result: dict[str, t.Any]) -> str:
        """How the job ended where neither the worker nor who watches it can say any more, "" where it goes on or has a result."""
        files = [] if result.get("finished") or result.get("failed") else question(result)
        if not files:
            return ""
        said = self._low_level_execute_command(f"cat {shlex.join(files)} 2>/dev/null")
        return lost(result, said["stdout"])
