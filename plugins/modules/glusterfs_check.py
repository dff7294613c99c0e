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
  volume:
    description: Name of the volume.
    type: str
    required: true
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
    description: The nodes that must have written one.
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

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.apply import (
    Gluster,
    brick_directories,
    collect_nonces,
    current_mount,
    holds_data,
    is_stale,
    wait_connected,
    write_nonce,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.plan import Brick, is_ours, offline_error

# A client that lost a brick for a moment takes about two seconds to find it again.
_PATIENCE_S = 5.0
_START = "Run the role glusterfs (entry point main) on all nodes."


def check_mount(volume: str, path: str) -> None:
    """Fail unless the volume is mounted here and answers."""
    found = current_mount(path)
    if not found or not is_ours(found, volume):
        raise ClusterError("not_mounted", f"{volume} is not mounted at {path} on {os.uname().nodename}.", _START)
    if is_stale(path):
        raise ClusterError("not_mounted", f"The mount of {volume} at {path} is dead on {os.uname().nodename}.", _START)


def volume_status(gluster: Gluster, volume: str) -> dict[str, t.Any]:
    """The volume, without a verdict."""
    info = gluster.volume(volume)
    online = gluster.online(volume) if info and info.started else set()
    return {
        "bricks": {str(brick): brick in online for brick in info.bricks} if info else {},
        "started": bool(info and info.started),
    }


def mount_status(volume: str, path: str) -> dict[str, t.Any]:
    """Its mount, without a verdict."""
    found = current_mount(path)
    if not found or not is_ours(found, volume) or is_stale(path):
        return {"mounted": False}
    space = os.statvfs(path)
    free, total = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
    return {"mounted": True, "free_bytes": free, "total_bytes": total}


def status(gluster: Gluster, volume: str, path: str) -> dict[str, t.Any]:
    """What there is, and why GlusterFS could not be asked."""
    result = {"bricks": {}, "started": False, "problem": "", **mount_status(volume, path)}
    if not gluster.answers():
        return {
            **result,
            "problem": "glusterd is not installed, or does not answer. Check `systemctl status glusterd`.",
        }
    try:
        return {**result, **volume_status(gluster, volume)}
    except ClusterError as exc:
        return {**result, "problem": str(exc)}


def collect(gluster: Gluster, params: dict[str, t.Any], *, check: bool) -> dict[str, t.Any]:
    """The second half of the proof."""
    volume, path = params["volume"], params["mount_point"]
    check_mount(volume, path)
    found = {**volume_status(gluster, volume), **mount_status(volume, path)}
    lost = [] if check else collect_nonces(path, params["nonces"])
    offline = [Brick(*name.split(":", 1)) for name, online in found["bricks"].items() if not online]
    if offline:
        raise offline_error(volume, offline)
    silent = [] if check else [node for node in params["nodes"] if node not in params["nonces"]]
    if silent or lost:
        raise ClusterError(
            "not_shared",
            f"What {', '.join(sorted({*silent, *lost}))} wrote to {volume} was not found on {os.uname().nodename}.",
            "Check the mount on these nodes: the entry point verify names what is wrong there.",
        )
    return found


def check_volume(module: AnsibleModule) -> dict[str, t.Any]:
    """Do one step."""
    params, step, check = module.params, module.params["step"], module.check_mode
    gluster = Gluster(module, params["timeout_s"])
    if step == "status":
        return status(gluster, params["volume"], params["mount_point"])
    if step == "collect":
        return collect(gluster, params, check=check)
    if step == "write":
        check_mount(params["volume"], params["mount_point"])
        wait_connected(params["mount_point"], params["volume"], _PATIENCE_S)
        return {} if check else {"nonce": write_nonce(params["mount_point"], params["node"])}
    full = [path for path in brick_directories(params["brick_directory"], params["volume"]) if holds_data(path)]
    if full and not params["allow_data_loss"]:
        raise ClusterError(
            "consent_missing",
            f"Files of {params['volume']} lie in {', '.join(full)} on {os.uname().nodename}. Nothing was removed.",
            "Set `allow_data_loss: true` to delete them.",
        )
    return {}


def main() -> None:
    """Do one step."""
    module = AnsibleModule(
        argument_spec={
            "volume": {"type": "str", "required": True},
            "step": {"type": "str", "choices": ["write", "collect", "data", "status"], "required": True},
            "node": {"type": "str", "default": ""},
            "mount_point": {"type": "path", "required": True},
            "brick_directory": {"type": "path"},
            "nonces": {"type": "dict", "default": {}},
            "nodes": {"type": "list", "elements": "str", "default": []},
            "allow_data_loss": {"type": "bool", "default": False},
            "timeout_s": {"type": "int", "default": 60},
        },
        required_if=[["step", "data", ["brick_directory"]]],
        supports_check_mode=True,
    )
    module.run_command_environ_update = {"LC_ALL": "C"}
    try:
        result = check_volume(module)
    except ClusterError as exc:
        module.fail_json(**exc.as_result())
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
