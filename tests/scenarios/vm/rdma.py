# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role mofed tells its modules on a node of the lab, and stacks in MLNX_OFED's layout for them."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import typing as t

from outcome import changed
from own_machine import NODE

if t.TYPE_CHECKING:
    from conftest import VmLab

ROOT = pathlib.Path(__file__).resolve().parents[3]
OFED, NEWER_OFED = "24.10-3.2.5.0", "24.10-4.1.4.0"
# The role's defaults. Where they are not, a test that calls the module after the role sees a change.
SETTINGS: dict[str, t.Any] = {
    "persistent_names": True,
    "limits": {"memlock": "unlimited", "nofile": "1048576", "stack": "unlimited"},
    "service_limits": {"memlock": "unlimited", "nofile": "1048576"},
    "sysctl": {
        "vm.zone_reclaim_mode": "1",
        "net.ipv4.neigh.default.gc_thresh1": "4096",
        "net.ipv4.neigh.default.gc_thresh2": "8192",
        "net.ipv4.neigh.default.gc_thresh3": "16384",
        "sunrpc.tcp_max_slot_table_entries": "128",
    },
    "sunrpc_slots": 128,
    "nfs_read_ahead_kib": 15380,
    "waagent_rdma": True,
}


def netdev(lab: VmLab) -> str:
    """The node's interface in the fabric."""
    address = lab.lab["nodes"][NODE]["fabric_address"]
    return lab.run(NODE, "ip", "-4", "-o", "address", "show", "to", address).split()[1]


def remove(lab: VmLab, node: str = NODE, **options: t.Any) -> dict[str, t.Any]:
    """Take all that mofed made away, with the module that the role would call."""
    return lab.module(
        "hpcai.gpu_cluster.rdma_stack", {**SETTINGS, "rxe_netdev": netdev(lab), "state": "absent", **options}, node=node
    )


def removed(lab: VmLab, node: str = NODE, **options: t.Any) -> bool:
    """``remove``, which must succeed; returns whether there was something."""
    return changed(remove(lab, node, **options))


class Archives(t.NamedTuple):
    """MLNX_OFED's archives by version on the controller, and their sha256 as the role wants them."""

    files: dict[str, pathlib.Path]
    sha256: dict[str, str]


def archives(directory: pathlib.Path, release: str, kernel: str, *modules: pathlib.Path) -> Archives:
    """Make archives for a kernel of a release of Debian, with its own modules or with those of the image."""
    maker = ROOT / "molecule/mofed/files/vendor.py"
    words = [sys.executable, str(maker), str(directory), f"debian{release}", kernel, *map(str, modules)]
    about = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return Archives({version: directory / about["files"][version] for version in (OFED, NEWER_OFED)}, about["sha256"])


__all__ = ["NEWER_OFED", "OFED", "SETTINGS", "Archives", "archives", "netdev", "remove", "removed"]
