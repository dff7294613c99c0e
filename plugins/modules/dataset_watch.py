#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: dataset_watch
short_description: Follow a staging run and print one line per cluster
description:
  - Waits until every rank of a run has ended or is silent, or every batch is done or given up, and prints files, GB, GB/s and time left
    every five seconds.
  - A host that does not answer within three seconds is not waited for, and one that cannot be reached is left alone for a minute.
  - Where more than a hundred ranks share a run, the progress of a part of them is read each second, that of each every ten seconds at
    least.
  - Runs once on the controller for all hosts of the play, whatever their number.
  - Prints nothing under callbacks whose output is read by programs, such as C(ansible.posix.json).
version_added: 0.1.0
author: The hpcai.gpu_cluster developers (@hpcai)
options:
  hosts:
    description: Hosts that copy, in the order of their ranks.
    type: list
    elements: str
    required: true
  runs:
    description: Id of the run that all hosts share, or one id per host where each has a run of its own.
    type: list
    elements: str
    required: true
  total_files:
    description: Files to be copied.
    type: int
    required: true
  total_bytes:
    description: Bytes to be copied over the network.
    type: int
    required: true
  silent_after_s:
    description: Seconds without sign of life after which a rank is not waited for.
    type: float
    default: 60
  timeout_s:
    description: Seconds after which to stop waiting.
    type: float
    default: 86400
  notes:
    description: Sentences to print first, such as the explanation of the bandwidth plan.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.attributes.read_only
  - hpcai.gpu_cluster.attributes.action
  - hpcai.gpu_cluster.dataset.destination
attributes:
  check_mode:
    details: Nothing runs in check mode, so the module returns at once.
  action:
    details: Runs on the controller and reads the progress through connections to the nodes.
  bypass_host_loop:
    support: full
    description: Runs once for all hosts of the play.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
      - hpcai.gpu_cluster.dataset
"""

EXAMPLES = r"""
- name: Follow the copy
  hpcai.gpu_cluster.dataset_watch:
    destination: /mnt/scratch/cosmoflow
    hosts: "{{ plan.hosts }}"
    runs: ["{{ plan.run }}"]
    total_files: "{{ plan.missing_files }}"
    total_bytes: "{{ plan.missing_bytes }}"
"""

RETURN = r"""
files:
  description: Files that reached their final names.
  type: int
  returned: always
bytes:
  description: Their bytes over the network.
  type: int
  returned: always
complete:
  description:
    - Whether every batch is done or given up, as a host says that has worked until the end. V(false) where every host has a run of its own.
    - M(hpcai.gpu_cluster.dataset_verify) tells whether the dataset is whole.
  type: bool
  returned: always
silent:
  description: Hosts that gave no sign of life any more.
  type: list
  elements: str
  returned: always
late:
  description: Hosts that were still at work 10 seconds after every batch was done or given up. Something on them hangs.
  type: list
  elements: str
  returned: always
errors:
  description: What stopped or troubled ranks, each with C(host), C(kind), C(message) and C(remedy).
  type: list
  elements: dict
  returned: always
"""
