# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""One run of ``rdma_stack``: software, files and settings, in the order in which one needs the other."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.changes import Changes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import files, read, users
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.apply import Stack
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.artifact import chosen_sum
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.model import Modules, Step
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.plan import (
    installed_stack,
    plan_removal,
    plan_stack,
    refuse_users,
    remaining_stack,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.request import Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.settings import NodeSettings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.signing import builds_doca, refuse_unsigned


class Run:
    """One run of ``rdma_stack``: what is there, what is wanted, and the changes. With ``check`` they are only told."""

    def __init__(self, request: Request, host: Host, *, check: bool) -> None:
        self.request, self.wanted, self.host, self.check = request, request.wanted, host, check
        self.system = read.read_system(self.wanted.kernel)
        self.stack = Stack(host, request, self.system)
        self.settings = NodeSettings(host, request.settings(self.system), live=self.wanted.configures)
        self.software = read.read_software(host, self.system)
        look = self.wanted.kernel_parts or bool(remaining_stack(self.software)[0])
        self.modules = read.read_modules(host, self.system) if look else Modules()
        self.changes = Changes()

    def _take(self, steps: t.Iterable[Step]) -> None:
        for step in steps:
            self.changes.add(step if self.check else self.stack.apply(step))

    def _packages(self) -> None:
        """The distribution's packages; a vendor's installation brings them itself when it is done."""
        missing = self.stack.commands.missing(self.request.packages) if self.wanted.installs else []
        if missing and not self.check:
            self.stack.commands.add(missing)
        for name in missing:
            self.changes.note("package", name, "install", "", f"{name}\n")

    def present(self) -> None:
        """Plan everything, then install, write, load and set, in the order in which one needs the other."""
        settings = self.settings
        limits = settings.allowed_limits(self.request.limits)
        services = settings.allowed_limits(self.request.service_limits, "service_limits")
        names = settings.allowed_names()
        settings.settings = dataclasses.replace(
            settings.settings, limits=limits, service_limits=services, persistent_names=names
        )
        steps = plan_stack(self.wanted, self.system, self.software, self.modules, users.users)
        if builds_doca(self.wanted, self.system, steps):
            refuse_unsigned(self.wanted, self.system, self.host)
        install = any(step.kind == "install" for step in steps)
        if install:
            chosen_sum(self.request.sha256, self.wanted.source, self.wanted.version, self.system)
        epel = self.stack.doca.lacking_epel() if install and self.wanted.source == "doca" else ""
        settings.check_rxe()
        # In check mode this is the whole plan of the files; otherwise it finds what would be refused.
        settings.write(settings.request(), check=True)
        self._spare_users()
        if epel:
            self.changes.note("package", epel, "install", "", f"{epel}\n")
        if self.check:
            self._take(steps)
            if not install:
                self._packages()
        else:
            settings.changes = Changes()
            if epel:
                self.stack.doca.enable_epel(epel)
            with self.stack.prepared(steps):
                self._bring(steps, install=install)
        if self.request.excludes is not None:
            settings.edit_repositories(exclude=self.request.excludes, check=self.check)
        settings.edit(self.request.edits(), check=self.check)
        if not self.check:
            settings.reread_service_limits()
        settings.revive_rxe(check=self.check)
        settings.apply_sysctl(check=self.check)
        if not self.check:
            settings.reload_udev(users.users)

    def _spare_users(self) -> None:
        """Stopping RDMA over Ethernet takes the device away from whoever works with it."""
        changes = self.settings.changes
        stops = changes.names("unit", "stop") + changes.names("unit", "restart")
        if stops:
            refuse_users(users.users(), f"stopping {', '.join(stops)}")

    def _bring(self, steps: list[Step], *, install: bool) -> None:
        """Software before the files that depend on it, and new modules last."""
        if self.request.excludes is False:
            # The distribution's packages may be what comes next.
            self.settings.edit_repositories(exclude=False, check=False)
        self._take(step for step in steps if step.kind == "uninstall")
        self.settings.write(self.settings.pins(), check=False)
        self._take(step for step in steps if step.kind in ("install", "rebuild"))
        if not install:
            self._packages()
        self.settings.write(self.settings.request(), check=False)
        self._take(step for step in steps if step.kind in ("restart", "reboot"))

    def absent(self) -> None:
        """Take away what was installed and written."""
        settings = self.settings
        steps = plan_removal(self.wanted, self.software, users.users)
        settings.write(settings.removal(), check=True)
        self._spare_users()
        self._take(steps)
        if not self.check:
            settings.changes = Changes()
            settings.write(settings.removal(), check=False)
            settings.reread_service_limits()
        settings.edit_repositories(exclude=False, check=self.check)
        settings.edit({files.WAAGENT: None, files.OPENIB_CONF: None}, check=self.check)
        if steps and self.modules.loaded:
            settings.not_applied.append(
                {"what": "kernel modules", "reason": "the removed ones stay loaded until a reboot"}
            )
        if not self.check:
            settings.reload_udev(users.users)

    def result(self) -> dict[str, t.Any]:
        """What the module returns."""
        changes = Changes([*self.changes, *self.settings.changes])
        source, version = installed_stack(read.read_software(self.host, self.system) if changes else self.software)
        return {
            **changes.result(),
            "stack": {"source": source, "version": version},
            "not_applied": self.settings.not_applied,
            "reboot_required": any(isinstance(change, Step) and change.kind == "reboot" for change in changes),
        }


__all__ = ["Run"]
