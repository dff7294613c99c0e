# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collect what dataset_stage did in the background, in the words of the role that started it."""

from __future__ import annotations

import shlex
import typing as t

from ansible.plugins.action.async_status import ActionModule as AsyncStatusAction
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.background import (
    lost,
    question,
    stopped,
    unmarked,
)
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import names_role_variables

_NOT_ENDED = "The copy on {} has not ended, as far as is known. A disk or a mount may hang."
_LOOK = "Look at its processes and at `dmesg` there; it may need a reboot. Then run again: that copies only what is missing."

#: Kinds of errors that end one node's work and say nothing about the dataset.
_OF_ONE_NODE = frozenset({"azcopy_crashed", "cancelled", "disk_full", "io", "timeout"})
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
        _result, args = self.validate_argument_spec(
            argument_spec={"jid": {"type": "str", "required": True}, "complete": {"type": "bool", "default": False}}
        )
        result = self._look(args["jid"], tmp, task_vars)
        how = self._lost(result)
        if how:
            # It may have ended between the two looks: then its result is there by now.
            result = self._look(args["jid"], tmp, task_vars)
            how = self._lost(result)
        host = (task_vars or {}).get("inventory_hostname", "this node")
        result = unmarked(result)
        if not how and of_a_killed_worker(result):
            how = "was killed"
        if how:
            said = f"The worker on {host} {how}. What it had not copied is left to the others, or to the next round."
            kept = {key: result.get(key) for key in ("ansible_job_id", "results_file")}
            return {**kept, "started": True, "finished": True, "changed": True, "warnings": [said]}
        if args["complete"] and _may_be_forgiven(result):
            return _forgiven(host, result)
        if not result.get("finished") and not result.get("failed"):
            return {
                **result,
                "msg": _NOT_ENDED.format(host),
                "remedy": _LOOK,
            }  # shown when the task's retries are used up
        return result

    def _look(self, jid: str, tmp: str | None, task_vars: dict[str, t.Any] | None) -> dict[str, t.Any]:
        """What async_status says, which knows no other option."""
        given, self._task.args = self._task.args, {"jid": jid}
        try:
            return t.cast("dict[str, t.Any]", super().run(tmp, task_vars))
        finally:
            self._task.args = given  # it is asked again with them

    def _lost(self, result: dict[str, t.Any]) -> str:
        """What became of the worker where neither it nor who watches it can say any more, "" where it goes on or has a result."""
        files = [] if result.get("finished") or result.get("failed") else question(result)
        if not files:
            return ""
        said = self._low_level_execute_command(f"cat {shlex.join(files)} 2>/dev/null")
        reason = lost(result, said["stdout"])
        if reason:
            return f"was killed: {reason}"
        process = stopped(result, said["stdout"])
        return (
            f"does not go on: its process {process} is stopped (SIGSTOP; `kill -CONT {process}` or `kill -KILL {process}` there "
            "ends that)"
            if process
            else ""
        )


def _may_be_forgiven(result: t.Mapping[str, t.Any]) -> bool:
    """Whether a worker failed, but nothing is wrong with the dataset if others have brought the rest, nor with this node's view of it."""
    return bool(result.get("failed") and result.get("error_kind") in _OF_ONE_NODE and result.get("sees_destination"))


def _forgiven(host: str, result: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The result of a worker that stopped before its end, where the others have worked until theirs: not a failure."""
    # The remedy is for a dataset that is not whole.
    why = str(result["msg"]).replace(str(result.get("remedy", "")), "").strip()
    said = f"The worker on {host} stopped before its end: {why} The others have copied what it had not."
    kept = {
        key: value for key, value in result.items() if key not in ("failed", "msg", "remedy", "error_kind", "exception")
    }
    return {**kept, "changed": bool(result.get("files")), "warnings": [*result.get("warnings", ()), said]}
