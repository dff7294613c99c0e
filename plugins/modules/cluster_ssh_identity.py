#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the cluster's key on its first node and tell who this node is."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cluster_ssh_identity
short_description: Make the cluster's ssh key on its first node and report a node's names and host keys
version_added: 0.1.0
description:
  - Reports what the other nodes need to know of this one, over a connection that is already authenticated. Nothing
    is asked over the network,
    so nothing has to be trusted at first sight.
  - On the node that is to hold it, makes the cluster's ed25519 key if there is none. The private key never leaves
    the node through this module.
author:
  - The hpcai.gpu_cluster developers (@hpcai)
options:
  name:
    description: The node's name in the inventory.
    type: str
    required: true
  extra_names:
    description: More names and addresses that the node is reached by.
    type: list
    elements: str
    default: []
  make_key:
    description:
      - Whether this node holds the cluster's key. A node that already trusts another key of the cluster makes none,
        so that a run
        with a limit does not split the cluster.
    type: bool
    default: false
  renew_key:
    description: Whether to make a new key even though there is one.
    type: bool
    default: false
  export_key:
    description:
      - Whether to return the private key, for a cluster whose nodes all hold it. Use it only with C(no_log) on the
        task.
    type: bool
    default: false
  host_key_directory:
    description: Where sshd's C(ssh_host_*_key.pub) lie.
    type: path
    default: /etc/ssh
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.cluster_ssh
attributes:
  check_mode:
    support: full
    details: Reports that a key would be made. Its public half is unknown then.
  diff_mode:
    support: full
    details: Names the key file.
  idempotent:
    support: partial
    details: A second run changes nothing unless O(renew_key) is true.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
      - hpcai.gpu_cluster.cluster_ssh
"""

EXAMPLES = r"""
- name: Configure | Learn who this node is
  hpcai.gpu_cluster.cluster_ssh_identity:
    name: "{{ inventory_hostname }}"
    make_key: "{{ inventory_hostname == groups['gpu_nodes'][0] }}"
  register: __identity
"""

RETURN = r"""
node:
  description: What M(hpcai.gpu_cluster.cluster_ssh_trust) wants to know of each node.
  returned: success
  type: dict
  contains:
    name:
      description: The node's name in the inventory.
      type: str
      returned: always
    names:
      description: Host name, short name, addresses and O(extra_names).
      type: list
      elements: str
      returned: always
    host_keys:
      description: Type and base64 of sshd's public keys.
      type: list
      elements: str
      returned: always
    public_key:
      description: The public half of the cluster's key, on nodes that hold the private one.
      type: str
      returned: always
    trusted_key:
      description: The cluster's key that this node lets in.
      type: str
      returned: always
    blocks:
      description: Digest of all our lines in this node's files, by which M(hpcai.gpu_cluster.cluster_ssh_check) sees
        whether any are missing.
      type: str
      returned: always
    first:
      description: Whether this is the node that is to hold the cluster's key, by O(make_key).
      type: bool
      returned: always
    made_key:
      description: Whether the key that it holds was made by these modules, which its C(.pub) says. In check mode also
        where one would be made.
      type: bool
      returned: always
private_key:
  description: The private key.
  returned: when O(export_key) is true and the node holds it
  type: str
"""

import dataclasses
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.apply import make_key
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.home import SshHome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.model import Node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.plan import makes_key
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.read import (
    made_in_part,
    public_key_of,
    read_identity,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.request import (
    IDENTITY_SPEC,
    IdentityRequest,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError, failing


def identify(request: IdentityRequest, module: AnsibleModule) -> dict[str, t.Any]:
    """Make the key where it belongs, and report."""
    if not (module.get_bin_path("ssh") and module.get_bin_path("ssh-keygen")):
        raise ClusterError(
            "no_ssh", "This node has no ssh client.", "Run the role's install entry point, or install OpenSSH's client."
        )
    home = SshHome.of(request.user, request.cluster)
    found = read_identity(request, home, module)
    public_key = found.public_key
    makes = makes_key(request, found) or (request.make_key and made_in_part(home, module))
    if makes and module.check_mode:
        public_key = ""
    elif makes:
        make_key(home, module)
        public_key = public_key_of(home.key_path, module)
    told = dataclasses.asdict(found)
    told.update(public_key=public_key, made_key=makes or found.made_key)
    node = Node(name=request.name, first=request.make_key, **told)
    diff = {"before": "", "after": f"{home.key_path}: a new ed25519 key\n" if makes else ""}
    result = {"changed": makes, "node": dataclasses.asdict(node), "diff": diff}
    if request.export_key and public_key:
        result["private_key"] = home.read(home.key_path)
    return result


def main() -> None:
    """Make the key where it belongs, and report."""
    module = AnsibleModule(argument_spec=IDENTITY_SPEC, supports_check_mode=True)
    with failing(module):
        result = identify(IdentityRequest.of(module.params), module)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
