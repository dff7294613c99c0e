# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The volume's mount on this node: made, taken away, and watched until it reaches every brick."""

from __future__ import annotations

import errno
import glob
import os
import stat
import time

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.cli import Gluster
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.plan import is_ours
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.mounts import mount_at, read_mounts

_POLL_S = 0.5


def current_mount(path: str) -> tuple[str, str] | None:
    """File system and source of what is mounted at ``path``."""
    found = mount_at(path, read_mounts())
    return (found.filesystem, found.source) if found else None


def is_stale(path: str) -> bool:
    """Whether the mount at ``path`` lost its process."""
    try:
        os.statvfs(path)
    except OSError as exc:
        if exc.errno in (errno.ENOTCONN, errno.EIO, errno.ESTALE):
            return True
        raise
    return False


def mount(gluster: Gluster, host: Host, volume: str, path: str, options: str, *, check: bool) -> list[str]:
    """Mount the volume through this node's own glusterd; returns what was done."""
    done = []
    found = current_mount(path)
    if found and not is_ours(found, volume):
        raise ClusterError(
            "in_the_way", f"{found[1]} ({found[0]}) is mounted at {path}.", "Unmount it, or mount elsewhere."
        )
    if found and is_stale(path):
        done.append(f"unmount the dead mount at {path}")
        if not check:
            _umount(host, path, "-l")
        found = None
    if found:
        return done
    if not done and os.path.isdir(path) and os.listdir(path):
        raise ClusterError("in_the_way", f"{path} is not empty; the mount would hide its files.", "Move them away.")
    done.append(f"mount {volume} at {path}")
    if check:
        return done
    os.makedirs(path, mode=0o755, exist_ok=True)
    while True:
        argv = ["mount", "-t", "glusterfs", "-o", options, f"localhost:/{volume}", path]
        rc, _out, err = host.run_command(["timeout", "-k", "5", "60", *argv])
        if rc == 0 and current_mount(path) and not is_stale(path):
            return done
        if current_mount(path):
            _umount(host, path, "-l")
        # Bricks may still be starting.
        gluster.wait(f"{volume} could not be mounted at {path} ({err.strip().splitlines()[-1:] or rc})")


def set_mode(path: str, mode: str, *, check: bool) -> list[str]:
    """Give the root of the mounted volume its permissions."""
    if not os.path.ismount(path) or stat.S_IMODE(os.stat(path).st_mode) == int(mode, 8):
        return []
    if not check:
        os.chmod(path, int(mode, 8))
    return [f"set the mode of {path} to {mode}"]


def _umount(host: Host, path: str, *flags: str) -> None:
    rc, _out, err = host.run_command(["timeout", "-k", "5", "60", "umount", *flags, path])
    if rc != 0:
        raise ClusterError(
            "in_use",
            f"{path} cannot be unmounted: {err.strip()[:300].rstrip('.')}.",
            f"End what uses it: `fuser -vm {path}`.",
        )


def unmount(host: Host, volume: str, path: str, *, check: bool) -> list[str]:
    """Unmount the volume if it is mounted."""
    found = current_mount(path)
    if not found or not is_ours(found, volume):
        return []
    if not check:
        _umount(host, path, *(["-l"] if is_stale(path) else []))
    return [f"unmount {path}"]


def disconnected(path: str, volume: str) -> list[str]:
    """The nodes whose bricks this mount is not connected to, as the client itself says.

    A brick that is online again is not yet one that every client talks to: until then its files are missing here.
    """
    nodes = []
    for client in glob.glob(f"{glob.escape(path)}/.meta/graphs/active/{volume}-client-*"):
        try:
            with open(f"{client}/private", encoding="utf-8") as handle:
                connected = "connected = 1" in handle.read().splitlines()
            with open(f"{client}/options/remote-host", encoding="utf-8") as handle:
                node = handle.read().strip()
        except OSError:
            # The client took up another set of bricks while we looked.
            connected, node = False, os.path.basename(client)
        if not connected:
            nodes.append(node)
    return sorted(nodes)


def wait_connected(path: str, volume: str, patience_s: float) -> None:
    """Wait until this mount talks to every brick: the node that leads may be repairing the volume at this very moment."""
    until = time.monotonic() + patience_s
    missing = disconnected(path, volume)
    while missing and time.monotonic() < until:
        time.sleep(_POLL_S)
        missing = disconnected(path, volume)
    if missing:
        raise ClusterError(
            "not_connected",
            f"The mount at {path} on {os.uname().nodename} is not connected to the brick of {', '.join(missing)}.",
            "Check that the brick runs (entry point status) and that this node reaches that one.",
        )


__all__ = ["current_mount", "disconnected", "is_stale", "mount", "set_mode", "unmount", "wait_connected"]
