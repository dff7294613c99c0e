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
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.request import file_request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import settings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.model import Facts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.plan import Wanted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.read import vendor_unit
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.record import Record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.request import Request

_FABRIC_MANAGER = "nvidia-fabricmanager.service"


def repository_files(request: Request, facts: Facts, wanted: Wanted, *, check: bool) -> list[dict[str, t.Any]]:
    """The repository and its key, where packages are to come from one that the node does not have yet."""
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
    files = settings.settings_files(request, wanted.dist, peermem=wanted.peermem)
    gone = settings.unwanted_files(request, wanted.dist, peermem=wanted.peermem)
    return record.state({"files": [*repository, *(file_request(**entry) for entry in files)], "absent": gone})


def write_fabric_unit(facts: Facts, record: Record) -> None:
    """Fabric Manager's unit, where the vendor's would not start with the machine."""
    unit = vendor_unit(facts.root, _FABRIC_MANAGER)
    content = settings.fabric_unit(unit.read_text(encoding="utf-8")) if unit else ""
    if content:
        record.state({"files": [file_request(settings.FABRIC_UNIT, content)]})


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


__all__ = ["rebuild_initramfs", "repository_files", "write_fabric_unit", "write_settings"]
