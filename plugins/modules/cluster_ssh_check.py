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
author:
  - The hpcai.gpu_cluster developers (@hpcai)
options:
  cluster:
    description: Name of the cluster, which names the key file that must be here.
    type: str
    default: gpu_cluster
  user:
    description: The user whose logins between the nodes need no password.
    type: str
    default: root
  hosts:
    description: Names or addresses to log in to.
    type: list
    elements: str
    required: true
  port:
    description: The port that the nodes' sshd listens on.
    type: int
    default: 22
  timeout_s:
    description: How long one login may take, in seconds.
    type: int
    default: 15
  parallel:
    description: How many logins are under way at the same time.
    type: int
    default: 64
attributes:
  check_mode:
    support: full
    description: Changes nothing anyway.
  diff_mode:
    support: none
    description: Changes nothing.
  idempotence:
    support: full
    description: Changes nothing.
"""

EXAMPLES = r"""
- name: Verify | Log in to every node from the first
  hpcai.gpu_cluster.cluster_ssh_check:
    hosts: "{{ ansible_play_hosts }}"
  run_once: true
"""

RETURN = r"""
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
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh import why
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh_home import SshHome
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


def check(params: dict[str, t.Any]) -> dict[str, t.Any]:
    """Log in everywhere; fails with all that went wrong."""
    here = os.uname().nodename
    key_path = SshHome.of(params["user"], params["cluster"]).key_path
    if not os.path.exists(key_path):
        raise ClusterError(
            "no_key",
            f"{here} does not hold the cluster's key ({key_path}), so it cannot log in to the others.",
            "Run with the first node of the cluster in the limit, and list all nodes in cluster_ssh_hosts.",
        )
    hosts = list(dict.fromkeys(params["hosts"]))
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
            "port": {"type": "int", "default": 22},
            "timeout_s": {"type": "int", "default": 15},
            "parallel": {"type": "int", "default": 64},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**check(module.params))
    except ClusterError as exc:
        module.fail_json(**exc.as_result())


if __name__ == "__main__":
    main()
