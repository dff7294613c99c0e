#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: health_check
short_description: Find the node, link or domain that slows the collectives of a cluster down
description:
  - Launches collectives of nccl-tests over all nodes. Where one is slow, hangs, fails, or computes something wrong, smaller launches side
    by side find out whose fault it is, and everybody else is launched together once more.
  - A node is blamed only after launches with at least one node that was proven good. A tool that is missing, or a launcher that refuses,
    blames nobody.
  - Runs once for all hosts of the play, with every launch started from the host of the task. Prints a line for each round.
  - A launch that hangs is ended on all its nodes before the next round, and a node on which that is not possible is named.
version_added: 0.1.0
author: The hpcai.gpu_cluster developers (@hpcai)
options:
  nodes:
    description: The nodes to check, as the host of the task reaches them. Without it the hosts of the play.
    type: list
    elements: str
  checks:
    description: Collectives to launch, of V(all_reduce), V(alltoall), V(all_gather) and V(reduce_scatter).
    type: list
    elements: str
    default: [all_reduce, alltoall, all_gather]
  baseline:
    description:
      - Bus bandwidth of a healthy fleet in GB/s, by check. A launch below 94 % of it is slow.
      - Where a check has none, nodes are compared with each other, which takes more rounds and finds no fault that all have.
    type: dict
    default: {}
  topology:
    description: The place of each node, such as C(leaf) and C(rack), by which a bad leaf is told from bad nodes.
    type: dict
    default: {}
  noise:
    description: Relative standard deviation of a launch's bandwidth, if it is known. V(0) to measure it, which takes more samples.
    type: float
    default: 0
  min_bytes:
    description: The smallest message, as nccl-tests takes sizes. Sizes double up to O(max_bytes), and all are kept in the result.
    type: str
    default: 8G
  max_bytes:
    description: The largest message, whose bandwidth is judged.
    type: str
    default: 8G
  iterations:
    description: Collectives per sample.
    type: int
    default: 5
  rdma:
    description: Whether NCCL has to use RDMA between nodes. Where it says that it uses sockets, the check fails, and no node is blamed.
    type: bool
    default: true
  attribution:
    description: Whether to find out whose fault it is. Without it every check is launched over all nodes only.
    type: bool
    default: true
  acceptance:
    description:
      - Whether all nodes are launched together first, and without those that are blamed in the end.
      - V(false) compares parts of the fleet only, which takes fewer node minutes and misses what only the whole shows.
    type: bool
    default: true
  timeout_s:
    description: How long a launch may take while no healthy one was seen. From then on 1.5 times as long as that, and O(grace_s).
    type: float
    default: 600
  grace_s:
    description: See O(timeout_s).
    type: float
    default: 30
  max_minutes:
    description: No round is begun after so many minutes. V(0) for no bound.
    type: float
    default: 0
  max_nodes:
    description: Refuse to check more nodes than this. V(0) for no bound.
    type: int
    default: 0
  max_launches:
    description: No more launches than this. V(0) for no bound.
    type: int
    default: 0
  fail_on:
    description:
      - The task fails where the verdict is this or worse. V(fail) is worst, then V(incomplete), V(warn). V(never) only reports.
    type: str
    choices: [fail, incomplete, warn, never]
    default: fail
  journal:
    description: A file of the controller that keeps each round, so that a check that was interrupted goes on. Empty for none.
    type: path
    default: ""
  report:
    description: A file of the controller for the document, as JSON. JUnit lies beside it, with the suffix C(.xml). Empty for none.
    type: path
    default: ""
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.attributes.read_only
  - hpcai.gpu_cluster.attributes.action
  - hpcai.gpu_cluster.health
attributes:
  check_mode:
    details: Nothing is launched. RV(plan) tells what would be.
  action:
    details: Runs on the controller, which decides what is launched next.
  bypass_host_loop:
    support: full
    description: Runs once for all hosts of the play.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
      - hpcai.gpu_cluster.health
"""

EXAMPLES = r"""
- name: Which node is it?
  hpcai.gpu_cluster.health_check:
    baseline: {all_reduce: 235}
    checks: [all_reduce]
    topology: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'topology'))) }}"
    report: reports/health.json
  register: health
"""

RETURN = r"""
verdict:
  description: V(ok), V(warn), V(fail), or V(incomplete) where it could not be found out.
  returned: always, but in check mode
  type: str
health:
  description:
    - The document. C(docs/health.schema.json) is its schema.
    - Where the task fails its C(rounds) are empty, because Ansible prints all of a failure. O(report) has them.
  returned: always, but in check mode
  type: dict
plan:
  description: The launches over all nodes, and what attribution would add.
  returned: in check mode
  type: dict
"""
