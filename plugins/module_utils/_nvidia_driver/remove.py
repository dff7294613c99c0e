# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Take away what the role ``nvidia_driver`` brought: the driver, its holds and its settings."""

from __future__ import annotations

import dataclasses
import os
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import read_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import plan as rules
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import read as node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.apply import (
    ROOT,
    RUNFILE_UNINSTALL,
    DriverRun,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.packages import in_stack
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.transaction import manager_for

# What came along with the driver and is of no use without it.
_COMPANIONS = re.compile(r"^(nvidia-open|cuda-drivers|nvidia-persistenced|nvidia-modprobe|datacenter-gpu-manager-4.*)$")
_UNITS = ("nvidia-dcgm.service", "nvidia-fabricmanager.service", "nvidia-persistenced.service")


class Remover(DriverRun):
    """Removes the driver."""

    def absent(self, *, check: bool) -> dict[str, t.Any]:
        """Remove packages or run the vendor's uninstaller, then the role's files."""
        if self.request.source == "preinstalled":
            return self._result(message="The driver is preinstalled: it is not this role's to remove.")
        manager = manager_for(self.host)
        self.packages = manager.installed()
        runfile = self.request.source == "runfile" and os.path.exists(RUNFILE_UNINSTALL)
        names = sorted(
            name for name, one in self.packages.items() if in_stack(name, one.version) or _COMPANIONS.match(name)
        )
        actions = manager.removal(names) if names else []
        others = sorted({action.name for action in actions if action.verb == "remove"} - set(names))
        if others:
            raise ClusterError(
                "in_use",
                f"These packages depend on the driver and would be removed with it: {', '.join(others[:8])}.",
                "Remove them first.",
            )
        if (names or runfile) and not self.chroot and self.loaded.version:
            rules.check_consent(
                dataclasses.replace(self.request, allow_upgrade=True),
                replaces="",
                wanted="no driver",
                would=[f"remove {name}" for name in names],
                reload=[f"the kernel runs driver {self.loaded.version}"],
                users=node.gpu_users(ROOT),
            )
            self._release([f"the kernel runs driver {self.loaded.version}"], check=check)
        units = [name for name in _UNITS if self._has_unit(name)] if names else []
        down = [{"name": name, "state": "stopped", "enabled": False, "restart_on": []} for name in units]
        self._state({"units": down}, check=check)
        for name in names:
            self._note("package", name, "remove", f"{name} {self.packages[name].version}\n", "")
        if names and not check:
            if manager.interrupted() or any(self.packages[name].broken for name in names):
                manager.mend()
            manager.remove(names)
        if runfile:
            self._uninstall(check=check)
        folders = [{"path": os.path.dirname(path), "if_empty": True} for path in (rules.OPENIBD, rules.PERSISTENCED)]
        # A site may have a unit of its own there; ours says so in its first line.
        ours = read_text(ROOT / rules.FABRIC_UNIT.lstrip("/")).startswith(rules.MANAGED)
        gone = [*rules.ALL_FILES, *([rules.FABRIC_UNIT] if ours else []), *folders]
        touched = self._state({"absent": gone}, check=check)
        self._initramfs(touched, check=check)
        return self._result()

    def _uninstall(self, *, check: bool) -> None:
        self._note("driver", "runfile", "uninstall")
        if check:
            return
        rc, out, err = self.host.run_command([RUNFILE_UNINSTALL, "--silent"])
        if rc != 0:
            raise ClusterError(
                "uninstall_failed",
                f"nvidia-uninstall ended with {rc}: {(err or out).strip()[-400:]}",
                "Read /var/log/nvidia-uninstall.log on the node.",
            )


__all__ = ["Remover"]
