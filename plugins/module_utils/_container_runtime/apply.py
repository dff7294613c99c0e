# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Carry a plan out on a node: packages, then every file, then the services that have to read them again."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime import (
    containerd,
    settings,
    unread,
)
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
    settings_file,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.read import (
    docker_last_words,
    docker_refusal,
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
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.units import (
    allow_start,
    is_active,
    is_running,
    systemctl,
)
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
        before = self._require_taken(plan)
        if plan.repository:
            self._add(plan.repository, needed=plan.needs_repository)
        if plan.missing:
            self._install(plan)
            plan = self._with_settings_of_packages(plan)
            before = self._require_taken(plan)
        verb = "restart" if plan.restarts else "reload"
        due = self._write(plan, verb, files=plan.files, directories=plan.directories)
        if before and not self.check:
            self._require_kept(before)
        if self.request.configures and is_running():
            # A Docker that its package has started runs without these settings, too.
            self._read_again(due, start=bool(self.request.docker_packages) and plan.docker)
        return self.changes.result()

    def _with_settings_of_packages(self, plan: Plan) -> Plan:
        """The plan for the settings files as they are now: packages may have brought some of them, and theirs stay."""
        self.facts = with_settings(self.request, self.facts)
        return dataclasses.replace(plan, files=plan_present(self.request, self.facts).files)

    def _require_taken(self, plan: Plan) -> Dump | None:
        """What containerd makes of its files before they change, None where they do not.

        Refuses what Docker would not start with, and files that containerd refuses already: both run until they are restarted.
        """
        wanted = {file["path"]: file["content"] for file in plan.files}
        said = docker_refusal(self.host, wanted[settings.DAEMON_JSON]) if settings.DAEMON_JSON in wanted else ""
        if said:
            raise ClusterError(
                "docker_config",
                f"Docker would refuse its new settings: {said}. They were not written.",
                f"Correct `docker_settings`, or {settings.DAEMON_JSON}, then run the role again.",
            )
        pair = (settings.CONTAINERD, settings.CONTAINERD_PART)
        if all(self.facts.texts.get(path) == wanted.get(path, self.facts.texts.get(path)) for path in pair):
            return None
        # Its program refuses a file that is not there, which its service takes for an empty one.
        found = read_dump(self.host) if settings.CONTAINERD in self.facts.texts else Dump()
        if found.refused and settings.CONTAINERD_PART not in found.refused:
            raise ClusterError(
                "containerd_config",
                f"containerd refuses its settings as they are: {found.refused}. Nothing was written to them.",
                "Correct what it names, then run the role again.",
            )
        return found

    def _require_kept(self, before: Dump) -> None:
        """Take back what was written for containerd where it refuses that, or would lose what a site has set."""
        after = read_dump(self.host)
        # What an earlier part of ours carried over may have changed in the site's own files since.
        first = settings.CONTAINERD_PART not in self.facts.texts
        others = [(path, text) for path, text in self.facts.imported if path != settings.CONTAINERD_PART]
        lost = containerd.lost(before.text, after.text, others) if first and not after.refused else ""
        if not after.refused and not lost:
            return
        self._restore(settings.CONTAINERD, settings.CONTAINERD_PART)
        if CONTAINERD not in self.facts.unread:
            unread.forget({CONTAINERD: "restart"})
        why = f"refuses its settings: {after.refused}" if after.refused else f"would lose its setting {lost}"
        raise ClusterError(
            "containerd_config",
            f"With what the role adds containerd {why}. Its files are again as they were. It was not restarted.",
            "Correct what it names, or write its settings as tables ([plugins.…]); or configure containerd another way, and set "
            "`containerd: false`.",
        )

    def _restore(self, *paths: str) -> None:
        """Make settings files again what they were before this run."""
        texts = self.facts.texts
        files = [settings_file(self.facts, path, texts[path]) for path in paths if path in texts]
        self._state(files=files, absent=[path for path in paths if path not in texts])

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
        have_read: dict[str, str] = {}
        if start and has_unit(DOCKER):
            unit = {"name": DOCKER, "state": "started", "enabled": True, "restart_on": []}
            if not self.check and not is_active(self.host, DOCKER):
                allow_start(self.host, DOCKER)
            if DOCKER in self._state(units=[unit]):
                have_read[DOCKER] = "restart"
        if DOCKER in due and DOCKER not in have_read and self._again(DOCKER, due[DOCKER]):
            have_read[DOCKER] = due[DOCKER]
        if CONTAINERD in due and self._restart_containerd():
            have_read[CONTAINERD] = "restart"
        # One that another run restarts just now has perhaps read what was there before.
        if not self.check:
            unread.forget(have_read)

    def _restart_containerd(self) -> bool:
        """Restart it if it runs, unless it would not come back: containers that it manages would be left without it."""
        dump = Dump() if self.check else read_dump(self.host)
        if dump.refused and is_active(self.host, CONTAINERD):
            raise ClusterError(
                "containerd_config",
                f"containerd refuses its settings: {dump.refused}. It was not restarted, and runs with those that it had.",
                "Correct what it names, then run the role again.",
            )
        return self._again(CONTAINERD, "restart")

    def _again(self, unit: str, verb: str) -> bool:
        """Let a unit that runs read its settings; False for one that does not run."""
        if not is_active(self.host, unit):
            return False
        self.changes.note("unit", unit, verb)
        if self.check:
            return True
        allow_start(self.host, unit)
        try:
            systemctl(self.host, verb, unit)
        except ClusterError as exc:
            if (unit, verb) == (DOCKER, "restart"):
                self._back_to_former(exc)
            raise
        return True

    def _back_to_former(self, failed: ClusterError) -> None:
        """Let Docker run with the settings that it had, where it does not start with what this run has written."""
        if with_settings(self.request, self.facts).texts.get(settings.DAEMON_JSON) == self.facts.texts.get(
            settings.DAEMON_JSON
        ):
            return
        self._restore(settings.DAEMON_JSON)
        why = docker_last_words(self.host) or failed.message.rstrip(".")
        allow_start(self.host, DOCKER)
        systemctl(self.host, "restart", DOCKER)
        raise ClusterError(
            "docker_config",
            f"Docker does not start with its new settings: {why}. {settings.DAEMON_JSON} is again as it was, and Docker runs with it.",
            "Correct `docker_settings`, then run the role again.",
            **failed.details,
        ) from failed

    def _add(self, repository: vendor.Repository, *, needed: bool) -> None:
        manager = self.facts.manager
        due = needed or vendor.is_added(repository, manager, settings.MANAGED)
        if not due or vendor.listed_elsewhere(repository):
            return
        text = vendor.key_text(repository, manager, check=self.check)
        files = vendor.repository_files(repository, manager, text, settings.MANAGED)
        self._state(files=[file_request(**entry) for entry in files])

    def _install(self, plan: Plan) -> None:
        if not self.check:
            if plan.mends or self.manager.interrupted():
                self.manager.mend([*(root.name for root in plan.missing), *(TOOLKIT if self.request.toolkit else ())])
            if not self.manager.known(plan.missing):
                self.manager.update()
        if self.manager.known(plan.missing):
            words = self.manager.resolve(plan.missing)
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
            self.manager.resolve(plan.missing)

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
