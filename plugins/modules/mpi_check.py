#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Launch an MPI job over several nodes and check that every rank ran where it should."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: mpi_check
short_description: Prove that MPI starts ranks on every node and that they can talk
version_added: 0.1.0
description:
  - Runs C(mpirun) from this node over O(hosts), through the environment module that users load, and checks that
    every rank ran on the node
    it belongs to and that a sum over all ranks comes out right. Nodes that are missing, extra or used twice are
    named.
  - The ranks are a few lines of Python that load C(libmpi) themselves, so that no compiler is needed.
  - Run as root, C(mpirun) is told for this one launch that root may use it.
author:
  - The hpcai.gpu_cluster developers (@hpcai)
options:
  hosts:
    description: Names of the nodes, as this node can reach them by ssh.
    type: list
    elements: str
    required: true
  ranks_per_node:
    description: How many ranks to start on every node.
    type: int
    default: 1
  module:
    description: The environment module to load first. Empty to use the C(mpirun) that is found in the path.
    type: str
    default: mpi/current
  user:
    description: The user to run as. Empty for the one that Ansible logs in as.
    type: str
    default: ""
  mca:
    description: MCA parameters of this launch, in addition to those of the environment.
    type: dict
    default: {}
  collective:
    description: Whether the ranks compute a sum together. Without it only the launch is proven.
    type: bool
    default: true
  timeout_s:
    description: How long the job may take, in seconds. It is ended then, everywhere.
    type: int
    default: 60
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.attributes.read_only
attributes:
  action_group:
    membership:
      - hpcai.gpu_cluster.all
"""

EXAMPLES = r"""
- name: Verify | Run a rank on every node
  hpcai.gpu_cluster.mpi_check:
    hosts: "{{ ansible_play_hosts }}"
  run_once: true
"""

RETURN = r"""
ranks:
  description: How many ranks reported.
  returned: success
  type: int
placement:
  description: The ranks that ran on each node.
  returned: success
  type: dict
  sample: {gpu-1: [0], gpu-2: [1]}
seconds:
  description: How long the job took, in seconds.
  returned: success
  type: float
problems:
  description: What was wrong with the ranks that reported.
  returned: when a rank ran where it should not, or not at all
  type: list
  elements: str
"""

import time
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError, failing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import run_job
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._mpi.request import ARGUMENT_SPEC, Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._mpi.verify import (
    NO_MPIRUN_REMEDY,
    judge,
    launch_argv,
    launch_failure,
    parse_ranks,
)


def check(request: Request) -> dict[str, t.Any]:
    """Launch, and compare what the ranks say with what was asked for."""
    started = time.monotonic()
    try:
        rc, stdout, stderr = run_job(launch_argv(request), request.user, request.timeout_s)
    except FileNotFoundError as exc:
        raise ClusterError("mpi_missing", f"There is no {exc.filename} on this node.", NO_MPIRUN_REMEDY) from exc
    ranks = parse_ranks(stdout)
    problems = judge(ranks, request) if ranks or rc == 0 else []
    if rc != 0 and not problems:
        raise launch_failure(stdout, stderr, rc)
    if problems:
        raise ClusterError(
            "wrong_placement",
            f"MPI did not run as it should: {'; '.join(problems)}.",
            "Look at the named nodes: the entry point verify of cluster_ssh, and `mpirun --version` on them.",
            problems=problems,
            stderr=stderr[-3000:],
        )
    placement: dict[str, list[int]] = {}
    for rank in ranks:
        placement.setdefault(rank.host, []).append(rank.rank)
    seconds = round(time.monotonic() - started, 2)
    return {"changed": False, "ranks": len(ranks), "placement": placement, "seconds": seconds}


def main() -> None:
    """Launch and check."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    with failing(module):
        result = check(Request.of(module.params))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
