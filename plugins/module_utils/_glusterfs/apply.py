# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The half of the ``glusterfs_*`` modules that touches a node: gluster's command line, mounts and bricks."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
import secrets
import shutil
import stat
import time
import typing as t
import xml.etree.ElementTree as ET

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.plan import (
    Brick,
    Step,
    Volume,
    Wanted,
    check_wanted,
    check_whole_run,
    forgotten,
    given_up,
    is_ours,
    nodes_to_probe,
    offline_error,
    parse_names,
    parse_online,
    parse_peers,
    parse_reply,
    parse_volume,
    plan_create,
    plan_forget,
    plan_grow,
    plan_options,
    refusal,
    unlisted,
    unready,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.mounts import mount_at, read_mounts

_POLL_S = 0.5
# glusterd serializes changes of the cluster and refuses a second one at once.
_BUSY = ("Another transaction", "Locking failed", "locking failed")
# How long a brick that was told to start may take to be reported.
_BRICK_WAIT_S = 15
# Where nodes leave their numbers when the volume is proven.
_PROOF = ".glusterfs_check"
# A node may not find yet for a moment what another one is making.
_MAKING_S = 5
_NOT_YET = (errno.ENOENT, errno.ESTALE)


class Runner(t.Protocol):
    """What is needed of ``AnsibleModule``."""

    def run_command(self, args: list[str], **kwargs: t.Any) -> tuple[int, str, str]:
        """Run a command and return its exit status, output and errors."""


class Gluster:
    """gluster's command line, with a deadline for all that is done through it."""

    def __init__(self, runner: Runner, timeout_s: float) -> None:
        self._runner = runner
        self.deadline = time.monotonic() + timeout_s
        self.timeout_s = timeout_s

    def answers(self) -> bool:
        """Whether there is a glusterd to ask. There is none before the first run, nor in its check mode."""
        if not shutil.which("gluster"):
            return False
        _rc, out, err = self._runner.run_command(
            ["timeout", "-k", "5", "20", "gluster", "--mode=script", "pool", "list"]
        )
        return "UUID" in out + err

    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    def wait(self, what: str) -> None:
        """Sleep a little, or fail because the time is over."""
        if self.left() <= 0:
            raise ClusterError(
                "timeout",
                f"{what} within {self.timeout_s:.0f} s.",
                "Check glusterd and the network between the nodes, or raise `timeout_s`.",
            )
        time.sleep(_POLL_S)

    def reply(self, *words: str) -> ET.Element:
        """The reply to a command, refused or not."""
        limit = str(max(10, int(self.left()) + 5))
        argv = ["timeout", "-k", "5", limit, "gluster", "--mode=script", "--xml", *words]
        rc, out, err = self._runner.run_command(argv)
        while "Connection failed" in out + err:
            # glusterd was started a moment ago.
            self.wait("glusterd did not answer")
            rc, out, err = self._runner.run_command(argv)
        if rc in (124, 137):
            raise ClusterError(
                "timeout",
                f"`gluster {' '.join(words[:2])}` did not end within {limit} s.",
                "Check glusterd on all nodes.",
            )
        return parse_reply(out if out.lstrip().startswith("<") else out + err)

    def ask(self, *words: str) -> ET.Element:
        """The reply to a command that must not be refused; one that comes at a busy moment is repeated."""
        while True:
            root = self.reply(*words)
            why = refusal(root)
            if not why:
                return root
            if not any(busy in why for busy in _BUSY):
                raise ClusterError(
                    "gluster_failed",
                    f"`gluster {' '.join(words)}` failed: {why}.",
                    "See /var/log/glusterfs/glusterd.log.",
                )
            self.wait(f"glusterd was not free for `gluster {' '.join(words[:2])}`")

    def volume(self, name: str) -> Volume | None:
        """The volume, or None."""
        root = self.reply("volume", "info", name)
        why = refusal(root)
        if why and "does not exist" not in why:
            raise ClusterError(
                "gluster_failed", f"`gluster volume info` failed: {why}.", "Check glusterd on this node."
            )
        return parse_volume(root)

    def online(self, name: str) -> set[Brick]:
        """The bricks that run; none of a volume that does not. Not to know is an error: bricks are given up by this."""
        root = self.reply("volume", "status", name)
        while any(busy in refusal(root) for busy in _BUSY):
            self.wait("glusterd was not free to tell the state of the volume")
            root = self.reply("volume", "status", name)
        why = refusal(root)
        if why and "is not started" not in why:
            raise ClusterError(
                "gluster_failed",
                f"`gluster volume status {name}` failed: {why}.",
                "See /var/log/glusterfs/glusterd.log, and run again.",
            )
        return parse_online(root)


def check_run(gluster: Gluster, wanted: Wanted, volume: Volume, hosts: t.Collection[str]) -> list[Brick]:
    """Refuse to take the volume away unless all its nodes are in this run; returns the bricks that are lost instead."""
    lost = given_up(wanted, volume)
    if lost:
        online = gluster.online(volume.name)
        lost = [brick for brick in lost if brick not in online]
    check_whole_run(volume, hosts, lost)
    return lost


class VolumeKeeper:
    """Brings the volume, seen from the one node that leads, to the wanted state."""

    def __init__(self, gluster: Gluster, wanted: Wanted, me: str, *, check: bool) -> None:
        check_wanted(wanted)
        self.gluster, self.wanted, self.me, self.check = gluster, wanted, me, check
        self.done: list[str] = []

    def _do(self, steps: t.Iterable[Step]) -> None:
        for step in steps:
            if not self.check:
                self.gluster.ask(*step.argv)
            self.done.append(step.what)

    def _pool(self, nodes: t.Sequence[str]) -> None:
        """Take nodes into the pool, and wait until it counts on them."""
        peers = parse_peers(self.gluster.ask("pool", "list"))
        missing = nodes_to_probe(nodes, peers, self.me)
        self._do(Step(("peer", "probe", node), f"take {node} into the pool") for node in missing)
        while not self.check and unready(nodes, parse_peers(self.gluster.ask("pool", "list")), self.me):
            waiting = unready(nodes, parse_peers(self.gluster.ask("pool", "list")), self.me)
            self.gluster.wait(f"{', '.join(waiting)} did not join the pool")

    def _offline(self, volume: Volume) -> list[Brick]:
        online = self.gluster.online(volume.name)
        return [brick for brick in volume.bricks if brick not in online]

    def start(self) -> list[str]:
        """Create, grow, repair and start the volume; returns what was done, in words."""
        name, tag = self.wanted.name, secrets.token_hex(4)
        volume = self.gluster.volume(name)
        if volume is None:
            self._pool(self.wanted.nodes)
            self._do(plan_create(self.wanted, tag))
            return self.done
        if volume.replica != self.wanted.replica:
            raise ClusterError(
                "volume_conflict",
                f"{name} keeps {volume.replica} copies, but {self.wanted.replica} are wanted.",
                "Set `replica` to what it is, or remove the volume first.",
            )
        if not volume.started:
            self._do([Step(("volume", "start", name), "start the volume")])
        bricks = self._repair(volume) if volume.started or not self.check else list(volume.bricks)
        extra = unlisted(self.wanted, bricks)
        if extra:
            raise ClusterError(
                "volume_conflict",
                f"{', '.join(extra)} holds a brick of {name} but is not in `nodes`.",
                f"List it, or move its data away first: `gluster volume remove-brick {name} … start`, then `commit`.",
            )
        grown = plan_grow(self.wanted, bricks, tag)
        if grown:
            self._pool(self.wanted.nodes)
            self._do(grown)
        self._do(plan_options(self.wanted, volume.options))
        return self.done

    def _repair(self, volume: Volume) -> list[Brick]:
        """Bring bricks back, give up those that are to be forgotten; returns the bricks that remain."""
        offline = self._offline(volume)
        if offline and not self.check:
            self.gluster.ask("volume", "start", volume.name, "force")
            until = time.monotonic() + min(_BRICK_WAIT_S, max(0.0, self.gluster.left()))
            before = offline
            while offline and time.monotonic() < until:
                time.sleep(_POLL_S)
                offline = self._offline(volume)
            back = sorted({brick.node for brick in before} - {brick.node for brick in offline})
            if back:
                self.done.append(f"restart the brick of {', '.join(back)}")
        gone = forgotten(self.wanted, volume, offline)
        if gone:
            self._do(plan_forget(volume.name, gone, self.me))
        still = [brick for brick in offline if brick not in gone]
        if still and self.check:
            self.done.append(f"restart the brick of {', '.join(brick.node for brick in still)}")
        elif still:
            raise offline_error(volume.name, still)
        return [brick for brick in volume.bricks if brick not in gone]

    def _stop(self, volume: Volume) -> None:
        if volume.started:
            self._do([Step(("volume", "stop", volume.name, "force"), "stop the volume")])

    def stop(self, hosts: t.Collection[str]) -> list[str]:
        """Stop the volume; its data stays. ``hosts`` are the nodes of this run."""
        volume = self.gluster.volume(self.wanted.name)
        if volume:
            check_run(self.gluster, self.wanted, volume, hosts)
            self._stop(volume)
        return self.done

    def delete(self, hosts: t.Collection[str]) -> list[str]:
        """Stop and delete the volume, and dissolve the pool if it was the last one. ``hosts`` are the nodes of this run."""
        volume = self.gluster.volume(self.wanted.name)
        if volume:
            lost = check_run(self.gluster, self.wanted, volume, hosts)
            # gluster deletes no volume while a peer is down, and gives no volume's last brick up.
            if 0 < len(lost) < len(volume.bricks):
                self._do(plan_forget(volume.name, lost, self.me))
            self._stop(volume)
            self._do([Step(("volume", "delete", volume.name), "delete the volume")])
        others = set(parse_names(self.gluster.ask("volume", "list"))) - {self.wanted.name}
        peers = [] if others else parse_peers(self.gluster.ask("pool", "list"))
        names = [peer.names[0] for peer in peers if peer.names and "localhost" not in peer.names]
        self._do(Step(("peer", "detach", peer, "force"), f"forget {peer}") for peer in names)
        return self.done


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


def mount(gluster: Gluster, runner: Runner, volume: str, path: str, options: str, *, check: bool) -> list[str]:
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
            _umount(runner, path, "-l")
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
        rc, _out, err = runner.run_command(["timeout", "-k", "5", "60", *argv])
        if rc == 0 and current_mount(path) and not is_stale(path):
            return done
        if current_mount(path):
            _umount(runner, path, "-l")
        # Bricks may still be starting.
        gluster.wait(f"{volume} could not be mounted at {path} ({err.strip().splitlines()[-1:] or rc})")


def set_mode(path: str, mode: str, *, check: bool) -> list[str]:
    """Give the root of the mounted volume its permissions."""
    if not os.path.ismount(path) or stat.S_IMODE(os.stat(path).st_mode) == int(mode, 8):
        return []
    if not check:
        os.chmod(path, int(mode, 8))
    return [f"set the mode of {path} to {mode}"]


def _umount(runner: Runner, path: str, *flags: str) -> None:
    rc, _out, err = runner.run_command(["timeout", "-k", "5", "60", "umount", *flags, path])
    if rc != 0:
        raise ClusterError(
            "in_use",
            f"{path} cannot be unmounted: {err.strip()[:300].rstrip('.')}.",
            f"End what uses it: `fuser -vm {path}`.",
        )


def unmount(runner: Runner, volume: str, path: str, *, check: bool) -> list[str]:
    """Unmount the volume if it is mounted."""
    found = current_mount(path)
    if not found or not is_ours(found, volume):
        return []
    if not check:
        _umount(runner, path, *(["-l"] if is_stale(path) else []))
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


def brick_directories(bricks: str, volume: str) -> list[str]:
    """Directories that were made as bricks of the volume on this node, in use or left over."""
    try:
        names = sorted(os.listdir(bricks))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [os.path.join(bricks, name) for name in names if re.fullmatch(rf"{re.escape(volume)}-[0-9a-f]{{8}}", name)]


def holds_data(brick: str) -> bool:
    """Whether anybody's file or directory lies on a brick; gluster's own are hidden ones."""
    return any(name not in (".glusterfs", ".trashcan") for name in os.listdir(brick))


def clean(bricks: str, volume: str, path: str, *, check: bool) -> list[str]:
    """Remove this node's bricks and the directories that were made for them and for the mount."""
    done = []
    for brick in brick_directories(bricks, volume):
        done.append(f"delete {brick}")
        if not check:
            shutil.rmtree(brick)
    for directory in (bricks, path):
        if os.path.isdir(directory) and not os.path.ismount(directory) and not os.listdir(directory):
            done.append(f"remove the empty directory {directory}")
            if not check:
                os.rmdir(directory)
    return done


__all__ = [
    "Gluster",
    "Runner",
    "VolumeKeeper",
    "brick_directories",
    "check_run",
    "clean",
    "collect_nonces",
    "current_mount",
    "disconnected",
    "holds_data",
    "is_stale",
    "mount",
    "set_mode",
    "unmount",
    "wait_connected",
    "write_nonce",
]
