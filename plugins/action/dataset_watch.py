# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Follow a staging run from the controller and print one line per cluster."""

from __future__ import annotations

import contextlib
import copy
import os
import re
import shlex
import time
import typing as t
from dataclasses import replace

from ansible import constants as C  # noqa: N812 - the name that ansible itself uses
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.plugins.become import BecomeBase
from ansible.plugins.connection import ConnectionBase
from ansible.plugins.loader import become_loader
from ansible.utils.display import Display
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.followed import mark_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import PROGRESS_DIR, RankProgress
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import StatePaths
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._answers import Answers
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._dataset_progress import Watch, parse_progress
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import names_role_variables

_SHOW_EVERY_S = 5.0
_LOOK_EVERY_S = 1.0
_CONNECTIONS = 16
#: A host whose mount hangs, or that has no power, answers nothing and ends nothing; SSH tries to connect for ten seconds. It must not
#: keep the others from being asked: who is not for six seconds seems to be followed by no play (``followed``).
_ANSWER_S = 3.0
#: Who cannot be reached is left alone for so long, or half the time after which it is given up, if that is shorter.
_REST_S = 60.0
#: Where one sees nothing, so many others are asked at once.
_HOSTS_PER_LOOK = 3
#: At most about so many progress files are read at a look, but a tenth of all at least: that of each rank every ten looks.
_FILES_PER_LOOK = 100
_DIGITS = 10
_DENIED = re.compile(r"cat: [^\n]*: Permission denied")
# Output of these callbacks is for programs: a line in between would break it.
_SILENT_CALLBACKS = ("json", "jsonl", "oneline", "minimal", "null")

# Keywords of plays and tasks that say how to log in, where the host has no variable of its own.
_KEYWORDS = ("remote_user", "port", "become_user", "become_flags", "become_exe")

_OPTIONS: dict[str, dict[str, t.Any]] = {
    "destination": {"type": "path", "required": True},
    "hosts": {"type": "list", "elements": "str", "required": True},
    "runs": {"type": "list", "elements": "str", "required": True},
    "total_files": {"type": "int", "required": True},
    "total_bytes": {"type": "int", "required": True},
    "silent_after_s": {"type": "float", "default": 60.0},
    "timeout_s": {"type": "float", "default": 86400.0},
    "notes": {"type": "list", "elements": "str", "default": []},
}

display = Display()


class ActionModule(ActionBase):
    """Runs once for all hosts. Reads progress files through connections of its own, so that a dead host ends nothing."""

    BYPASS_HOST_LOOP = True
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False

    @names_role_variables
    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=_OPTIONS)
        if self._task.check_mode or not args["hosts"] or not any(args["runs"]):
            return {"changed": False, "files": 0, "bytes": 0, "errors": [], "silent": [], "late": [], "complete": False}
        hosts: list[str] = args["hosts"]
        runs = args["runs"] if len(args["runs"]) == len(hosts) else args["runs"] * len(hosts)
        ranks = {rank: host for rank, (host, run) in enumerate(zip(hosts, runs)) if run}
        shared = len(args["runs"]) == 1
        watch = Watch(ranks, args["total_files"], args["total_bytes"], args["silent_after_s"], shared)
        deadline = time.monotonic() + args["timeout_s"]
        rest_s = min(_REST_S, args["silent_after_s"] / 2)
        readers = _Readers(self, task_vars or {}, args["destination"], hosts, args["runs"], rest_s)
        shown = time.monotonic()
        play = os.getppid()
        for note in args["notes"]:
            _show(f"staging: {note}")
        while True:
            now = time.monotonic()
            try:
                watch.update(readers.read(), now)
            except ClusterError as exc:
                return {"failed": True, "changed": False, **exc.as_result()}
            # A play that was killed follows nothing any more: the next one may begin.
            over = watch.over(now) or now > deadline or os.getppid() != play
            if over:
                with contextlib.suppress(ClusterError):  # what is known is said all the same
                    watch.update(readers.read_rest(), now)
            if over or now - shown >= _SHOW_EVERY_S:
                shown = now
                _show(watch.line(now))
            if over:
                break
            time.sleep(_LOOK_EVERY_S)
        return _told(watch, hosts, now)

    def connect(self, variables: t.Mapping[str, t.Any]) -> ConnectionBase:
        """A connection to another host of the play and the way to become another user there, with that host's own variables."""
        name = variables.get("ansible_connection", self._play_context.connection)
        connection = self._shared_loader_obj.connection_loader.get(name, self._play_context.copy())
        if connection is None:
            raise AnsibleError(f"There is no connection plugin {name!r}. Correct ansible_connection in the inventory.")
        keywords = {key: getattr(self._task, key) for key in _KEYWORDS}
        _set_options(connection, "connection", keywords, variables)
        if boolean(variables.get("ansible_become", self._task.become), strict=False):
            become = self._become(variables.get("ansible_become_method") or self._task.become_method)
            # What --ask-become-pass was told is not among the task's keywords.
            _set_options(
                become, "become", {**keywords, "become_pass": self._play_context.become_pass or None}, variables
            )
            connection.set_become_plugin(become)
        return t.cast("ConnectionBase", connection)

    def _become(self, method: str) -> BecomeBase:
        plugin = become_loader.get(method)
        if plugin is None:
            raise AnsibleError(f"There is no become plugin {method!r}. Correct become_method or ansible_become_method.")
        return t.cast("BecomeBase", plugin)

    def execute(self, connection: ConnectionBase, command: str) -> dict[str, t.Any]:
        """Run a command through a connection as the engine runs it for modules, become included."""
        there = copy.copy(self)
        there._connection = connection
        # Without become it needs no terminal.
        result = there._low_level_execute_command(command, sudoable=connection.become is not None)
        return t.cast("dict[str, t.Any]", result)


