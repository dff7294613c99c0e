# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The client's module as a part of an installation: what keeps it from being built is said first, and it is built last."""

from __future__ import annotations

import platform
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond_software import client_needs as needs
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond_software.client_module import (
    AUTOBUILD,
    Client,
    autobuild_text,
    dkms_text,
    kernels_of,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond_software.request import HEAD, Software
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.changes import Changes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.kernels import next_kernel
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.units import is_running

ROOT = Path("/")
_DKMS = "beegfs-client-dkms"
#: Each of these brings the client.
_BRINGS = {"beeond", "beegfs-client", _DKMS}
_HEADERS = ("linux-headers-", "kernel-devel", "kernel-uek-devel", "kernel-64k-devel", "kernel-rt-devel")


class ClientPhase:
    """The client's module on one node. ``wanted`` are the packages that it is to have, ``missing`` those that it lacks."""

    def __init__(
        self,
        software: Software,
        host: Host,
        system: str,
        there: t.Container[str],
        wanted: t.Sequence[str],
        missing: t.Sequence[str],
    ) -> None:
        self.software, self.host, self.system = software, host, system
        dkms = _DKMS in wanted or _DKMS in there
        self.client = Client(ROOT, host, software.client_build_args, dkms)
        self.is_there = "beegfs-client" in there or _DKMS in there
        self.headers_come = any(name.startswith(_HEADERS) for name in missing)
        self.running = software.kernel or platform.release()
        self.kernels = self._kernels() if software.client_build and (self.is_there or _BRINGS & {*wanted}) else []
        self.warnings: list[str] = []

    def _kernels(self) -> list[str]:
        if self.software.kernel:
            return [self.software.kernel]
        # In an image that runs nothing the kernel is that of another machine.
        return kernels_of(ROOT, self.running, next_kernel(self.host, ROOT)) if is_running() else []

    def require(self) -> None:
        """Raise ClusterError for what keeps the kernel that runs from having the module. Of the next one it is a warning."""
        for kernel in [*self.kernels]:
            if not (self.is_there and not self.client.is_due(kernel)):
                self._unless_next(kernel, self._require)

    def _require(self, kernel: str) -> None:
        if not self.headers_come:
            needs.require_headers(ROOT, kernel, self.system)
        needs_ofed = kernel == self.running or not needs.ofed_for(ROOT, needs.ofed_path(self.client.build_args), kernel)
        if needs_ofed:
            needs.require_ofed(ROOT, self.client.build_args, kernel)
        if not self.software.kernel:
            needs.require_signature(self.host, ROOT, dkms=self.client.dkms)

    def _unless_next(self, kernel: str, work: t.Callable[[str], None]) -> None:
        """Do it. What is wrong for the kernel that only boots next is told and keeps nobody from working with this one."""
        try:
            work(kernel)
        except ClusterError as exc:
            if kernel == self.running:
                raise
            self.kernels.remove(kernel)
            said = exc.message.replace(" Nothing was changed.", "")
            self.warnings.append(f"Kernel {kernel}, which boots next, will have no BeeGFS client: {said} {exc.remedy}")

    def files(self, *, before: bool) -> list[dict[str, t.Any]]:
        """The settings of the build: dkms reads them while its package comes, and the package of the other brings its own."""
        args = self.software.client_build_args
        if not args or before != self.client.dkms:
            return []
        if self.client.dkms:
            return [{"path": str(ROOT / "etc/beegfs/beegfs-client-build.mk"), "content": dkms_text(HEAD, args)}]
        return [{"path": str(ROOT / AUTOBUILD), "content": autobuild_text(HEAD, args)}]

    def build(self, changes: Changes, *, check: bool) -> None:
        """Build the module where it is due."""
        for kernel in [*self.kernels]:
            # Where the package is still to come only a run that is no check can look.
            if (check and not self.is_there) or self.client.is_due(kernel):
                changes.note("module", "beegfs", f"build for kernel {kernel}", "", f"beegfs for {kernel}\n")
                if not check:
                    self._unless_next(kernel, self._build)

    def _build(self, kernel: str) -> None:
        needs.require_headers(ROOT, kernel, self.system)
        self.client.build(kernel, runs=kernel == platform.release())


__all__ = ["ROOT", "ClientPhase"]
