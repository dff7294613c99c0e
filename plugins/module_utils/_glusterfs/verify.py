# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Prove that a volume is shared: each node leaves a number on it, and one of them finds all. And tell its state."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.cli import Gluster
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.model import Brick
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.mount import (
    current_mount,
    is_stale,
    wait_connected,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.plan import is_ours, offline_error
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.request import CheckRequest

_POLL_S = 0.5
# A client that lost a brick for a moment takes about two seconds to find it again.
_PATIENCE_S = 5.0
_START = "Run the role glusterfs (entry point main) on all nodes."
# Where nodes leave their numbers when the volume is proven.
_PROOF = ".glusterfs_check"
# A node may not find yet for a moment what another one is making.
_MAKING_S = 5
_NOT_YET = (errno.ENOENT, errno.ESTALE)


@contextlib.contextmanager
def _proof_directory(path: str) -> t.Iterator[int]:
    """The open directory of the proof. Everybody may write beside it: what is not ours alone is never written or read."""
    directory = os.path.join(path, _PROOF)
    refused = ClusterError(
        "in_the_way",
        f"{directory} is not a directory that only root can write; a user of the volume may have made it.",
        f"Look at it, and remove it: `rm -r {directory}`.",
    )
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as exc:
        if exc.errno in (errno.ENOTDIR, errno.ELOOP):
            raise refused from exc
        raise
    try:
        held = os.fstat(handle)
        if held.st_uid != os.geteuid() or held.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise refused
        yield handle
    finally:
        os.close(handle)


def _leave(path: str, node: str, nonce: str) -> None:
    # Several nodes make it at once.
    with contextlib.suppress(FileExistsError):
        os.mkdir(os.path.join(path, _PROOF), mode=0o700)
    with _proof_directory(path) as directory:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(node, dir_fd=directory)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(node, flags, 0o600, dir_fd=directory), "w", encoding="utf-8") as handle:
            handle.write(nonce)
            handle.flush()
            os.fsync(handle.fileno())


def write_nonce(path: str, node: str) -> str:
    """Write a number of our own onto the volume, for another node to find; returns it."""
    nonce = secrets.token_hex(8)
    until = time.monotonic() + _MAKING_S
    while True:
        try:
            _leave(path, node, nonce)
        except OSError as exc:
            if exc.errno in _NOT_YET and time.monotonic() < until:
                time.sleep(_POLL_S)
                continue
            raise ClusterError(
                "not_writable",
                f"Nothing can be written to {path}: {exc.strerror}.",
                "Check its free space and its bricks.",
            ) from exc
        return nonce


def _found(directory: int, node: str) -> str:
    """What a node left, or an empty string. No link is followed, and nothing is waited for."""
    try:
        handle = os.open(node, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except OSError:
        return ""
    try:
        return os.read(handle, 64).decode(errors="replace") if stat.S_ISREG(os.fstat(handle).st_mode) else ""
    except OSError:
        return ""
    finally:
        os.close(handle)


def collect_nonces(path: str, nonces: t.Mapping[str, str]) -> list[str]:
    """The nodes whose number is not found here; the files are removed, found or not."""
    try:
        with _proof_directory(path) as directory:
            lost = [node for node, nonce in nonces.items() if not nonce or _found(directory, node) != nonce]
    except OSError:
        return list(nonces)
    shutil.rmtree(os.path.join(path, _PROOF), ignore_errors=True)
    return lost


def check_mount(volume: str, path: str) -> None:
    """Fail unless the volume is mounted here and answers."""
    found = current_mount(path)
    if not found or not is_ours(found, volume):
        raise ClusterError("not_mounted", f"{volume} is not mounted at {path} on {os.uname().nodename}.", _START)
    if is_stale(path):
        raise ClusterError("not_mounted", f"The mount of {volume} at {path} is dead on {os.uname().nodename}.", _START)


def volume_status(gluster: Gluster, volume: str) -> dict[str, t.Any]:
    """The volume, without a verdict."""
    info = gluster.volume(volume)
    online = gluster.online(volume) if info and info.started else set()
    return {
        "bricks": {str(brick): brick in online for brick in info.bricks} if info else {},
        "started": bool(info and info.started),
    }


def mount_status(volume: str, path: str) -> dict[str, t.Any]:
    """Its mount, without a verdict."""
    found = current_mount(path)
    if not found or not is_ours(found, volume) or is_stale(path):
        return {"mounted": False}
    space = os.statvfs(path)
    free, total = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
    return {"mounted": True, "free_bytes": free, "total_bytes": total}


def status(gluster: Gluster, volume: str, path: str) -> dict[str, t.Any]:
    """What there is, and why GlusterFS could not be asked."""
    result = {"bricks": {}, "started": False, "problem": "", **mount_status(volume, path)}
    if not gluster.answers():
        return {
            **result,
            "problem": "glusterd is not installed, or does not answer. Check `systemctl status glusterd`.",
        }
    try:
        return {**result, **volume_status(gluster, volume)}
    except ClusterError as exc:
        return {**result, "problem": str(exc)}


def collect(gluster: Gluster, request: CheckRequest, *, check: bool) -> dict[str, t.Any]:
    """The second half of the proof."""
    volume, path = request.volume, request.mount_point
    check_mount(volume, path)
    found = {**volume_status(gluster, volume), **mount_status(volume, path)}
    lost = [] if check else collect_nonces(path, request.nonces)
    offline = [Brick(*name.split(":", 1)) for name, online in found["bricks"].items() if not online]
    if offline:
        raise offline_error(volume, offline)
    silent = [] if check else [node for node in request.nodes if node not in request.nonces]
    if silent or lost:
        raise ClusterError(
            "not_shared",
            f"What {', '.join(sorted({*silent, *lost}))} wrote to {volume} was not found on {os.uname().nodename}.",
            "Check the mount on these nodes: the entry point verify names what is wrong there.",
        )
    return found


def write(request: CheckRequest, *, check: bool) -> dict[str, t.Any]:
    """The first half of the proof: a number on the volume, through a mount that reaches every brick."""
    check_mount(request.volume, request.mount_point)
    wait_connected(request.mount_point, request.volume, _PATIENCE_S)
    return {} if check else {"nonce": write_nonce(request.mount_point, request.node)}


__all__ = ["check_mount", "collect", "collect_nonces", "status", "write", "write_nonce"]
