#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Show one file system at /srv/beeond in several containers, each named by the id of a process in it.

It is a tmpfs that is called as BeeOND calls its mount: what the double mounts is a part of it, and keeps that name. Another file system,
such as the lab's GlusterFS, would show its own. Prints "shared", or "unchanged" where all of them see the same one already.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import typing as t
from pathlib import Path

PLACE = "/srv/beeond"
SOURCE = "beegfs_ondemand"
# Of <linux/mount.h>, <sched.h> and <fcntl.h>; the numbers of open_tree and move_mount are those of all machines but Alpha.
OPEN_TREE, MOVE_MOUNT = 428, 429
OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH = 1, 4
CLONE_NEWNS, AT_FDCWD = 0x20000, -100

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def at_the_place(pid: str) -> list[list[str]]:
    """What a container has mounted there: words of proc(5)'s mountinfo. It cannot be read in the container, which lacks this process."""
    lines = Path(f"/proc/{pid}/mountinfo").read_text(encoding="utf-8").splitlines()
    return [words for words in map(str.split, lines) if words[4] == PLACE]


def seen(pid: str) -> str:
    """The device of ours that a container sees at the place, "" for none."""
    return next((words[2] for words in at_the_place(pid) if SOURCE in words), "")


def attach(tree: int, pid: str) -> None:
    """Put a mount that is nowhere yet into a container. A process of its own does that: it stays there."""
    others = len(at_the_place(pid))
    child = os.fork()
    if child:
        if os.waitpid(child, 0)[1]:
            raise SystemExit(f"It cannot be mounted for process {pid}.")
        return
    try:
        space = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
        check(libc.setns(space, CLONE_NEWNS), "setns")
        os.makedirs(PLACE, exist_ok=True)
        for _each in range(others):
            subprocess.run(["umount", "--lazy", PLACE], check=True)
        check(libc.syscall(MOVE_MOUNT, tree, b"", AT_FDCWD, PLACE.encode(), MOVE_MOUNT_F_EMPTY_PATH), "move_mount")
    except (OSError, subprocess.CalledProcessError) as exc:
        print(exc, file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def main(pids: t.Sequence[str]) -> int:
    devices = {seen(pid) for pid in pids}
    if len(devices) == 1 and "" not in devices:
        print("unchanged")
        return 0
    # The machine itself never sees it.
    check(libc.unshare(CLONE_NEWNS), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    place = tempfile.mkdtemp(prefix="beeond-")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", SOURCE, place], check=True)
    for pid in pids:
        tree = check(libc.syscall(OPEN_TREE, AT_FDCWD, place.encode(), OPEN_TREE_CLONE), "open_tree")
        attach(tree, pid)
        os.close(tree)
    subprocess.run(["umount", place], check=True)
    os.rmdir(place)
    print("shared")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
