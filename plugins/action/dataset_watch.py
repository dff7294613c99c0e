# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Follow a staging run from the controller and print one line per cluster."""

from __future__ import annotations

import os
import shlex
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from ansible import constants as C  # noqa: N812 - the name that ansible itself uses
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.plugins.connection import ConnectionBase
from ansible.utils.display import Display
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._staging_progress import Watch, parse_progress
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._staging_run import PROGRESS_DIR, RankProgress
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._staging_state import StatePaths

_SHOW_EVERY_S = 5.0
_LOOK_EVERY_S = 1.0
_CONNECTIONS = 16
# Output of these callbacks is for programs: a line in between would break it.
_SILENT_CALLBACKS = ("json", "jsonl", "oneline", "minimal", "null")

display = Display()


class ActionModule(ActionBase):
    """Runs once for all hosts. Reads progress files through connections of its own, so that a dead host ends nothing."""

    BYPASS_HOST_LOOP = True
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(
            argument_spec={
                "destination": {"type": "path", "required": True},
                "hosts": {"type": "list", "elements": "str", "required": True},
                "runs": {"type": "list", "elements": "str", "required": True},
                "total_files": {"type": "int", "required": True},
                "total_bytes": {"type": "int", "required": True},
                "silent_after_s": {"type": "float", "default": 60.0},
                "timeout_s": {"type": "float", "default": 86400.0},
                "notes": {"type": "list", "elements": "str", "default": []},
            }
        )
        if self._task.check_mode or not args["hosts"] or not any(args["runs"]):
            return {"changed": False, "files": 0, "bytes": 0, "errors": [], "silent": []}
        hosts: list[str] = args["hosts"]
        runs = args["runs"] if len(args["runs"]) == len(hosts) else args["runs"] * len(hosts)
        ranks = {rank: host for rank, (host, run) in enumerate(zip(hosts, runs)) if run}
        watch = Watch(ranks, args["total_files"], args["total_bytes"], args["silent_after_s"])
        deadline = time.monotonic() + args["timeout_s"]
        readers = _Readers(self, task_vars or {}, args["destination"], hosts, args["runs"])
        shown = time.monotonic()
        for note in args["notes"]:
            _show(f"staging: {note}")
        while True:
            now = time.monotonic()
            watch.update(readers.read(), now)
            over = watch.over(now) or now > deadline
            if over or now - shown >= _SHOW_EVERY_S:
                shown = now
                _show(watch.line(now))
            if over:
                break
            time.sleep(_LOOK_EVERY_S)
        return {
            "changed": False,
            "files": watch.files,
            "bytes": watch.raw_bytes,
            "errors": watch.errors(),
            "silent": [hosts[rank] for rank in watch.silent(now)],
        }

    def connect(self, variables: t.Mapping[str, t.Any]) -> ConnectionBase:
        """A connection to another host of the play, with that host's own variables."""
        name = variables.get("ansible_connection", self._play_context.connection)
        connection = self._shared_loader_obj.connection_loader.get(name, self._play_context.copy())
        if connection is None:
            raise AnsibleError(f"There is no connection plugin {name!r}. Correct ansible_connection in the inventory.")
        known = C.config.get_plugin_vars("connection", connection._load_name)
        connection.set_options(var_options={key: variables[key] for key in known if key in variables})
        return t.cast("ConnectionBase", connection)


class _Readers:
    """Reads the ranks' progress: from any one host when they share a run, else from every host."""

    def __init__(
        self, action: ActionModule, task_vars: dict[str, t.Any], destination: str, hosts: list[str], runs: list[str]
    ) -> None:
        self._action = action
        self._hostvars = task_vars["hostvars"]
        self._shared = len(runs) == 1 and len(hosts) > 1
        self._hosts = list(hosts)
        paths = StatePaths(destination)
        self._commands = {
            host: f"cat {shlex.quote(os.path.join(paths.run(run), PROGRESS_DIR))}/*.json"
            for host, run in zip(hosts, runs * len(hosts) if self._shared else runs)
        }
        self._connections: dict[str, ConnectionBase] = {}

    def read(self) -> list[RankProgress]:
        if not self._shared:
            with ThreadPoolExecutor(max_workers=_CONNECTIONS) as pool:
                found = pool.map(self._read_from, self._hosts)
                # Every host is alone in its own run and calls itself rank 0.
                return [replace(rank, rank=host) for host, ranks in enumerate(found) for rank in ranks or []]
        for _host in list(self._hosts):
            ranks = self._read_from(self._hosts[0])
            if ranks is not None:
                return ranks
            # This one does not answer: ask another one from now on.
            self._hosts.append(self._hosts.pop(0))
        return []

    def _read_from(self, host: str) -> list[RankProgress] | None:
        """None when the host cannot be reached."""
        try:
            if host not in self._connections:
                self._connections[host] = self._action.connect(self._hostvars[host])
                self._connections[host]._connect()
            _rc, stdout, _stderr = self._connections[host].exec_command(self._commands[host], sudoable=False)
        except AnsibleConnectionFailure:
            self._connections.pop(host, None)
            return None
        return parse_progress(stdout.decode(errors="replace") if isinstance(stdout, bytes) else stdout)


def _show(line: str) -> None:
    callback = C.config.get_config_value("DEFAULT_STDOUT_CALLBACK").rsplit(".", 1)[-1]
    if callback not in _SILENT_CALLBACKS:
        display.display(line)
