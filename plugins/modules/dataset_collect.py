#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: dataset_collect
short_description: Collect what M(hpcai.gpu_cluster.dataset_stage) did in the background
description:
  - Returns the result of the job, and fails where it failed, as M(ansible.builtin.async_status) does.
  - In a role, messages name the role's variables instead of the options of M(hpcai.gpu_cluster.dataset_stage).
version_added: 0.1.0
author: The hpcai.gpu_cluster developers (@hpcai)
options:
  jid:
    description: C(ansible_job_id) of the task that started the job.
    type: str
    required: true
  mode:
    description: V(status) returns the result, V(cleanup) deletes it.
    type: str
    choices: [status, cleanup]
    default: status
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.attributes.read_only
  - hpcai.gpu_cluster.attributes.action
attributes:
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
  description: Whether the job has ended. Only then the result of M(hpcai.gpu_cluster.dataset_stage) is there, too.
  type: bool
  returned: always
"""