def _set_options(plugin: t.Any, kind: str, keywords: dict[str, t.Any], variables: t.Mapping[str, t.Any]) -> None:
    known = C.config.get_plugin_vars(kind, plugin._load_name)
    plugin.set_options(task_keys=keywords, var_options={key: variables[key] for key in known if key in variables})


class _Readers:
    """Reads the ranks' progress: from any one host when they share a run, else from every host."""

    def __init__(
        self,
        action: ActionModule,
        task_vars: dict[str, t.Any],
        destination: str,
        hosts: list[str],
        runs: list[str],
        rest_s: float,
    ) -> None:
        self._action = action
        self._hostvars = task_vars["hostvars"]
        self._shared = len(runs) == 1 and len(hosts) > 1
        # Whose share is whole has no run: its mark would be a file among the runs.
        run_of = {host: run for host, run in zip(hosts, runs * len(hosts) if self._shared else runs) if run}
        self._hosts = list(run_of)
        self._ranks = {host: rank for rank, host in enumerate(hosts)}
        paths = StatePaths(destination)
        self._commands = {
            # The touch says that this run is followed. Who may only read does without.
            host: f"touch {shlex.quote(mark_of(destination, run))} 2>/dev/null;"
            f" LC_ALL=C cat {shlex.quote(os.path.join(paths.run(run), PROGRESS_DIR))}/"
            for host, run in run_of.items()
        }
        # Files are named after ranks: those of a part are chosen by the last digit.
        parts = min(_DIGITS, -(-len(hosts) // _FILES_PER_LOOK)) if self._shared else 1
        self._parts = [f"*[{''.join(map(str, range(part, _DIGITS, parts)))}].json" for part in range(parts)]
        self._connections: dict[str, ConnectionBase] = {}
        self._answers = Answers(self._read_from, patience_s=_ANSWER_S, rest_s=rest_s, at_once=_CONNECTIONS)

    def read(self) -> list[RankProgress]:
        """What has come in since the last time: of all ranks where they are few, else of a part of them, another one each time."""
        if not self._shared:
            found = self._answers.of(self._hosts)
            # Every host is alone in its own run and calls itself rank 0.
            return [replace(rank, rank=self._ranks[host]) for host in self._hosts for rank in found.get(host) or []]
        # In one step: a host that answers late looks at them in a thread of its own.
        self._parts = [*self._parts[1:], self._parts[0]]
        found = self._answers.of(self._hosts[:1])
        if not any(found.values()):
            # This one does not answer, or sees nothing, as where its mount is gone: ask another one from now on.
            self._hosts.append(self._hosts.pop(0))
            found.update(self._answers.of(self._hosts[:_HOSTS_PER_LOOK]))
            self._hosts.sort(key=lambda host: not found.get(host))
        return [rank for ranks in found.values() for rank in ranks]

    def read_rest(self) -> list[RankProgress]:
        """The parts that the last ``read`` left out."""
        return [rank for _part in self._parts[1:] for rank in self.read()]

    def _read_from(self, host: str) -> list[RankProgress] | None:
        """None when the host cannot be reached. Raises ClusterError when it does not let the progress be read."""
        try:
            if host not in self._connections:
                self._connections[host] = self._action.connect(self._hostvars[host])
                self._connections[host]._connect()
            result = self._action.execute(self._connections[host], self._commands[host] + self._parts[-1])
        except AnsibleConnectionFailure:
            self._connections.pop(host, None)
            return None
        # Through a terminal, which ssh opens for become, errors arrive in stdout.
        denied = result["rc"] and _DENIED.search(result["stdout"] + result["stderr"])
        if denied:
            raise ClusterError(
                "bad_input",
                f"{host} does not let the progress of the copy be read: {denied.group()}.",
                "Let the user of the play read it, with become: true or ansible_become as for the tasks that copy. Run again.",
            )
        return parse_progress(result["stdout"])


def _told(watch: Watch, hosts: t.Sequence[str], now: float) -> dict[str, t.Any]:
    return {
        "changed": False,
        "files": watch.files,
        "bytes": watch.raw_bytes,
        "complete": watch.complete,
        "errors": watch.errors(),
        "silent": [hosts[rank] for rank in watch.silent(now)],
        "late": [hosts[rank] for rank in watch.late(now)],
    }


def _show(line: str) -> None:
    callback = C.config.get_config_value("DEFAULT_STDOUT_CALLBACK").rsplit(".", 1)[-1]
    if callback not in _SILENT_CALLBACKS:
        display.display(line)
