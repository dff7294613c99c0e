# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every task result of a run, skips and includes too, and the time and CPU until each task began: JSON in $CONVERGE_RESULTS."""

from __future__ import annotations

DOCUMENTATION = r"""
name: task_results
type: aggregate
short_description: Write every task result of a run to a file
description: Part of a benchmark. One entry per task and host, as they are counted by the goals.
"""

import json
import os
import time
import typing as t

from ansible.plugins.callback import CallbackBase


def _role_of(task: t.Any) -> str:
    return str(task._role.get_name()) if task._role else ""


class CallbackModule(CallbackBase):
    """Collects plain tuples while the run goes on and writes them when it ends, so that it hardly costs anything."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "task_results"

    def __init__(self) -> None:
        super().__init__()
        self._results: list[tuple[str, str, str, str, str, bool]] = []
        self._play = ""
        # Each task's role and name with the time when it began and the CPU that the controller had used by then.
        self._began: list[tuple[str, str, float, float]] = []

    def v2_playbook_on_play_start(self, play: t.Any) -> None:
        self._play = play.get_name()

    def v2_playbook_on_task_start(self, task: t.Any, is_conditional: bool) -> None:
        self._mark(_role_of(task), task.get_name())

    def _mark(self, role: str, name: str) -> None:
        # With the workers, which the main process has waited for by the time that the next task begins.
        self._began.append((role, name, time.monotonic(), sum(os.times()[:4])))

    def _add(self, kind: str, result: t.Any) -> None:
        task = result.task
        if task.action.rpartition(".")[2] == "meta":
            # One whose condition is false is reported as skipped, but it ran nothing and no recap counts it.
            return
        changed = bool(result.result.get("changed"))
        self._results.append((self._play, _role_of(task), task.get_name(), result.host.get_name(), kind, changed))

    def v2_runner_on_ok(self, result: t.Any) -> None:
        self._add("ok", result)

    def v2_runner_on_skipped(self, result: t.Any) -> None:
        self._add("skipped", result)

    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        self._add("ignored" if ignore_errors else "failed", result)

    def v2_runner_on_unreachable(self, result: t.Any) -> None:
        self._add("unreachable", result)

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        self._mark("", "the end")
        path = os.environ.get("CONVERGE_RESULTS")
        if path:
            with open(path, "w", encoding="utf-8") as handle:
                json.dump({"results": self._results, "began": self._began}, handle)
