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

import contextlib
import glob
import os
import socket
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.home import (
    FILE_MODES,
    SshHome,
    public_key_of,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.plan import (
    bare_key,
    blocks_digest,
    is_loopback,
    parse_addresses,
    trusted_key,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError


def host_keys(directory: str) -> list[str]:
    """sshd's public keys. DSA is left out: no ssh of today accepts it."""
    keys = []
    for path in sorted(glob.glob(os.path.join(glob.escape(directory), "ssh_host_*_key.pub"))):
        with open(path, encoding="utf-8") as handle:
            key = bare_key(handle.readline())
        if key and not key.startswith("ssh-dss "):
            keys.append(key)
    if not keys:
        raise ClusterError(
            "no_host_keys", f"There is no ssh_host_*_key.pub in {directory}.", "Install sshd, or run `ssh-keygen -A`."
        )
    return keys


def is_bridge(interface: str) -> bool:
    """Whether an interface is a software bridge: those of container engines have the same address on every node."""
    return os.path.isdir(f"/sys/class/net/{interface}/bridge")


def names_of(module: AnsibleModule) -> list[str]:
    """Everything that this node is called."""
    hostname = socket.gethostname()
    names = {hostname, hostname.split(".")[0], *module.params["extra_names"]}
    ip = module.get_bin_path("ip")
    if ip:
        _rc, out, _err = module.run_command([ip, "-o", "addr", "show", "scope", "global"])
        names.update(address for interface, address in parse_addresses(out) if not is_bridge(interface))
    else:
        with contextlib.suppress(OSError):
            names.update(socket.gethostbyname_ex(hostname)[2])
    return sorted(name for name in names if name and not is_loopback(name))


def make_key(home: SshHome, module: AnsibleModule) -> None:
    """Make a new key pair beside the old one and put it in place: a run that dies leaves the old pair or the new."""
    home.make()
    fresh = home.key_path + ".new"
    for path in (fresh, fresh + ".pub"):
        home.write(path, None, 0)
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", home.key_comment, "-f", fresh]
    rc, _out, err = module.run_command(argv)
    if rc != 0:
        raise ClusterError("keygen_failed", f"ssh-keygen failed: {err.strip()}", "Install the OpenSSH client.")
    for suffix in ("", ".pub"):
        os.chown(fresh + suffix, home.uid, home.gid)
        os.replace(fresh + suffix, home.key_path + suffix)


def identify(module: AnsibleModule) -> dict[str, t.Any]:
    """Make the key where it belongs, and report."""
    params = module.params
    if not (module.get_bin_path("ssh") and module.get_bin_path("ssh-keygen")):
        raise ClusterError(
            "no_ssh", "This node has no ssh client.", "Run the role's install entry point, or install OpenSSH's client."
        )
    home = SshHome.of(params["user"], params["cluster"])
    blocks = {name: home.lines(name) for name in FILE_MODES}
    public_key = public_key_of(home.key_path, module)
    changed = params["make_key"] and (params["renew_key"] or not (public_key or blocks["authorized_keys"]))
    if changed and module.check_mode:
        public_key = ""
    elif changed:
        make_key(home, module)
        public_key = public_key_of(home.key_path, module)
    node = {
        "name": params["name"],
        "names": names_of(module),
        "host_keys": host_keys(params["host_key_directory"]),
        "public_key": public_key,
        "trusted_key": trusted_key(blocks["authorized_keys"]),
        "blocks": blocks_digest(blocks),
        "first": params["make_key"],
        "made_key": changed or home.made_key(public_key),
    }
    diff = {"before": "", "after": f"{home.key_path}: a new ed25519 key\n"} if changed else {"before": "", "after": ""}
    result = {"changed": changed, "node": node, "diff": diff}
    if params["export_key"] and public_key:
        result["private_key"] = home.read(home.key_path)
    return result


def main() -> None:
    """Make the key where it belongs, and report."""
    module = AnsibleModule(
        argument_spec={
            "cluster": {"type": "str", "default": "gpu_cluster"},
            "user": {"type": "str", "default": "root"},
            "name": {"type": "str", "required": True},
            "extra_names": {"type": "list", "elements": "str", "default": []},
            "make_key": {"type": "bool", "default": False},
            "renew_key": {"type": "bool", "default": False},
            "export_key": {"type": "bool", "default": False},
            "host_key_directory": {"type": "path", "default": "/etc/ssh"},
        },
        supports_check_mode=True,
    )
    try:
        result = identify(module)
    except ClusterError as exc:
        module.fail_json(**exc.as_result())
    module.exit_json(**result)


if __name__ == "__main__":
    main()
