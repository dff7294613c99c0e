#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: dataset_collect
short_description: Collect what M(hpcai.gpu_cluster.dataset_stage) did in the background
description:
  - Returns the result of the job, its C(changed) included, and fails where it failed, as M(ansible.builtin.async_status) does.
  - A worker that was killed, by the kernel where memory was short, by somebody, or by a reboot of its node, is a warning. Its files are
    left to the others, or to the next round. M(hpcai.gpu_cluster.dataset_verify) tells whether they are there.
  - So is a worker that is stopped (C(SIGSTOP)). A new one on the same node ends it.
  - The job's file stays on the node for a week. It holds no SAS.
  - In a role, messages name the role's variables instead of the options of M(hpcai.gpu_cluster.dataset_stage).
version_added: 0.1.0
author: The hpcai.gpu_cluster developers (@hpcai)
options:
  jid:
    description: C(ansible_job_id) of the task that started the job.
    type: str
    required: true
  complete:
    description:
      - RV(hpcai.gpu_cluster.dataset_watch#module:complete), which tells that other nodes have done the rest. Then a worker that stopped
        before its end, because it was told to, its disk is full or fails, its AzCopy crashes, or its time was over, is a warning,
        too, where its node still sees the destination.
    type: bool
    default: false
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.attributes.action
attributes:
  check_mode:
    support: full
    details: Reads the job as it does otherwise. In check mode M(hpcai.gpu_cluster.dataset_stage) has started none.
  diff_mode:
    support: none
    details: M(hpcai.gpu_cluster.dataset_plan) shows the difference.
  idempotent:
    support: partial
    details: The module itself changes nothing, but says as often as it is asked what the job changed.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
seealso:
  - module: hpcai.gpu_cluster.dataset_stage
  - module: ansible.builtin.async_status
"""

EXAMPLES = r"""
- name: Collect what every node did
  hpcai.gpu_cluster.dataset_collect:
    jid: "{{ job.ansible_job_id }}"
  register: done
  until: done is finished
  retries: 30
  delay: 1
"""

RETURN = r"""
finished:
  description: Whether the job has ended. Only then all that M(hpcai.gpu_cluster.dataset_stage) returns is there, too.
  type: bool
  returned: always
started:
  description: Whether the job was started.
  type: bool
  returned: always
ansible_job_id:
  description: O(jid).
  type: str
  returned: always
results_file:
  description: Where the job's result lies on the node.
  type: str
  returned: always
"""
