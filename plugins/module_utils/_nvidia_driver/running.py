# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The driver that runs while it is changed: it makes way, comes back, or leaves its place to a reboot."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import kernel
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import read as node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.model import Facts, Loaded
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.record import Record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.request import Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.slurm import Slurm


class Running:
    """What has become of the running driver, and of the node's place in Slurm, in one run."""

    def __init__(self, request: Request, facts: Facts, record: Record) -> None:
        self.request, self.facts, self.record = request, facts, record
        self.loaded = facts.loaded
        self.reboot: list[str] = []
        self.away = kernel.Away()
        self.drained = False

    # -- Slurm ---------------------------------------------------------------------------------------------------------

    def _slurm(self) -> Slurm:
        name = self.request.slurm_node or self.facts.hostname
        return Slurm(self.record.host, name, self.request.drain_timeout_s)

    def drain(self) -> None:
        """Take the node out of service, where that was asked for."""
        if not self.request.drain:
            return
        slurm = self._slurm()
        if slurm.drain(check=self.record.check):
            self.record.note("slurm", slurm.node, "drain", "in service\n", "drained\n")
        self.drained = not self.record.check

    def _resume(self) -> None:
        if self.drained:
            self._slurm().resume()
            self.drained = False

    def give_back(self) -> None:
        """Resume the node if it was this role that drained it, in this run or before a reboot."""
        slurm = self._slurm()
        if slurm.drained_by_us():
            self.record.note("slurm", slurm.node, "resume", "drained\n", "in service\n")
            if not self.record.check:
                slurm.resume()

    def told(self, exc: ClusterError) -> ClusterError:
        """An error, with what became of the node in Slurm: one that was left in the middle gets no jobs."""
        if not self.drained:
            return exc
        return ClusterError(exc.kind, f"{exc.message} The node stays drained in Slurm.", exc.remedy, **exc.details)

    # -- away ----------------------------------------------------------------------------------------------------------

    def release(self, reasons: t.Sequence[str], version: str) -> None:
        """Get the driver that runs out of the way before its libraries change, or decide on a reboot after that.

        ``version`` is the one that comes, empty where none does.
        """
        self.drain()
        before = f"{self.loaded.version or 'nouveau'}\n"
        if self.request.allow_unload and self._unloaded(before):
            return
        self.record.note("node", "reboot", "; ".join(reasons), before, f"{version}\n" if version else "")
        self.reboot = list(reasons)

    def _unloaded(self, before: str) -> bool:
        """Unload; False where that does not work and a reboot may do it."""
        try:
            if not self.record.check:
                self.away = kernel.unload(self.record.host, self.facts.root)
        except ClusterError:
            if self.request.allow_reboot:
                return False
            # Nothing was changed: the node goes on serving.
            self._resume()
            raise
        self.record.note("kernel module", "nvidia", "unload", before, "")
        self.loaded = Loaded()
        return True

    # -- back ----------------------------------------------------------------------------------------------------------

    def load(self, version: str) -> None:
        """Load the driver, which has to be of this version."""
        if node.read_loaded(self.facts.root).version not in ("", version):
            # A script of a package, such as GDRCopy's, loaded the old module again before the new one was there.
            again = kernel.unload(self.record.host, self.facts.root)
            modules = dict.fromkeys((*self.away.modules, *again.modules))
            self.away = kernel.Away([*modules], [*dict.fromkeys((*self.away.units, *again.units))])
        kernel.load(self.record.host)
        self.loaded = node.read_loaded(self.facts.root)
        if self.loaded.version != version:
            raise ClusterError(
                "module_failed",
                f"modprobe loaded the module of driver {self.loaded.version or '(unknown)'}, not {version}.",
                "See `modinfo nvidia` and `dkms status`: another module lies in the kernel's directory.",
            )

    def _extras(self) -> list[str]:
        """Modules that went with the driver, and are no part of it."""
        return [name for name in self.away.modules if name not in (*kernel.BASE_MODULES, "nouveau")]

    def load_extras(self, *, but: t.Collection[str]) -> None:
        """Load what went with the old driver; one may be gone by now, or fit the old driver only. ``but``: others load these."""
        extras = [name for name in self._extras() if name not in but]
        for name, reason in kernel.bring_back(self.record.host, extras).items():
            self.record.note("kernel module", name, f"not loaded: {reason}")

    def start_others(self, ours: t.Collection[str]) -> None:
        """Start the services that were stopped for the old driver to go, and that are not the role's."""
        units = [name for name in self.away.units if name not in ours]
        for name, reason in kernel.start(self.record.host, units).items():
            self.record.note("unit", name, f"not started: {reason}")

    def in_the_middle(self, exc: ClusterError, ours: t.Collection[str]) -> ClusterError:
        """The error, with what the run that finishes the change cannot know of. ``ours``: what that run brings back."""
        lost = [name for name in (*self._extras(), *self.away.units) if name not in ours]
        said = f" Until it boots again, the node is without what had to make way: {', '.join(lost)}." if lost else ""
        return ClusterError(exc.kind, exc.message, exc.remedy + said, **exc.details)

    def retreated(self, exc: ClusterError, before: str) -> ClusterError:
        """The error, after what ran before runs again and the node serves on. ``before``: the driver that ran."""
        said = ""
        if self.away.modules:
            try:
                kernel.load(self.record.host)
            except ClusterError as failed:
                said = f" The driver that ran before is not loaded again: {failed.message}"
                return ClusterError(exc.kind, exc.message + said, exc.remedy, **exc.details)
            said = self._brought_back()
        # With a driver that came to the disk meanwhile by other means the node serves no job unverified.
        if self.drained and node.read_loaded(self.facts.root).version == before:
            with contextlib.suppress(ClusterError):
                self._resume()
        return ClusterError(exc.kind, exc.message + said, exc.remedy, **exc.details)

    def _brought_back(self) -> str:
        host = self.record.host
        failures = {**kernel.bring_back(host, self._extras()), **kernel.start(host, self.away.units)}
        said = " Nothing was installed, and what was unloaded and stopped for it runs again"
        return said + (f", except {', '.join(failures)}." if failures else ".")

    def result(self, flavor: str, message: str = "") -> dict[str, t.Any]:
        """What the module returns. ``flavor`` is the kernel module that was chosen."""
        return self.record.result(self.facts, self.loaded, flavor=flavor, reboot=self.reboot, message=message)


__all__ = ["Running"]
