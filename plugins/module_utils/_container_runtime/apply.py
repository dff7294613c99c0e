# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Carry a plan out on a node: packages, then every file, then the services that have to read them again."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime import settings, unread
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.model import (
    CONTAINERD,
    DOCKER,
    Dump,
    Facts,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.plan import (
    TOOLKIT,
    Plan,
    check_consent,
    check_removals,
    plan_present,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.read import (
    has_unit,
    read_dump,
    running_containers,
    with_settings,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.request import Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import repository as vendor
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.changes import Changes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.dnf import Dnf
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Action
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.transaction import Apt
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.units import is_active, is_running, systemctl
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.apply import NodeState
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.read import missing_parents
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.request import (
    NOTHING,
    file_request,
)


class Runtime:
    """One run on one node. With ``check`` what would be done is only told."""

    def __init__(self, request: Request, facts: Facts, manager: Apt | Dnf, host: Host, *, check: bool) -> None:
        self.request, self.facts, self.manager, self.host, self.check = request, facts, manager, host, check
        self.changes = Changes()

    def present(self, plan: Plan) -> dict[str, t.Any]:
        """Packages, then every setting, then what has to read them again."""
        if self.request.configures and plan.restarts and is_active(self.host, DOCKER):
            check_consent(self.request, running_containers(self.host))
        if plan.repository:
            self._add(plan.repository)
        if plan.missing:
            self._install(plan)
            plan = self._with_settings_of_packages(plan)
        verb = "restart" if plan.restarts else "reload"
        due = self._write(plan, verb, files=plan.files, directories=plan.directories)
        if self.request.configures and is_running():
            # A Docker that its package has started runs without these settings, too.
            self._read_again(due, start=bool(self.request.docker_packages) and plan.docker)
        return self.changes.result()

    def _with_settings_of_packages(self, plan: Plan) -> Plan:
        """The plan for the settings files as they are now: packages may have brought some of them, and theirs stay."""
        return dataclasses.replace(
            plan, files=plan_present(self.request, with_settings(self.request, self.facts)).files
        )

    def absent(self, plan: Plan) -> dict[str, t.Any]:
        """Take settings away, let their readers know, and remove packages."""
        # containerd runs on without its settings, and would look for a runtime that is gone. Its containers do not notice.
        self._read_again(self._write(plan, "reload", files=plan.files, absent=plan.absent), start=False)
        for name in plan.remove:
            self.changes.note("package", name, "remove", f"{name}\n", "")
        if plan.remove and not self.check:
            self.manager.remove(plan.remove)
        return self.changes.result()

    def _write(self, plan: Plan, verb: str, **request: t.Any) -> dict[str, str]:
        """Make files so. Returns the units that have to read theirs, those that an earlier run has left among them, and how."""
        due = {**plan.unread, **_readers(self._state(**request, look=True), verb)}
        if DOCKER in due:
            due[DOCKER] = verb
        left = self.facts.unread
        noted = {**left, **{unit: "restart" if left.get(unit) == "restart" else due[unit] for unit in due}}
        if due and not self.check:
            unread.note(noted)
        self._state(**request)
        if due and not self.check:
            unread.note(noted)
        return due

    def _state(self, *, look: bool = False, **request: t.Any) -> list[str]:
        """Let node_state make it so; returns the names of what changed. ``look``: of what would change, and it is not told."""
        directories = request.get("directories", ())
        missing = missing_parents(
            [entry["path"] for entry in request.get("files", ())], [entry["path"] for entry in directories]
        )
        state = NodeState({**NOTHING, **request, "directories": [*missing, *directories]}, self.host)
        state.run(check=self.check or look)
        if not look:
            self.changes.add(*state.changes)
        return state.changes.names()

    def _read_again(self, due: unread.Verbs, *, start: bool) -> None:
        """Let units read their settings. ``start``: Docker, too, where it does not run."""
        started = False
        if start and has_unit(DOCKER):
            unit = {"name": DOCKER, "state": "started", "enabled": True, "restart_on": []}
            started = DOCKER in self._state(units=[unit])
        if DOCKER in due and not started:
            self._again(DOCKER, due[DOCKER])
        if CONTAINERD in due:
            self._restart_containerd()
        if not self.check:
            unread.forget(due)

    def _restart_containerd(self) -> None:
        """Restart it, unless it would not come back: containers that it manages would be left without it."""
        dump = Dump() if self.check else read_dump(self.host)
        if dump.refused and is_active(self.host, CONTAINERD):
            raise ClusterError(
                "containerd_config",
                f"containerd refuses its settings: {dump.refused}. It was not restarted, and runs with those that it had.",
                "Correct what it names, then run the role again.",
            )
        self._again(CONTAINERD, "restart")

    def _again(self, unit: str, verb: str) -> None:
        if not is_active(self.host, unit):
            return
        self.changes.note("unit", unit, verb)
        if not self.check:
            systemctl(self.host, verb, unit)

    def _add(self, repository: vendor.Repository) -> None:
        if vendor.listed_elsewhere(repository):
            return
        text = vendor.key_text(repository, self.facts.manager, check=self.check)
        files = vendor.repository_files(repository, self.facts.manager, text, settings.MANAGED)
        self._state(files=[file_request(**entry) for entry in files])

    def _install(self, plan: Plan) -> None:
        if not self.check:
            if plan.mends or self.manager.interrupted():
                self.manager.mend([*(root.name for root in plan.missing), *(TOOLKIT if self.request.toolkit else ())])
            if not self.manager.known(plan.roots):
                self.manager.update()
        if self.manager.known(plan.roots):
            words = self.manager.resolve(plan.roots)
            actions = self.manager.simulate(words)
            check_removals(actions)
            self._note_packages(actions)
            if not self.check:
                self.manager.commit(words, fix=False)
        elif self.check:
            for root in plan.missing:
                self.changes.note("package", root.name, "install", "", f"{root.name} {root.upstream}".rstrip() + "\n")
        else:
            # Fails, and names the package that no repository has.
            self.manager.resolve(plan.roots)

    def _note_packages(self, actions: t.Sequence[Action]) -> None:
        for action in actions:
            before = f"{action.name} {action.old}\n" if action.old else ""
            after = f"{action.name} {action.version}\n" if action.verb != "remove" else ""
            self.changes.note("package", action.name, action.text(), before, after)


def _readers(names: t.Collection[str], verb: str) -> dict[str, str]:
    """The units that read any of these files, with what makes them do so; ``verb`` for Docker."""
    due = {DOCKER: verb} if settings.DAEMON_JSON in names else {}
    if {settings.CONTAINERD, settings.CONTAINERD_PART} & {*names}:
        due[CONTAINERD] = "restart"
    return due


__all__ = ["Runtime"]
