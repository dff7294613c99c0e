#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Log in from this node to others, all at once, and say who cannot be reached and why."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cluster_ssh_check
short_description: Prove that this node can log in to others without a password
version_added: 0.1.0
description:
  - Logs in to all O(hosts) in parallel, without asking anything and without accepting any unknown host key, and
    fails with the name of
    every node that it could not log in to, and why.
  - With O(nodes) it first looks whether any of them lacks lines of the trust. Where one does, it logs in to nobody and
    returns who. It also warns of private keys on other nodes than the first that
    M(hpcai.gpu_cluster.cluster_ssh_trust) would not remove.
author:
  - The hpcai.gpu_cluster developers (@hpcai)
options:
  hosts:
    description: Names or addresses to log in to.
    type: list
    elements: str
    required: true
  nodes:
    description:
      - The C(node) of each M(hpcai.gpu_cluster.cluster_ssh_identity), in the order of the cluster. Their lines are
        compared with what M(hpcai.gpu_cluster.cluster_ssh_trust) would write with the same O(key_options),
        O(forget_unseen) and O(port).
    type: list
    elements: dict
  others:
    description: The C(node) of each node that is to let the cluster in without being one of it, to compare them, too.
    type: list
    elements: dict
    default: []
  key_options:
    description: Options of the key in C(authorized_keys), to compare O(nodes).
    type: list
    elements: str
    default: [restrict, pty]
  key_on_all:
    description: Whether every node is to hold the private key, or only the first one, to compare O(nodes).
    type: bool
    default: false
  forget_unseen:
    description: Whether C(known_hosts) is to hold nobody but O(nodes), to compare them.
    type: bool
    default: false
  timeout_s:
    description: How long one login may take, in seconds.
    type: int
    default: 15
  parallel:
    description: How many logins are under way at the same time.
    type: int
    default: 64
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.attributes.read_only
  - hpcai.gpu_cluster.cluster_ssh
  - hpcai.gpu_cluster.cluster_ssh.port
attributes:
  action_group:
    membership:
      - hpcai.gpu_cluster.all
      - hpcai.gpu_cluster.cluster_ssh
"""

EXAMPLES = r"""
- name: Verify | Log in to every node from the first
  hpcai.gpu_cluster.cluster_ssh_check:
    hosts: "{{ ansible_play_hosts }}"
  run_once: true

- name: Configure | Compare all nodes, and log in to each of them where none lacks anything
  hpcai.gpu_cluster.cluster_ssh_check:
    hosts: "{{ ansible_play_hosts }}"
    nodes: "{{ __identities | map(attribute='node') }}"
  register: __found
  run_once: true
"""

RETURN = r"""
outdated:
  description: Nodes that lack something, as far as this one can know. With any, nobody was logged in to.
  returned: when O(nodes) is given
  type: list
  elements: str
nodes:
  description: O(nodes) as they were given, for M(hpcai.gpu_cluster.cluster_ssh_trust).
  returned: when O(nodes) is given and some are outdated
  type: list
  elements: dict
reached:
  description: How many nodes let this one in.
  returned: always
  type: int
failures:
  description: Who did not, and why.
  returned: always
  type: list
  elements: dict
  sample: [{host: gpu-3, reason: it does not accept the cluster's key}]
"""

import dataclasses
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.home import SshHome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.request import CHECK_SPEC, CheckRequest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.verify import lacking, log_in
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import failing


def check(request: CheckRequest, warn: t.Callable[[str], None]) -> dict[str, t.Any]:
    """Look at the nodes if there are any, and log in everywhere; fails with all that went wrong."""
    home = SshHome.of(request.user, request.lines.cluster)
    if request.nodes is None:
        return log_in(request, home)
    names = lacking(request, home, warn)
    if names:
        nodes = [dataclasses.asdict(node) for node in request.nodes]
        return {"changed": False, "outdated": names, "nodes": nodes, "reached": 0, "failures": []}
    return {**log_in(request, home), "outdated": []}


def main() -> None:
    """Log in everywhere, and fail with all that went wrong."""
    module = AnsibleModule(argument_spec=CHECK_SPEC, supports_check_mode=True)
    with failing(module):
        result = check(CheckRequest.of(module.params), module.warn)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
