# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collect what dataset_stage did in the background, in the words of the role that started it."""

from __future__ import annotations

import typing as t

from ansible.plugins.action.async_status import ActionModule as AsyncStatusAction
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import names_role_variables

_NOT_ENDED = {
    "msg": "The copy on this node has not ended, as far as is known. A disk or a mount may hang, or all its processes were killed.",
    "remedy": "Look at its processes and at `dmesg` there; it may need a reboot. Then run again: that copies only what is missing.",
}


def of_a_killed_worker(result: t.Mapping[str, t.Any]) -> bool:
    """Whether the job ended without a word: who started it found neither a result nor an error to pass on."""
    if not (result.get("finished") and result.get("failed")):
        return False
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
        if of_a_killed_worker(result):
            host = (task_vars or {}).get("inventory_hostname", "this node")
            said = (
                f"The worker on {host} was killed. What it had not copied is left to the others, or to the next round."
            )
            kept = {key: result[key] for key in ("ansible_job_id", "results_file", "started", "finished")}
            return {**kept, "changed": True, "warnings": [said]}
        if not result.get("finished") and not result.get("failed"):
            return {**result, **_NOT_ENDED}  # shown when the task's retries are used up
        return result
