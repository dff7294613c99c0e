#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Let the nodes of a cluster log in to each other, or take that away again."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cluster_ssh_trust
short_description: Let the nodes of a cluster log in to each other by key
version_added: 0.1.0
description:
  - Writes one marked block each to C(authorized_keys), C(known_hosts) and, where the private key lies, C(config) of
    the user's C(~/.ssh).
    Everything else in these files stays, byte for byte, now and when the block is taken away.
  - Nodes that are not among O(nodes) keep their lines of C(known_hosts), so that a run with a limit or with a dead
    node forgets nobody.
author:
  - The hpcai.gpu_cluster developers (@hpcai)
options:
  state:
    description: Whether the trust exists. V(absent) removes our lines, the key of this cluster, and what we had to
      make for them.
    type: str
    choices: [present, absent]
    default: present
  nodes:
    description: The C(node) of each M(hpcai.gpu_cluster.cluster_ssh_identity), in the order of the cluster.
    type: list
    elements: dict
    default: []
  key_options:
    description: Options of the key in C(authorized_keys).
    type: list
    elements: str
    default: [restrict, pty]
  private_key:
    description: The private key, for nodes that are to hold it too. Not given, a node keeps what it has.
    type: str
  drop_key:
    description:
      - Whether this node is to hold no private key. One that these modules made is removed if it is not the one of
        the cluster's first node, which has to be among O(nodes). Has no effect with O(private_key).
      - A copy of the first node's key stays, because it may be that node's own file, in a home that nodes share.
    type: bool
    default: false
  forget_unseen:
    description: Whether to drop the C(known_hosts) lines of nodes that are not among O(nodes).
    type: bool
    default: false
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.cluster_ssh
  - hpcai.gpu_cluster.cluster_ssh.port
attributes:
  check_mode:
    support: full
    details: Reports the changes and makes none.
  diff_mode:
    support: full
    details: Shows the changed files, never the private key.
  idempotent:
    support: full
    details: A second run changes nothing.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
      - hpcai.gpu_cluster.cluster_ssh
"""

EXAMPLES = r"""
- name: Configure | Trust the other nodes
  hpcai.gpu_cluster.cluster_ssh_trust:
    nodes: "{{ __nodes }}"
"""

RETURN = r"""
public_key:
  description: The cluster's public key.
  returned: when O(state=present)
  type: str
nodes_known:
  description: How many lines of C(known_hosts) are ours.
  returned: when O(state=present)
  type: int
"""

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.home import (
    FILE_MODES,
    SshHome,
    public_key_of,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.plan import (
    Node,
    cluster_key,
    is_revoked,
    set_block,
    wanted_blocks,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError


def wanted_lines(module: AnsibleModule, home: SshHome, holds_key: bool) -> tuple[str, dict[str, list[str]]]:
    """The cluster's public key, and our lines of each file."""
    nodes = [Node.from_result(node) for node in module.params["nodes"]]
    key = cluster_key(nodes)
    if not key and not module.check_mode:
        raise ClusterError(
            "no_key",
            "None of the nodes of this run has or knows the cluster's key.",
            "Run again with the first node of the cluster in the limit.",
        )
    shown = key or "ssh-ed25519 (made by the real run)"
    existing = home.lines("known_hosts")
    return key, wanted_blocks(nodes, shown, existing, home.key_path, module.params, holds_key=holds_key)


def private_key_change(module: AnsibleModule, home: SshHome, nodes_key: str) -> bool:
    """Whether the private key that was handed over has to be written; a wrong one is refused."""
    if not module.params["private_key"]:
        return False
    if public_key_of(home.key_path, module) == nodes_key:
        return False
    if not module.check_mode:
        home.make()
        home.write(home.key_path, module.params["private_key"].rstrip("\n") + "\n", 0o600)
        home.write(home.key_path + ".pub", f"{nodes_key} {home.key_comment}\n", 0o644)
    return True


def drops_key(module: AnsibleModule, home: SshHome) -> bool:
    """Whether the private key of this node goes: never the cluster's, and never one that somebody else put there."""
    if module.params["private_key"] or not module.params["drop_key"]:
        return False
    nodes = [Node.from_result(node) for node in module.params["nodes"]]
    public_key = public_key_of(home.key_path, module)
    return is_revoked(public_key, nodes) and home.made_key(public_key)


def apply_trust(module: AnsibleModule) -> dict[str, t.Any]:
    """Bring the three files, and the key where it was handed over, to the wanted state."""
    home = SshHome.of(module.params["user"], module.params["cluster"])
    present = module.params["state"] == "present"
    drops = not present
    diffs: list[dict[str, str]] = []
    extra: dict[str, t.Any] = {}
    lines: dict[str, list[str]] = {name: [] for name in FILE_MODES}
    if present:
        drops = drops_key(module, home)
        holds = not drops and (bool(module.params["private_key"]) or os.path.exists(home.key_path))
        key, lines = wanted_lines(module, home, holds)
        extra = {"public_key": key, "nodes_known": len(lines["known_hosts"])}
        if private_key_change(module, home, key):
            diffs.append({"before": "", "after": f"{home.key_path}: the cluster's private key\n"})
    for name, mode in FILE_MODES.items():
        path = home.file(name)
        before = home.read(path)
        after = set_block(before, home.cluster, lines[name])
        if after != before:
            diffs.append({"before_header": path, "after_header": path, "before": before or "", "after": after or ""})
            if not module.check_mode:
                home.make()
                home.write(path, after, mode)
    if drops:
        diffs += remove_key(module, home)
    if not present and not module.check_mode:
        home.leave()
    return {"changed": bool(diffs), "diff": diffs, **extra}


def remove_key(module: AnsibleModule, home: SshHome) -> list[dict[str, str]]:
    """Remove the cluster's key pair."""
    diffs = []
    for path in (home.key_path, home.key_path + ".pub"):
        if os.path.lexists(path):
            diffs.append({"before": f"{path}\n", "after": ""})
            if not module.check_mode:
                home.write(path, None, 0)
    return diffs


def main() -> None:
    """Bring the trust to the wanted state."""
    module = AnsibleModule(
        argument_spec={
            "cluster": {"type": "str", "default": "gpu_cluster"},
            "user": {"type": "str", "default": "root"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "nodes": {"type": "list", "elements": "dict", "default": []},
            "key_options": {"type": "list", "elements": "str", "default": ["restrict", "pty"], "no_log": False},
            "private_key": {"type": "str", "no_log": True},
            "drop_key": {"type": "bool", "default": False, "no_log": False},
            "forget_unseen": {"type": "bool", "default": False},
            "port": {"type": "int", "default": 22},
        },
        supports_check_mode=True,
    )
    try:
        result = apply_trust(module)
    except ClusterError as exc:
        module.fail_json(**exc.as_result())
    module.exit_json(**result)


if __name__ == "__main__":
    main()
