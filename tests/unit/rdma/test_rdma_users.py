# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who uses RDMA now, read from directories that play /proc and /sys, and from this machine's own."""

from __future__ import annotations

import os
import pathlib

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import users


def write(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def process(root: pathlib.Path, pid: int, name: str, *handles: str) -> None:
    write(root / f"proc/{pid}/comm", f"{name}\n")
    (root / f"proc/{pid}/fd").mkdir()
    for number, target in enumerate(handles):
        os.symlink(target, root / f"proc/{pid}/fd/{number}")


def mount(*rest: str) -> str:
    return "".join(f"36 25 0:{30 + number} / {line}\n" for number, line in enumerate(rest))


def test_jobs_hold_a_device_open(tmp_path: pathlib.Path) -> None:
    process(tmp_path, 12, "xhpl", "/dev/null", "/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1")
    process(tmp_path, 7, "nfsd", "/dev/infiniband/rdma_cm")
    process(tmp_path, 3, "opensm", "/dev/infiniband/umad0")
    process(tmp_path, 4, "bash", "/dev/pts/0", "socket:[1]")
    assert users.processes(tmp_path) == ["nfsd (pid 7)", "xhpl (pid 12)"]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("/scratch rw - lustre 10.0.0.1@o2ib:/fs rw,flock", ["lustre mounted on /scratch"]),
        ("/scratch rw - lustre 10.0.0.1@tcp:/fs rw,flock", []),
        ("/mnt/nfs rw - nfs4 a:/x rw,vers=4.2,proto=rdma,port=20049", ["nfs4 mounted on /mnt/nfs"]),
        ("/mnt/nfs rw shared:5 - nfs4 a:/x rw,vers=4.2,proto=tcp", []),
        ("/mnt/beeond rw - beegfs_ondemand beegfs_ondemand rw", ["beegfs_ondemand mounted on /mnt/beeond"]),
        ("/ rw - ext4 /dev/vda1 rw", []),
    ],
)
def test_file_systems_over_rdma(tmp_path: pathlib.Path, line: str, found: list[str]) -> None:
    write(tmp_path / "proc/self/mountinfo", mount(line))
    assert users.mounts(tmp_path) == found


@pytest.mark.parametrize(
    ("connections", "found"), [("RDMA: 2 (10.0.0.1:8003)", 1), ("TCP: 2 (10.0.0.1:8003)", 0), ("<none>", 0)]
)
def test_beegfs_tells_how_it_is_connected(tmp_path: pathlib.Path, connections: str, found: int) -> None:
    write(tmp_path / "proc/self/mountinfo", mount("/mnt/beegfs rw - beegfs_nodev beegfs_nodev rw"))
    write(tmp_path / "proc/fs/beegfs/1A-2B/storage_nodes", f"gpu-1 [ID: 1]\n   Connections: {connections};\n")
    assert len(users.mounts(tmp_path)) == found


def test_remote_disks(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "sys/class/nvme/nvme0/transport", "pcie\n")
    write(tmp_path / "sys/class/nvme/nvme1/transport", "rdma\n")
    assert users.remote_disks(tmp_path) == ["remote disk nvme1"]


def test_a_long_list_is_cut(tmp_path: pathlib.Path) -> None:
    for pid in range(100, 130):
        process(tmp_path, pid, "rank", "/dev/infiniband/uverbs0")
    assert len(users.users(tmp_path)) == 11
    assert users.users(tmp_path)[-1] == "and 20 more"


def test_this_machine_can_be_read(tmp_path: pathlib.Path) -> None:
    """A real /proc, with processes that end while they are looked at and others that may not be looked at."""
    assert isinstance(users.users(), list)
