# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Carry a plan out on a node, step by step, with a way back as long as nothing was installed."""

from __future__ import annotations

import contextlib
import tempfile
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import secure_boot
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.transaction import Apt, Dnf, manager_for
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import files
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import plan as rules
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import read as node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.configure import (
    Configuration,
    brought_back,
    set_modes,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.install import Installation
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.model import Facts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.packages import REMEDIES
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.plan import Do, Plan, Step
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.record import Record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.request import Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.running import Running


def _of_system(exc: OSError) -> ClusterError:
    message = f"{exc.filename or 'A path'}: {exc.strerror}."
    return ClusterError("os_error", message, "Correct this on the node and run again.")


class Steps:
    """The steps of one plan on one node."""

    def __init__(self, request: Request, plan: Plan, install: Installation, running: Running, record: Record) -> None:
        self.request, self.plan, self.install = request, plan, install
        self.running, self.record = running, record
        self.repository: list[dict[str, t.Any]] = []
        self.touched: list[str] = []
        self.units: list[str] = []
        self._do: dict[Do, t.Callable[[Step], None]] = {
            Do.FETCH: lambda _step: install.fetch(),
            Do.REPOSITORY: self._repository,
            Do.SIMULATE: lambda _step: install.simulate(),
            Do.DOWNLOAD: lambda _step: install.download(),
            Do.RELEASE: lambda step: running.release(step.reasons, plan.wanted.version),
            Do.FILES: self._files,
            Do.PACKAGES: lambda _step: install.commit(),
            Do.INSTALLER: lambda _step: install.run_installer(),
            Do.UNITS: self._units,
            Do.HOLD: lambda _step: install.hold(),
            Do.INITRAMFS: lambda _step: files.rebuild_initramfs(self.touched, record),
            Do.CONFIGURE: self._configure,
        }
        self.sets_modes = False

    def take(self) -> None:
        """All of them, in their order."""
        self._each(self.plan.prepare)
        with self._retreating():
            self._each(self.plan.change)
        self._each(self.plan.finish)

    def _each(self, steps: t.Iterable[Step]) -> None:
        for step in steps:
            # Check mode tells what the lists on the node knew before.
            if not self.record.check or step.do not in (Do.SIMULATE, Do.DOWNLOAD):
                self._do[step.do](step)

    def _repository(self, _step: Step) -> None:
        check, needed = self.record.check, bool(self.plan.difference)
        self.repository = files.repository_files(
            self.request, self.install.facts, self.plan.wanted, needed=needed, check=check
        )
        if needed and not check:
            self.record.state({"files": self.repository})

    def _files(self, _step: Step) -> None:
        self.touched = files.write_settings(self.request, self.plan.wanted, self.repository, self.record)

    def _units(self, _step: Step) -> None:
        self.units = files.write_units(self.install.facts, self.plan.wanted, self.record)

    def _configure(self, _step: Step) -> None:
        facts, wanted = self.install.facts, self.plan.wanted
        configuration = Configuration(self.request, facts, wanted, self.running, self.record)
        configuration.run(new_fabric=self.install.new_fabric, new_settings=self.units)
        if configuration.live:
            self.sets_modes = set_modes(self.request, facts, self.running, self.record, wanted.flavor)

    @contextlib.contextmanager
    def _retreating(self) -> t.Iterator[None]:
        """Where the change fails before anything was installed: let what ran before run again, and the node serve on."""
        if self.record.check or not self.plan.reload:
            yield
            return
        before, parts = self.running.loaded.version, self.install.parts()
        try:
            yield
        except (ClusterError, OSError) as error:
            exc = error if isinstance(error, ClusterError) else _of_system(error)
            untouched = before and parts == self.install.parts()
            raise (self.running.retreated(exc, before) if untouched else self._in_the_middle(exc)) from error

    def _in_the_middle(self, exc: ClusterError) -> ClusterError:
        ours = brought_back(self.request, self.install.facts, self.plan.wanted)
        return self.running.in_the_middle(exc, ours)


class Driver:
    """One node's driver, brought to what a request asks for."""

    def __init__(self, request: Request, facts: Facts, host: Host, *, check: bool) -> None:
        self.request, self.facts, self.host = request, facts, host
        self.record = Record(host, check=check)
        self.running = Running(request, facts, self.record)
        self.flavor = ""
        self.sets_modes = False

    def present(self) -> dict[str, t.Any]:
        """Install and configure, or say what that would do."""
        try:
            with tempfile.TemporaryDirectory(prefix="nvidia-driver-") as work:
                return self._present(work)
        except ClusterError as exc:
            raise self.running.told(exc) from exc

    def _present(self, work: str) -> dict[str, t.Any]:
        if self.request.source == "preinstalled":
            return self._preinstalled()
        if not self.request.version:
            raise ClusterError(
                "bad_input",
                "`version` is not set, and a driver is never chosen by chance.",
                "Set it to the whole version, for example 580.95.05.",
            )
        wanted = rules.choose(self.request, self.facts)
        self.flavor = wanted.flavor
        manager = manager_for(self.host, REMEDIES)
        facts = node.with_stream(node.with_next_kernel(self.facts, self.host, self.request), manager)
        wanted = rules.with_roots(self.request, facts, wanted)
        if not wanted.flavor:
            return self.running.result("", "There is no NVIDIA GPU on the PCI bus, so nothing was done.")
        facts = self._installed(facts, wanted, manager)
        wanted = rules.with_later_kernels(self.request, facts, wanted)
        plan = rules.plan(self.request, facts, wanted)
        install = Installation(self.request, facts, plan, manager, self.record, work)
        if not facts.chroot and rules.builds_module(self.request, facts, wanted):
            instead = "name packages with signed modules in `packages`"
            secure_boot.check(self.host, facts.root, self.request.runfile_arguments, instead=instead)
        install.foresee()
        self._check_consent(plan, install)
        steps = Steps(self.request, plan, install, self.running, self.record)
        steps.take()
        self.sets_modes = steps.sets_modes
        return self.running.result(self.flavor)

    def _preinstalled(self) -> dict[str, t.Any]:
        if self.request.configures and not self.facts.chroot:
            self.sets_modes = set_modes(self.request, self.facts, self.running, self.record, self.flavor)
        if not self.facts.hardware.gpus and not self.facts.chroot and not self.request.expect_gpus:
            return self.running.result(self.flavor, "There is no NVIDIA GPU on the PCI bus, so nothing was done.")
        return self.running.result(self.flavor, "The driver is preinstalled: nothing is installed.")

    def _installed(self, facts: Facts, wanted: rules.Wanted, manager: Apt | Dnf) -> Facts:
        facts = node.with_packages(facts, manager)
        rules.check_source(self.request, facts, wanted)
        return facts if self.request.packaged else node.with_driver_files(facts, self.host)

    def _check_consent(self, plan: Plan, install: Installation) -> None:
        rules.check_consent(
            self.request,
            replaces=plan.replaces,
            wanted=plan.wanted.text(),
            would=install.would(),
            reload=plan.reload,
            users=node.gpu_users(self.facts.root) if plan.reload else [],
        )

    def give_back(self, result: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        """Resume the node in Slurm if it was this role that drained it. Comes last, when all is proven."""
        managed = self.request.source != "preinstalled" and self.facts.hardware.gpus
        if not self.request.drain or self.facts.chroot or not (managed or self.sets_modes):
            return dict(result)
        self.running.give_back()
        return {**result, **self.running.result(self.flavor)}


__all__ = ["Driver", "Steps"]
