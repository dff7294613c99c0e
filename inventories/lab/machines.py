#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible inventory of the container lab: the machines that molecule/cluster/create.yml left in .cache/lab (or in LAB_DIR).

How to reach them is spelled out here and not in group_vars, because testinfra does not template what it reads.

LAB_USER is who logs in: root by default, or azureuser, who becomes root.

LAB_SCENARIO_NODES, names joined by commas, says which nodes are in the group ``scenario_nodes``: those that a scenario of
molecule needs for itself while another scenario runs on others. By default it is all of them.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
STATE = pathlib.Path(os.environ.get("LAB_DIR") or ROOT / ".cache" / "lab").absolute() / "machines.json"


def inventory(lab: dict[str, dict[str, str]], scenario_nodes: str = "", user: str = "root") -> dict[str, object]:
    """The inventory of a lab that is up. SystemExit where it lacks a node of the scenario: a play without hosts succeeds."""
    machines = lab["machines"]
    nodes = [name for name in machines if name != "blob"]
    chosen = scenario_nodes.split(",") if scenario_nodes and machines else nodes
    if not set(chosen) <= set(nodes):
        sys.exit(
            f"LAB_SCENARIO_NODES is {scenario_nodes}, but the lab's nodes are {', '.join(nodes)}. Set it to some of them."
        )
    connection = {
        "ansible_user": user,
        **({} if user == "root" else {"ansible_become": True}),
        "ansible_port": "22",  # molecule login asks for it
        "ansible_ssh_private_key_file": str(STATE.parent / "id_ed25519"),
        "ansible_ssh_common_args": (
            f'-o UserKnownHostsFile="{STATE.parent / "known_hosts"}" -o GlobalKnownHostsFile=/dev/null '
            "-o StrictHostKeyChecking=yes -o IdentitiesOnly=yes"
        ),
    }
    return {
        "gpu_nodes": {"hosts": nodes},
        "scenario_nodes": {"hosts": chosen},
        "blob_servers": {"hosts": [name for name in machines if name == "blob"]},
        "_meta": {"hostvars": {name: {"ansible_host": address, **connection} for name, address in machines.items()}},
    }


def main() -> int:
    try:
        lab = json.loads(STATE.read_text())
    except FileNotFoundError:
        print("The lab is down, its inventory is empty. Bring it up with bin/demo --lab.", file=sys.stderr)
        lab = {"machines": {}}
    nodes, user = os.environ.get("LAB_SCENARIO_NODES", ""), os.environ.get("LAB_USER") or "root"
    print(json.dumps(inventory(lab, nodes, user)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
