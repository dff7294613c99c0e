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

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.apply import carry_out
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.home import SshHome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.plan import plan_trust
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.read import read_home
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.request import TRUST_SPEC, TrustRequest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import failing


def apply_trust(request: TrustRequest, module: AnsibleModule) -> dict[str, t.Any]:
    """Bring the three files, and the key where it was handed over, to the wanted state."""
    home = SshHome.of(request.user, request.lines.cluster)
    plan = plan_trust(request, read_home(request, home, module), home, check=module.check_mode)
    if not module.check_mode:
        carry_out(plan, home)
    told = {"public_key": plan.public_key, "nodes_known": plan.nodes_known} if request.present else {}
    return {"changed": bool(plan.diff), "diff": list(plan.diff), **told}


def main() -> None:
    """Bring the trust to the wanted state."""
    module = AnsibleModule(argument_spec=TRUST_SPEC, supports_check_mode=True)
    with failing(module):
        result = apply_trust(TrustRequest.of(module.params), module)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
