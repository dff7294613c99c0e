# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Callback of Ansible: writes how long each task file of a playbook took, as a line of JSON, to the file TASK_SECONDS.

With the linear strategy a task lasts until the next one starts. Where the variable is not set, nothing is written.
"""

from __future__ import annotations

import json
import os
import pathlib
import time
import typing as t

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: task_seconds
type: aggregate
short_description: Seconds per task file
description: Appends a line of JSON per playbook to the file that the environment variable TASK_SECONDS names.
"""


ROOT = pathlib.Path(__file__).resolve().parents[3]


def _from_root(path: str) -> str:
    """A path as seen from the repository, where it lies in it; the collection is linked into it."""
    real = pathlib.Path(path).resolve()
    return str(real.relative_to(ROOT)) if real.is_relative_to(ROOT) else str(real)


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Seconds per task file."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "task_seconds"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._playbook = ""
        self._task_file = ""
        self._since = time.monotonic()
        self._seconds: dict[str, float] = {}

    def _switch(self, task_file: str) -> None:
        now = time.monotonic()
        if self._task_file:
            self._seconds[self._task_file] = self._seconds.get(self._task_file, 0.0) + now - self._since
        self._task_file, self._since = task_file, now

    def v2_playbook_on_start(self, playbook: t.Any) -> None:
        self._playbook = _from_root(playbook._file_name)

    def v2_playbook_on_task_start(self, task: t.Any, is_conditional: bool) -> None:
        path = (task.get_path() or "").rpartition(":")[0]
        self._switch(_from_root(path) if path else "?")

    def v2_playbook_on_handler_task_start(self, task: t.Any) -> None:
        self.v2_playbook_on_task_start(task, False)

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        self._switch("")
        target = os.environ.get("TASK_SECONDS")
        if target:
            rounded = {name: round(value, 2) for name, value in self._seconds.items()}
            with open(target, "a", encoding="utf-8") as stream:
                stream.write(json.dumps({"playbook": self._playbook, "task_files": rounded}) + "\n")
