# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The role's files on a node, besides what packages bring, and the initramfs that holds some of them."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import repository as vendor
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import read_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.request import file_request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import settings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.model import Facts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.plan import Wanted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.read import vendor_unit
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.record import Record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.request import Request

_FABRIC_MANAGER, _PERSISTENCED = "nvidia-fabricmanager.service", "nvidia-persistenced.service"


def repository_files(
    request: Request, facts: Facts, wanted: Wanted, *, needed: bool, check: bool
) -> list[dict[str, t.Any]]:
    """The repository and its key. ``needed``: packages are to come from there. Without that only one that was added is kept as asked."""
    if not needed and not vendor.is_added(vendor.Repository(), wanted.dist.manager, settings.MANAGED):
        return []
    repository = settings.repository_for(request, wanted.dist, facts.machine)
    if (request.source == "runfile" and not wanted.fabric) or not repository.url:
        return []
    if vendor.listed_elsewhere(repository):
        return []
    text = vendor.key_text(repository, wanted.dist.manager, check=check)
    files = vendor.repository_files(repository, wanted.dist.manager, text, settings.MANAGED)
    return [file_request(**entry) for entry in files]


def write_settings(
    request: Request, wanted: Wanted, repository: t.Sequence[dict[str, t.Any]], record: Record
) -> list[str]:
    """Write the repository and the settings, and take away what an earlier request left; returns what changed."""
    files = settings.settings_files(request, wanted.dist, peermem=wanted.peermem, nvlink5=wanted.nvlink5)
    gone = settings.unwanted_files(request, wanted.dist, peermem=wanted.peermem, nvlink5=wanted.nvlink5)
    return record.state({"files": [*repository, *(file_request(**entry) for entry in files)], "absent": gone})


def write_units(facts: Facts, wanted: Wanted, record: Record) -> list[str]:
    """What the units of packages lack: their texts are there only after the transaction. Returns what changed."""
    files = [file_request(settings.PERSISTENCED, settings.persistenced_dropin(_unit_text(facts, _PERSISTENCED)))]
    content = settings.fabric_unit(_unit_text(facts, _FABRIC_MANAGER)) if wanted.fabric else ""
    files += [file_request(settings.FABRIC_UNIT, content)] if content else []
    # A copy that is no longer needed would hide the vendor's unit, which other versions of the package change.
    stale = not content and own_fabric_unit(facts)
    return record.state({"files": files, "absent": [settings.FABRIC_UNIT] if stale else []})


def own_fabric_unit(facts: Facts) -> bool:
    """Whether Fabric Manager's unit below /etc is the role's: a site may have one of its own there."""
    return read_text(facts.root / settings.FABRIC_UNIT.lstrip("/")).startswith(settings.MANAGED)


def _unit_text(facts: Facts, name: str) -> str:
    """A package's unit; empty where no package has put one."""
    unit = vendor_unit(facts.root, name)
    return unit.read_text(encoding="utf-8") if unit else ""


def rebuild_initramfs(touched: t.Sequence[str], record: Record) -> None:
    """nouveau may lie in the initramfs, with the modprobe settings of the time when that was made."""
    if settings.MODPROBE not in touched:
        return
    for argv in (["update-initramfs", "-u"], ["dracut", "--force"]):
        path = record.host.get_bin_path(argv[0])
        if path:
            record.note("initramfs", argv[0], "rebuild")
            if not record.check:
                _rebuild(record.host, [path, *argv[1:]], argv[0])
            return


def _rebuild(host: Host, argv: list[str], name: str) -> None:
    rc, _out, err = host.run_command(argv)
    if rc != 0:
        raise ClusterError("initramfs_failed", f"{name} failed: {err.strip()[-500:]}", "See what it says.")


__all__ = ["own_fabric_unit", "rebuild_initramfs", "repository_files", "write_settings", "write_units"]
