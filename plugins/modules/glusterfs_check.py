#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prove that a GlusterFS volume works on every node, or tell its state."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: glusterfs_check
short_description: Prove that a GlusterFS volume is whole, mounted everywhere and shared
version_added: 0.1.0
description:
  - With O(step=write), on every node, checks the mount and leaves a small file with a number of its own. With
    O(step=collect), on one node,
    checks that every brick is online, finds every node's number, and removes the files again.
author:
  - The hpcai.gpu_cluster developers (@hpcai)
options:
  step:
    description:
      - V(write) and V(collect) are the two halves of the proof. V(data) fails if anybody's files lie on this node's
        bricks. V(status) tells what there is, and in RV(problem) why it cannot; it does not fail for that.
    type: str
    choices: [write, collect, data, status]
    required: true
  node:
    description: The name of this node. Needed to write.
    type: str
    default: ""
  mount_point:
    description: Where the volume is mounted.
    type: path
    required: true
  brick_directory:
    description: The directory in which bricks are made. Needed for V(data).
    type: path
  nonces:
    description: The numbers that the nodes wrote, by node. Needed to collect.
    type: dict
    default: {}
  nodes:
    description: The nodes that must have written one. Needed to collect.
    type: list
    elements: str
    default: []
  allow_data_loss:
    description: Whether files on this node's bricks are no reason to fail.
    type: bool
    default: false
  timeout_s:
    description: How long everything may take, in seconds.
    type: int
    default: 60
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.glusterfs
attributes:
  check_mode:
    support: full
    details: Nothing is written or removed; what nodes wrote earlier is not compared.
  diff_mode:
    support: none
    details: Changes nothing.
  idempotent:
    support: full
    details: The small files are gone when the proof is complete.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
      - hpcai.gpu_cluster.glusterfs
"""

EXAMPLES = r"""
- name: Verify | Write a small file on every node
  hpcai.gpu_cluster.glusterfs_check:
    step: write
    volume: scratch
    node: "{{ inventory_hostname }}"
    mount_point: /mnt/scratch
  register: __written
"""

RETURN = r"""
nonce:
  description: What this node wrote.
  returned: when O(step=write)
  type: str
bricks:
  description: Bricks of the volume, and whether they are online.
  returned: when O(step=collect) or O(step=status)
  type: dict
  sample: {"gpu-1:/mnt/resource_nvme/glusterfs/scratch-0a1b2c3d": true}
mounted:
  description: Whether the volume is mounted here.
  returned: when O(step=collect) or O(step=status)
  type: bool
started:
  description: Whether the volume is started.
  returned: when O(step=collect) or O(step=status)
  type: bool
problem:
  description: Why GlusterFS could not be asked on this node; empty where it could.
  returned: when O(step=status)
  type: str
free_bytes:
  description: Free space of the volume.
  returned: when it is mounted
  type: int
total_bytes:
  description: Size of the volume.
  returned: when it is mounted
  type: int
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import failing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.bricks import check_consent
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.cli import Gluster
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.request import CHECK_SPEC, CheckRequest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.verify import collect, status, write


def check_volume(request: CheckRequest, module: AnsibleModule) -> dict[str, t.Any]:
    """Do one step."""
    gluster = Gluster(module, request.timeout_s)
    if request.step == "status":
        return status(gluster, request.volume, request.mount_point)
    if request.step == "collect":
        return collect(gluster, request, check=module.check_mode)
    if request.step == "write":
        return write(request, check=module.check_mode)
    check_consent(request.bricks, request.volume, allowed=request.allow_data_loss)
    return {}


def main() -> None:
    """Do one step."""
    module = AnsibleModule(
        argument_spec=CHECK_SPEC,
        required_if=[["step", "data", ["brick_directory"]]],
        supports_check_mode=True,
    )
    module.run_command_environ_update = {"LC_ALL": "C"}
    with failing(module):
        result = check_volume(CheckRequest.of(module.params), module)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
