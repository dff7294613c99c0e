# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Compares a node with what it should hold, and makes the difference go away."""

from __future__ import annotations

import dataclasses
import glob
import os
import pathlib
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.changes import Change, Changes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.distribution import parse_os_release
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import read_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.mounts import read_mounts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.units import (
    UnitState,
    has_unit_file,
    is_running,
    needs_daemon_reload,
    read_units,
    systemctl,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state import archive, write
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.packages import (
    missing_packages,
    next_packages,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.plan import (
    plan_absent,
    plan_archive,
    plan_build,
    plan_directory,
    plan_file,
    plan_link,
    plan_units_down,
    plan_units_up,
    refuse_foreign,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.read import look, owner_ids
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.request import Absent, request_of

_OS_RELEASE = pathlib.Path("/etc/os-release")
#: How long systemd may take to know a unit file that was just written.
_SETTLE_S = 10.0


class NodeState:
    """Compares a node with what it should hold and makes the difference go away."""

    def __init__(self, params: dict[str, t.Any], host: Host, *, of_task: bool = False) -> None:
        """``params`` are those of the module; what can be wrong in them is an error here. ``of_task`` as of ``request_of``."""
        self.request = request_of(params, of_task=of_task)
        self.host = host
        self.running = is_running()
        self.node = parse_os_release(read_text(_OS_RELEASE))
        self.missing: list[str] = []
        self.changes = Changes()

    # -- reading ---------------------------------------------------------------------------------------------------

    def needs(self) -> dict[str, t.Any]:
        """What only the controller can bring before anything is planned: packages, and archives that lie there."""
        self.missing, manager = missing_packages(self.request.packages, self.host)
        archives = [
            item.path
            for item in self.request.archives
            if item.controller_src and not item.staged_src and plan_archive(item, look(item.path), self.node)
        ]
        return {"packages": self.missing, "package_manager": manager, "archives": archives, "files": []}

    def _lacking(self, paths: t.Iterable[Change], *, check: bool) -> list[int]:
        """The numbers of the files whose bytes the controller keeps, and that change or that a build may replace."""
        build = not check and any(change.kind == "build" for change in paths)
        changing = {change.name for change in paths if change.kind == "file" and change.what in ("create", "content")}
        return [
            number
            for number, item in enumerate(self.request.files)
            if item.content.is_lacking(check=check) and (build or item.path in changing)
        ]

    def _units(self) -> dict[str, UnitState]:
        return read_units(self.host, [unit.name for unit in self.request.units])

    def _units_after(self, touched: t.Collection[str]) -> dict[str, UnitState]:
        """The units, now that files changed. A busy systemd may not know a new file at once after a reload."""
        deadline = time.monotonic() + _SETTLE_S
        while True:
            states = self._units()
            unread = [name for name, state in states.items() if not state.known and has_unit_file(name, touched)]
            if not unread or time.monotonic() > deadline:
                return states
            time.sleep(0.5)

    def plan_paths(self) -> list[Change]:
        """The changes to absent paths, directories, archives, what is built in them, files and links, in this order."""
        tolerate = bool(self.missing)
        plan: list[Change | None] = [*self._plan_absent()]
        for directory in self.request.directories:
            have = look(directory.path)
            if have.kind == "link" and os.path.isdir(directory.path):
                have = look(os.path.realpath(directory.path))
            plan.append(plan_directory(directory, have, *owner_ids(directory, tolerate=tolerate)))
        archives = [(item, look(item.path)) for item in self.request.archives]
        plan += [plan_archive(item, have, self.node) for item, have in archives]
        plan += [plan_build(item, have) for item, have in archives]
        for file in self.request.files:
            plan.append(plan_file(file, look(file.path, content=True), *owner_ids(file, tolerate=tolerate)))
        plan += [plan_link(link, look(link.path)) for link in self.request.links]
        return [change for change in plan if change is not None]

    def _plan_absent(self) -> t.Iterator[Change]:
        mounts = read_mounts() if self.request.absent else ()
        leaving: set[str] = set()
        for absent in self._absent():
            link = absent.unless_target_of
            protected = os.path.realpath(link) if link and os.path.islink(link) else ""
            # Mount points, and what a link points at, are named without the links that lie above them.
            real = os.path.join(os.path.realpath(os.path.dirname(absent.path)), os.path.basename(absent.path))
            have = look(real, mounts, content=bool(absent.ours), leaving=leaving)
            change = plan_absent(absent, have, real, protected)
            if change:
                leaving.add(real)
                yield change

    def _absent(self) -> t.Iterator[Absent]:
        """Patterns become what matches them and is not listed elsewhere, and the directory that it may leave empty."""
        request = self.request
        listed = {item.path for kind in (request.directories, request.files, request.links) for item in kind}
        for item in request.absent:
            if not item.pattern:
                yield item
                continue
            for path in sorted(set(glob.glob(item.path)) - listed):
                yield dataclasses.replace(item, path=path, pattern=False)
                if os.path.dirname(path) not in listed:
                    yield Absent(os.path.dirname(path), if_empty=True)

    # -- the run ---------------------------------------------------------------------------------------------------

    def run(self, *, check: bool) -> dict[str, t.Any]:
        """Plan and, unless ``check``, apply. Everything is planned before the first change is made."""
        # Before packages come, too.
        refuse_foreign((item, look(item.path, content=True)) for item in self.request.files if item.ours)
        needs = self.needs()
        if not check and (needs["packages"] or needs["archives"]):
            # What brings a repository is installed before what comes from there: the action calls again in between.
            following = next_packages(self.request.packages, self.missing, needs["package_manager"])
            return {"changed": False, "needs": {**needs, "packages": following}}
        units, states = self.request.units, self._units()
        down = plan_units_down(units, states, self.running)
        paths = self.plan_paths()
        lacking = self._lacking(paths, check=check)
        if lacking:
            return {"changed": False, "needs": {**needs, "packages": [], "archives": [], "files": lacking}}
        for name in needs["packages"]:
            self.changes.note("package", name, "install", "", f"{name}\n")
        touched = {change.name for change in paths}
        self._apply(down, check)
        self._apply(paths, check)
        if not check and any(change.kind == "build" for change in paths):
            # What was built may have replaced files that were right before.
            replaced = self.plan_paths()
            touched.update(change.name for change in replaced)
            self._apply(replaced, check)
        if self.running and needs_daemon_reload(touched, states.values()):
            self._apply([Change("daemon-reload", "systemd", "read unit files again")], check)
        if not check and touched:
            states = self._units_after(touched)
        may_appear = check and bool(self.changes)
        self._apply(plan_units_up(units, states, touched, running=self.running, may_appear=may_appear), check)
        waiting = [] if self.running else [unit.name for unit in units if unit.state == "started"]
        return {**self.changes.result(), "units_not_started": waiting}

    def _apply(self, changes: t.Iterable[Change], check: bool) -> None:
        for change in changes:
            if not check:
                self._make(change)
            self.changes.add(change)

    def _make(self, change: Change) -> None:
        kind, want, host = change.kind, change.want, self.host
        if kind == "directory":
            write.make_directory(want, host)
        elif kind == "file" and change.what in ("create", "content"):
            write.write_file(want, host)
        elif kind == "file":
            write.own_file(want)
        elif kind == "link":
            write.make_link(want, host)
        elif kind == "absent":
            write.remove(want)
        elif kind == "archive":
            write.make_parents(want.path, host)
            archive.unpack(want, host)
        elif kind == "build":
            archive.build(want, host)
        elif kind == "daemon-reload":
            systemctl(host, kind)
        else:
            systemctl(host, change.what, change.name)


__all__ = ["NodeState"]
