# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Carry out the planned steps from the stack that is there to the wanted one."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.archive import fetch_archive
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import read
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.artifact import artifact_url, chosen_sum
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.commands import Commands
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.doca import Doca
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.mlnx_ofed import MlnxOfed
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.model import Step, System
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.plan import (
    installed_stack,
    plan_reboot,
    wants_initramfs,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.request import Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.unfinished import marked


class Stack:
    """The stack of one node."""

    def __init__(self, host: Host, request: Request, system: System) -> None:
        self.host, self.request, self.wanted, self.system = host, request, request.wanted, system
        self.commands = Commands(host, system, request.timeout_s)
        self.doca = Doca(self.commands, request, system)
        self.mlnx_ofed = MlnxOfed(self.commands, request, system)
        self.file = ""
        self._do: dict[str, t.Callable[[Step], None]] = {
            "uninstall": self._uninstall,
            "install": self._install,
            "rebuild": self._rebuild,
            "restart": self._restart,
            # The action reboots: a module cannot outlive that.
            "reboot": lambda _step: None,
        }

    def apply(self, step: Step) -> Step:
        """Do one step; returns what was done. A reboot takes the place of a restart that fails, where it may."""
        try:
            self._do[step.kind](step)
        except ClusterError as exc:
            fails_to_restart = step.kind == "restart" and exc.kind in ("still_loaded", "command_failed")
            if not fails_to_restart or not self.wanted.allow_reboot:
                raise
            return plan_reboot(step.before)
        return step

    @contextlib.contextmanager
    def prepared(self, steps: t.Iterable[Step]) -> t.Iterator[None]:
        """Fetch, check and unpack what the steps will install, and refuse what cannot work, before the first of them."""
        kinds = {step.kind for step in steps}
        if "install" not in kinds and ("rebuild" not in kinds or self._built_here):
            yield
            return
        # Not /tmp: the unpacked installer needs gigabytes, and /tmp may be memory or forbid programs.
        work = tempfile.mkdtemp(prefix="mofed.", dir="/var/tmp")
        try:
            self.file = self._fetch(work)
            if self.wanted.source == "mlnx_ofed":
                self.mlnx_ofed.unpack(self.file, rebuild="rebuild" in kinds)
            else:
                self.doca.check(self.file, replaces="uninstall" in kinds)
            yield
        finally:
            shutil.rmtree(work)

    @property
    def _built_here(self) -> bool:
        """Whether DKMS builds the modules from what is installed already."""
        return self.wanted.source == "doca" and self.system.manager == "dpkg"

    def _fetch(self, directory: str) -> str:
        version, source = self.wanted.version, self.wanted.source
        address = self.request.artifact or artifact_url(source, self.request.mirror, version, self.system)
        target = os.path.join(directory, address.rsplit("/", 1)[-1].split("?", 1)[0])
        digest = chosen_sum(self.request.sha256, source, version, self.system)
        fetch_archive(address, target, digest, self.request.timeout_s)
        return target

    def _install(self, step: Step) -> None:
        doca = self.wanted.source == "doca"
        self._initramfs(self.doca.install(self.file, step) if doca else self.mlnx_ofed.install(step))

    def _rebuild(self, step: Step) -> None:
        if not self._built_here:
            self._install(step)
            return
        build = ["dkms", "autoinstall", "-k", self.system.kernel]
        self._initramfs(self.commands.run(build, f"building modules for {self.system.kernel}"))

    def _initramfs(self, said: str) -> None:
        mode = self.request.initramfs
        if not self.wanted.kernel_parts or mode == "never" or (mode == "auto" and not wants_initramfs(said)):
            return
        if shutil.which("update-initramfs"):
            self.commands.run(["update-initramfs", "-u", "-k", self.system.kernel], "updating the initial ram disk")
        elif shutil.which("dracut"):
            self.commands.run(["dracut", "--force", "--kver", self.system.kernel], "updating the initial ram disk")

    def _there(self) -> tuple[str, str]:
        return installed_stack(read.read_software(self.host, self.system))

    def _uninstall(self, step: Step) -> None:
        script = shutil.which("ofed_uninstall.sh")
        # Where nothing answers as a stack any more, an earlier removal was interrupted: what it left are DOCA's packages.
        if not script and self._there()[0] not in ("", "doca"):
            raise ClusterError("no_uninstaller", "There is no ofed_uninstall.sh.", "Remove the stack by hand.")
        with marked(f"removal of {step.name}"):
            # DOCA's packages need those that the script removes, so they go first; what they brought goes with the script.
            self.doca.purge(autoremove=not script)
            if script:
                self.commands.run([script, "--force"], "ofed_uninstall.sh")
            self.doca.purge_repository()
        remaining = self._there()
        if remaining[0]:
            raise ClusterError(
                "not_removed", f"{' '.join(remaining)} is still there.", "Remove its packages by hand, then run again."
            )

    def _restart(self, _step: Step) -> None:
        if not read.read_modules(self.host, self.system).vendor:
            raise ClusterError(
                "kernel_mismatch",
                f"The stack is installed, but has no modules for the kernel {self.system.kernel}.",
                "Build them (`kernel_support: true`), or boot a kernel that has them. Nothing was unloaded.",
            )
        # Not by _host/units: a restart may hang, and has to end in time.
        self.commands.run(["systemctl", "restart", "openibd.service"], "restarting openibd")
        stale = read.read_modules(self.host, self.system).stale
        if stale:
            raise ClusterError(
                "still_loaded",
                f"After the restart of openibd the old {', '.join(stale)} is still loaded.",
                "Reboot the node, or set `allow_reboot: true`.",
            )


__all__ = ["Stack"]
