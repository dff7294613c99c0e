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

- name: Configure | See who lacks something, and log in to every node where nobody does
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

import os
import pwd
import subprocess
import typing as t
from concurrent.futures import ThreadPoolExecutor

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.home import SshHome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.plan import (
    Node,
    outdated,
    surplus_keys,
    why,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError


def login_argv(host: str, user: str, port: int, timeout_s: int) -> list[str]:
    """The command that logs in to one node; as another user it goes through runuser."""
    prefix = [] if pwd.getpwuid(os.geteuid()).pw_name == user else ["runuser", "-u", user, "--"]
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": str(timeout_s),
        "StrictHostKeyChecking": "yes",
        "ControlPath": "none",
        "LogLevel": "ERROR",
    }
    flags = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    return [*prefix, "ssh", "-n", "-p", str(port), *flags, "--", host, "true"]


def login(host: str, user: str, port: int, timeout_s: int) -> str:
    """Log in once; returns why that failed, or an empty string."""
    argv = login_argv(host, user, port, timeout_s)
    environment = {**os.environ, "LC_ALL": "C", "SSH_AUTH_SOCK": ""}
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=timeout_s + 5,
            env=environment, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "it did not answer in time"
    except FileNotFoundError as exc:
        return f"{exc.filename} is not installed on this node"
    return why(done.stderr, done.returncode) if done.returncode else ""


def lacking(home: SshHome, params: dict[str, t.Any], warn: t.Callable[[str], None]) -> list[str]:
    """The nodes that lack something or hold a revoked key; keys that are not ours to take away are warned of."""
    nodes, others = ([Node.from_result(node) for node in params[name]] for name in ("nodes", "others"))
    copies, theirs = ([], []) if params["key_on_all"] else surplus_keys(nodes, others)
    if copies:
        warn(
            f"Not only the first node holds the cluster's private key ({home.key_path}), but {', '.join(copies)}, too. Run "
            "once with `renew_key: true`, which revokes and removes the copies, or let all nodes hold it (`key_on_all`), as "
            "homes that nodes share need."
        )
    if theirs:
        warn(
            f"{home.key_path} on {', '.join(theirs)} is neither the cluster's key nor one that cluster_ssh made, so it "
            "stays there. Move it and its .pub away, or set another `cluster`."
        )
    return outdated(nodes, others, home.lines("known_hosts"), home.key_path, params, key_on_all=params["key_on_all"])


def check(params: dict[str, t.Any], warn: t.Callable[[str], None]) -> dict[str, t.Any]:
    """Look at the nodes if there are any, and log in everywhere; fails with all that went wrong."""
    home = SshHome.of(params["user"], params["cluster"])
    if params["nodes"] is None:
        return log_in(home, params)
    names = lacking(home, params, warn)
    if names:
        return {"changed": False, "outdated": names, "nodes": params["nodes"], "reached": 0, "failures": []}
    return {**log_in(home, params), "outdated": []}


def log_in(home: SshHome, params: dict[str, t.Any]) -> dict[str, t.Any]:
    """Log in everywhere; fails with all that went wrong."""
    here = os.uname().nodename
    key_path = home.key_path
    hosts = list(dict.fromkeys(params["hosts"]))
    if hosts and not os.path.exists(key_path):
        raise ClusterError(
            "no_key",
            f"{here} does not hold the cluster's key ({key_path}), so it cannot log in to the others.",
            "If another node holds it, list that one first in `hosts` and run with it in the limit. If the key is "
            "lost, run once with `renew_key: true` and all nodes in the limit: this node makes a new one.",
        )
    with ThreadPoolExecutor(max_workers=max(1, min(params["parallel"], len(hosts)))) as pool:
        reasons = pool.map(lambda host: login(host, params["user"], params["port"], params["timeout_s"]), hosts)
        failures = [{"host": host, "reason": reason} for host, reason in zip(hosts, reasons) if reason]
    reached = len(hosts) - len(failures)
    if failures:
        named = "; ".join(f"{item['host']}: {item['reason']}" for item in failures)
        raise ClusterError(
            "login_failed",
            f"From {here} no login to {len(failures)} node(s) (to {reached} it works): {named}.",
            "Run the role cluster_ssh on these nodes and on this one.",
            reached=reached,
            failures=failures,
        )
    return {"changed": False, "reached": reached, "failures": []}


def main() -> None:
    """Log in everywhere, and fail with all that went wrong."""
    module = AnsibleModule(
        argument_spec={
            "cluster": {"type": "str", "default": "gpu_cluster"},
            "user": {"type": "str", "default": "root"},
            "hosts": {"type": "list", "elements": "str", "required": True},
            "nodes": {"type": "list", "elements": "dict"},
            "others": {"type": "list", "elements": "dict", "default": []},
            "key_options": {"type": "list", "elements": "str", "default": ["restrict", "pty"], "no_log": False},
            "key_on_all": {"type": "bool", "default": False},
            "forget_unseen": {"type": "bool", "default": False},
            "port": {"type": "int", "default": 22},
            "timeout_s": {"type": "int", "default": 15},
            "parallel": {"type": "int", "default": 64},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**check(module.params, module.warn))
    except ClusterError as exc:
        module.fail_json(**exc.as_result())


if __name__ == "__main__":
    main()
