#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible inventory of the VM lab: the machines that tests/lab/vm/machine.py left in .cache/vm (or in LAB_VM_DIR).

LAB_VM_NODE=vm-2 leaves the others out, for whoever works on one machine while somebody else works on another.
How to reach them is spelled out here and not in group_vars, because testinfra does not template what it reads.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
STATE = pathlib.Path(os.environ.get("LAB_VM_DIR") or ROOT / ".cache" / "vm").absolute() / "machines.json"


def _chosen(nodes: dict[str, t.Any]) -> dict[str, t.Any]:
    """All nodes, or the one that LAB_VM_NODE names; none of a lab that is down."""
    name = os.environ.get("LAB_VM_NODE", "")
    if not name or not nodes:
        return nodes
    if name not in nodes:
        raise SystemExit(f"LAB_VM_NODE: There is no node {name}; there are {', '.join(nodes)}")
    return {name: nodes[name]}


def inventory(lab: dict[str, t.Any]) -> dict[str, object]:
    """The inventory of a lab that is up."""
    connection = {
        "ansible_host": "127.0.0.1",
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(STATE.parent / "id_ed25519"),
        "ansible_ssh_common_args": (
            f'-o UserKnownHostsFile="{STATE.parent / "known_hosts"}" -o GlobalKnownHostsFile=/dev/null '
            "-o StrictHostKeyChecking=yes -o IdentitiesOnly=yes"
        ),
        # Under emulation a login takes seconds.
        "ansible_ssh_timeout": 120,
        "ansible_control_path_dir": f"~/.ansible/cp-{lab.get('name')}",
    }
    hostvars = {
        name: {
            **connection,
            "ansible_port": node["ssh_port"],
            "lab_fabric_address": node["fabric_address"],
            "lab_gpus": node["gpus"],
        }
        for name, node in _chosen(lab["nodes"]).items()
    }
    return {"gpu_nodes": {"hosts": list(hostvars)}, "_meta": {"hostvars": hostvars}}


def main() -> int:
    try:
        lab = json.loads(STATE.read_text())
    except FileNotFoundError:
        print("The lab is down, its inventory is empty. Bring it up with bin/demo --vm.", file=sys.stderr)
        lab = {"nodes": {}}
    print(json.dumps(inventory(lab)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
