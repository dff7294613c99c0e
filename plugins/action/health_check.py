# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the node, link or domain that slows the collectives of a cluster down."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import typing as t
import uuid

from ansible import constants as C  # noqa: N812 - the name that ansible itself uses
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._health.model import Launch, Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._health.options import LAUNCH_OPTIONS
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._health_run.document import (
    VERDICTS,
    document,
    junit,
    planned,
    summary,
)
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._health_run.engine import HealthRun, Request
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._health_run.journal import Journal
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._plain_arguments import PlainArguments
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import names_role_variables

_OPTIONS: dict[str, t.Any] = {
    **LAUNCH_OPTIONS,
    "nodes": {"type": "list", "elements": "str"},
    "checks": {"type": "list", "elements": "str", "default": ["all_reduce", "alltoall", "all_gather"]},
    "baseline": {"type": "dict", "default": {}},
    "topology": {"type": "dict", "default": {}},
    "noise": {"type": "float", "default": 0.0},
    "min_bytes": {"type": "str", "default": "8G"},
    "max_bytes": {"type": "str", "default": "8G"},
    "iterations": {"type": "int", "default": 5},
    "rdma": {"type": "bool", "default": True},
    "attribution": {"type": "bool", "default": True},
    "acceptance": {"type": "bool", "default": True},
    "timeout_s": {"type": "float", "default": 600.0},
    "grace_s": {"type": "float", "default": 30.0},
    "max_minutes": {"type": "float", "default": 0.0},
    "max_nodes": {"type": "int", "default": 0},
    "max_launches": {"type": "int", "default": 0},
    "fail_on": {"type": "str", "choices": ["fail", "incomplete", "warn", "never"], "default": "fail"},
    "journal": {"type": "path", "default": ""},
    "report": {"type": "path", "default": ""},
}
# Output of these callbacks is for programs: a line in between would break it.
_SILENT_CALLBACKS = ("json", "jsonl", "oneline", "minimal", "null")

Result = dict[str, t.Any]
display = Display()


class ActionModule(PlainArguments, ActionBase):
    """See plugins/modules/health_check.py for the documentation."""

    BYPASS_HOST_LOOP = True
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False

    @names_role_variables
    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> Result:
        super().run(tmp, task_vars)
        _result, options = self.validate_argument_spec(argument_spec=_OPTIONS)
        variables = task_vars or {}
        try:
            run = HealthRun(_request(options, variables))
            if self._task.check_mode:
                plan = run.plan()
                for line in planned(plan):
                    _show(f"health: {line}")
                return {"changed": False, "plan": plan}
            return self._check(run, options, variables)
        except (ClusterError, OSError) as exc:
            error = exc if isinstance(exc, ClusterError) else _no_file(exc)
            return {"failed": True, "changed": False, **error.as_result()}

    def _check(self, run: HealthRun, options: Result, variables: Result) -> Result:
        journal = Journal(options["journal"], run.request, uuid.uuid4().hex[:12])
        restored = journal.restore(run)
        if restored:
            _show(f"health: goes on after {restored} round(s) of run {journal.run_id}")
        settings = {key: options[key] for key in LAUNCH_OPTIONS} | {"tag": f"{journal.run_id}"}
        started = _now()
        sweep = list(run.request.nodes) if restored else []
        while launches := run.next_round():
            outcomes, seconds = self._round(launches, {**settings, "sweep": sweep}, variables)
            run.record(outcomes, seconds)
            journal.add(outcomes, seconds)
            sweep = []
            _show(f"health: {run.progress()}")
        found = document(run, run_id=journal.run_id, launcher=options["launcher"], started=started, ended=_now())
        journal.end()
        if options["report"]:
            _write(options["report"], found)
        result = {"changed": False, "verdict": found["verdict"], "health": found, "msg": summary(found)}
        bounds = VERDICTS[: VERDICTS.index(options["fail_on"]) + 1] if options["fail_on"] in VERDICTS else ()
        return {**result, "failed": True, "health": _shortened(found)} if found["verdict"] in bounds else result

    def _round(self, launches: t.Sequence[Launch], settings: Result, variables: Result) -> tuple[list[Outcome], float]:
        """Run a round on the host of the task."""
        arguments = {**settings, "launches": [dataclasses.asdict(one) for one in launches]}
        result = self._execute_module("hpcai.gpu_cluster.health_round", arguments, task_vars=variables)
        if result.get("failed") or "outcomes" not in result:
            raise ClusterError(
                str(result.get("error_kind", "round_failed")),
                str(result.get("msg", "The first node did not run the launches.")),
                str(result.get("remedy", "Look at the node that launches; the next run goes on.")),
            )
        return [Outcome.of(one) for one in result["outcomes"]], float(result["seconds"])


def _request(options: Result, variables: Result) -> Request:
    nodes = options["nodes"] if options["nodes"] is not None else variables.get("ansible_play_hosts", [])
    try:
        expected = {str(name): float(value) for name, value in options["baseline"].items() if value}
    except (TypeError, ValueError):
        raise ClusterError(
            "bad_input", "`baseline` has a value that is no number.", "Write it as {all_reduce: 235}, in GB/s."
        ) from None
    places = options["topology"]
    if not all(isinstance(place, dict) for place in places.values()):
        raise ClusterError("bad_input", "`topology` has a node without places.", "Write it as {gpu-1: {leaf: l1}}.")
    names = {field.name for field in dataclasses.fields(Request)}
    return Request(
        **{key: value for key, value in options.items() if key in names - {"nodes", "checks", "topology", "noise"}},
        nodes=tuple(str(node) for node in nodes),
        checks=tuple(options["checks"]),
        topology={str(node): {str(key): str(value) for key, value in place.items()} for node, place in places.items()},
        expected_gbytes_s=expected,
        noise=options["noise"] or None,
    )


def _shortened(found: Result) -> Result:
    """Without its launches: Ansible prints all of a failure, and the report has them."""
    return {**found, "checks": [{**check, "rounds": []} for check in found["checks"]]}


def _write(path: str, found: Result) -> None:
    """The document, and JUnit beside it."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    for name, text in ((path, json.dumps(found, indent=1) + "\n"), (f"{os.path.splitext(path)[0]}.xml", junit(found))):
        with open(f"{name}.new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(f"{name}.new", name)


def _no_file(exc: OSError) -> ClusterError:
    return ClusterError(
        "no_file", f"{exc.filename} cannot be written: {exc.strerror}.", "Name another file in `report` or `journal`."
    )


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def _show(line: str) -> None:
    callback = C.config.get_config_value("DEFAULT_STDOUT_CALLBACK").rsplit(".", 1)[-1]
    if callback not in _SILENT_CALLBACKS:
        display.display(line)
