# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What must be done so that a file system is mounted where it is wanted."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import Mount, Node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import Wanted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.steps import Step

# Mount options that can be compared with what the kernel shows and changed while mounted.
_FLAGS = ("noatime", "relatime", "strictatime", "nodiratime", "nosuid", "nodev", "noexec", "ro")


def plan_mount(wanted: Wanted, node: Node, device: str) -> list[Step]:
    """Mount the device where it is wanted, with the wanted owner and mode. An empty device: what mkfs will make."""
    point = wanted.mount_point.rstrip("/")
    there = [mount for mount in node.mounts if mount.point == point]
    # The last line of mountinfo is the mount that one sees.
    if there and (there[-1].device != device or not device):
        raise ClusterError(
            "in_the_way",
            f"{there[-1].device or there[-1].filesystem} is mounted at {point}.",
            "Unmount it, or set another `mount_point`.",
        )
    if not there:
        elsewhere = [mount.point for mount in node.mounted(device)] if device else []
        if elsewhere:
            raise ClusterError(
                "in_the_way",
                f"{wanted.name} is mounted at {elsewhere[0]}, not at {point}.",
                "Unmount it there, or set `mount_point` to it.",
            )
        _check_directory(wanted, node)
        return [Step("mount", f"mount {wanted.name} at {point}", f"/dev/{device}" if device else "")]
    return [*_plan_flags(wanted, there[-1]), *_plan_owner(wanted, node)]


def _check_directory(wanted: Wanted, node: Node) -> None:
    if node.directory.kind != "directory":
        raise ClusterError(
            "in_the_way",
            f"{wanted.mount_point} is a {node.directory.kind}, not a directory.",
            "Move it away, or set another `mount_point`.",
        )
    if not node.directory.empty and not wanted.mount_over_files:
        named = f" ({', '.join(node.directory.names)})" if node.directory.names else ""
        raise ClusterError(
            "in_the_way",
            f"{wanted.mount_point} is not empty{named}; the mount would hide its files. Nothing was changed.",
            "Move them away and run again (at boot: `systemctl restart nvme-raid-NAME`), or set `mount_over_files: true`: they stay "
            "where they are, and are seen again when nothing is mounted there. Or set another `mount_point`.",
        )


def _plan_flags(wanted: Wanted, mount: Mount) -> list[Step]:
    missing = [flag for flag in _FLAGS if flag in wanted.mount_options and flag not in mount.options]
    if not missing:
        return []
    return [Step("remount", f"mount {mount.point} again with {','.join(missing)}", value=",".join(missing))]


def _plan_owner(wanted: Wanted, node: Node) -> list[Step]:
    directory, mode = node.directory, int(wanted.mode, 8)
    if (directory.owner, directory.group, directory.mode) == (wanted.owner, wanted.group, mode):
        return []
    return [Step("own", f"set owner and mode of {wanted.mount_point} to {wanted.owner}:{wanted.group} {wanted.mode}")]


__all__ = ["plan_mount"]
