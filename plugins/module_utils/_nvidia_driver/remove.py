# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Take away what the role ``nvidia_driver`` brought: the driver, its holds and its settings."""

from __future__ import annotations

import dataclasses
import os
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Installed
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.transaction import Apt, Dnf, manager_for
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import plan as rules
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import read as node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import settings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.files import (
    own_fabric_unit,
    rebuild_initramfs,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.model import Facts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.packages import (
    REMEDIES,
    has_driver_version,
    in_stack,
    is_companion,
    is_gdrcopy,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.record import Record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.request import Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.running import Running

_UNITS = ("nvidia-dcgm.service", "nvidia-fabricmanager.service", "nvidia-persistenced.service")


def absent(request: Request, facts: Facts, host: Host, *, check: bool) -> dict[str, t.Any]:
    """Remove packages or run the vendor's uninstaller, then the role's files."""
    record = Record(host, check=check)
    running = Running(request, facts, record)
    if request.source == "preinstalled":
        return running.result("", "The driver is preinstalled: it is not this role's to remove.")
    manager = manager_for(host, REMEDIES)
    facts = node.with_packages(facts, manager)
    runfile = request.source == "runfile" and facts.uninstaller
    names = names_to_remove(facts.packages, gdrcopy=request.gdrcopy)
    _check_others(manager, names)
    if names or runfile:
        _release(request, facts, running, names)
    _stop_units(facts, names, record)
    _remove_packages(facts, manager, names, record, gdrcopy=request.gdrcopy)
    if runfile:
        _uninstall(facts, record)
    rebuild_initramfs(_remove_files(facts, record), record)
    return running.result("")


def names_to_remove(packages: t.Mapping[str, Installed], *, gdrcopy: bool) -> list[str]:
    """The parts of the driver, and what came along with it. ``gdrcopy``: GDRCopy as well, which is the site's otherwise."""
    return sorted(
        name
        for name, one in packages.items()
        if in_stack(name, one.version) or is_companion(name) or (gdrcopy and is_gdrcopy(name))
    )


def _check_others(manager: Apt | Dnf, names: t.Sequence[str]) -> None:
    actions = manager.removal(names) if names else []
    others = sorted({action.name for action in actions if action.verb == "remove"} - set(names))
    if others:
        raise ClusterError(
            "in_use",
            f"These packages depend on the driver and would be removed with it: {', '.join(others[:8])}.",
            "Remove them first.",
        )


def _release(request: Request, facts: Facts, running: Running, names: t.Sequence[str]) -> None:
    if facts.chroot or not facts.loaded.version:
        return
    reasons = [f"the kernel runs driver {facts.loaded.version}"]
    rules.check_consent(
        dataclasses.replace(request, allow_upgrade=True),
        replaces="",
        wanted="no driver",
        would=[f"remove {name}" for name in names],
        reload=reasons,
        users=node.gpu_users(facts.root),
    )
    running.release(reasons, "")


def _stop_units(facts: Facts, names: t.Sequence[str], record: Record) -> None:
    units = [name for name in _UNITS if node.vendor_unit(facts.root, name)] if names else []
    record.state({"units": [{"name": name, "state": "stopped", "enabled": False, "restart_on": []} for name in units]})


def _remove_packages(
    facts: Facts, manager: Apt | Dnf, names: t.Sequence[str], record: Record, *, gdrcopy: bool
) -> None:
    for name in names:
        record.note("package", name, "remove", f"{name} {facts.packages[name].version}\n", "")
    if names and not record.check:
        if manager.interrupted() or any(facts.packages[name].broken for name in names):
            manager.mend(names)
        manager.remove(names)
        # A lock that stays would keep the next installation at the old version.
        manager.hold([], {}, lambda name, version: has_driver_version(name, version) or (gdrcopy and is_gdrcopy(name)))


def _uninstall(facts: Facts, record: Record) -> None:
    record.note("driver", "runfile", "uninstall")
    if record.check:
        return
    rc, out, err = record.host.run_command([str(facts.root / node.UNINSTALLER), "--silent"])
    if rc != 0:
        raise ClusterError(
            "uninstall_failed",
            f"nvidia-uninstall ended with {rc}: {(err or out).strip()[-400:]}",
            "Read /var/log/nvidia-uninstall.log on the node.",
        )


def _remove_files(facts: Facts, record: Record) -> list[str]:
    """Remove the role's files; returns those that were there."""
    folders = [{"path": os.path.dirname(path), "if_empty": True} for path in (settings.OPENIBD, settings.PERSISTENCED)]
    gone = [*settings.ALL_FILES, *([settings.FABRIC_UNIT] if own_fabric_unit(facts) else []), *folders]
    return record.state({"absent": gone})


__all__ = ["absent", "names_to_remove"]
