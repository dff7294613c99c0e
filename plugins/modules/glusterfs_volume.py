#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start, mount, stop or remove an on-demand GlusterFS volume, on every node at the same time."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: glusterfs_volume
short_description: Start, mount, stop or remove an on-demand GlusterFS volume
version_added: 0.1.0
description:
  - Runs on every node at once. The node that leads creates, repairs and starts the volume; the others wait until it
    is there, and every
    node mounts it through its own glusterd, so that no node is special afterwards.
  - A brick is always a new directory. What was in the storage directory before is neither used nor touched.
  - A volume without copies loses what lies on a node when that node is lost. This is refused without
    O(allow_data_loss).
author:
  - The hpcai.gpu_cluster developers (@hpcai)
options:
  volume:
    description: Name of the volume.
    type: str
    required: true
  state:
    description:
      - V(prepared) sets this node up with O(packages), glusterd and O(brick_directory), and says in RV(left) what V(started)
        would still do. It never waits for another node. Where nothing is left it goes on like V(started).
      - V(started) creates what is missing, starts and mounts. V(unmounted) unmounts on this node. V(stopped) stops
        the volume, V(deleted)
        deletes it and dissolves the pool if it was the last one; both act only on the node that leads. V(cleaned)
        removes this node's bricks.
      - V(unmounted) with O(hosts), V(stopped) and V(deleted) change nothing where a brick lies on a node that is not
        among O(hosts), unless that node is given up by O(forget_nodes) and O(allow_data_loss). V(deleted) then gives
        its brick up first.
    type: str
    choices: [prepared, started, unmounted, stopped, deleted, cleaned]
    default: started
  packages:
    description: What O(state=prepared) installs, as M(hpcai.gpu_cluster.node_state) takes it.
    type: list
    elements: raw
    default: []
  nodes:
    description: All nodes of the volume, by the names with which they reach each other.
    type: list
    elements: str
    default: []
  hosts:
    description: The nodes of this run, by the same names. Needed by V(stopped) and V(deleted).
    type: list
    elements: str
    default: []
  node:
    description: The name of this node among them.
    type: str
    required: true
  lead:
    description: Whether this node makes the changes that concern the whole volume. Exactly one node of a run may.
    type: bool
    default: false
  brick_directory:
    description: The directory on every node in which its brick is made.
    type: path
    required: true
  mount_point:
    description: Where to mount the volume. The directory is made if it is missing, and must be empty.
    type: path
    required: true
  mount_options:
    description: Options of the mount.
    type: str
    default: _netdev
  mode:
    description: Permissions of the volume's root directory, in octal, quoted.
    type: str
    default: "01777"
  replica:
    description: How many copies of every file are kept. V(1) spreads files over the nodes without copies.
    type: int
    default: 1
  options:
    description: Options of the volume. Others are left as they are.
    type: dict
    default: {}
  forget_nodes:
    description:
      - Nodes whose bricks are given up if they are offline. Of these, those that are still among O(nodes) get a new,
        empty brick.
      - A node whose brick is online is never forgotten. One whose node cannot be reached counts as offline.
    type: list
    elements: str
    default: []
  allow_data_loss:
    description: Whether bricks may be forgotten or deleted with the files on them.
    type: bool
    default: false
  prove:
    description: Whether to leave a small file on the mounted volume for M(hpcai.gpu_cluster.glusterfs_check) to find
      and remove.
    type: bool
    default: false
  timeout_s:
    description: How long everything may take, in seconds.
    type: int
    default: 120
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.attributes.action
attributes:
  check_mode:
    support: full
    details: Reports what would be done, as far as it can be known before glusterd runs everywhere.
  diff_mode:
    support: full
    details: Lists what is done.
  idempotent:
    support: full
    details: A second run changes nothing.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
      - hpcai.gpu_cluster.glusterfs
"""

EXAMPLES = r"""
- name: Configure | Start the volume and mount it
  hpcai.gpu_cluster.glusterfs_volume:
    volume: scratch
    nodes: [gpu-1, gpu-2]
    node: "{{ inventory_hostname }}"
    lead: "{{ inventory_hostname == 'gpu-1' }}"
    brick_directory: /mnt/resource_nvme/glusterfs
    mount_point: /mnt/scratch
"""

RETURN = r"""
done:
  description: What was done, or would be, in words.
  returned: success
  type: list
  elements: str
  sample: [mount scratch at /mnt/scratch]
nonce:
  description: What was written to prove that the mount works.
  returned: when O(prove) is true and the volume is in use, outside check mode
  type: str
left:
  description: What is still to be done before the volume is in use here, in words.
  returned: when O(state=prepared)
  type: list
  elements: str
known:
  description: Whether glusterd on this node knows the volume. One that does not cannot lead.
  returned: when O(state=prepared) or O(state=unmounted)
  type: bool
changes:
  description: What O(state=prepared) changed, or would.
  returned: when O(state=prepared)
  type: list
  elements: dict
leftovers:
  description: Directories of earlier volumes of this name, which take up space here.
  returned: when O(state=started), or when nothing is left to do
  type: list
  elements: str
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.apply import (
    Gluster,
    VolumeKeeper,
    brick_directories,
    check_run,
    clean,
    disconnected,
    holds_data,
    mount,
    set_mode,
    unmount,
    wait_connected,
    write_nonce,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.plan import ARGUMENT_SPEC, Wanted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.apply import NodeState
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.request import (
    NOTHING,
    check_mode,
    directory_request,
)

# How long a node waits for bricks that are being started.
_REPAIR_S = 30.0


def wanted_volume(params: dict[str, t.Any]) -> Wanted:
    """The request as plain data."""
    return Wanted(
        name=params["volume"],
        nodes=tuple(params["nodes"]),
        bricks=params["brick_directory"].rstrip("/"),
        replica=params["replica"],
        options={key: str(value) for key, value in params["options"].items()},
        forget=tuple(params["forget_nodes"]),
        allow_data_loss=params["allow_data_loss"],
    )


def wait_for_volume(gluster: Gluster, name: str, node: str) -> None:
    """Wait until the node that leads has started the volume and this node has its brick."""
    while True:
        volume = gluster.volume(name)
        if volume and volume.started and any(brick.node == node for brick in volume.bricks):
            return
        gluster.wait(f"The node that leads did not start {name} with a brick on {node}")


def bring_up(module: AnsibleModule, gluster: Gluster, *, check: bool) -> list[str]:
    """Bring the volume up and mount it here; returns what was done, or would be."""
    params = module.params
    wanted = wanted_volume(params)
    if params["node"] not in wanted.nodes:
        raise ClusterError("bad_input", f"{params['node']} is not among the nodes.", "Add it to `nodes`.")
    if check and params["lead"] and not gluster.answers():
        # The packages are not installed or not started yet: nothing can be asked, and everything is still to be done.
        return [f"create {wanted.name}", f"mount {wanted.name} at {params['mount_point']}"]
    done = VolumeKeeper(gluster, wanted, params["node"], check=check).start() if params["lead"] else []
    if not params["lead"] and not check:
        wait_for_volume(gluster, wanted.name, params["node"])
    done += mount(gluster, module, wanted.name, params["mount_point"], params["mount_options"], check=check)
    if params["lead"]:
        done += set_mode(params["mount_point"], check_mode(params["mode"], params["mount_point"]), check=check)
    return done


def use(module: AnsibleModule, gluster: Gluster) -> dict[str, t.Any]:
    """What there is to say of a volume that is up, and the proof that it works here."""
    params = module.params
    if module.check_mode:
        return {"leftovers": []}
    volume = gluster.volume(params["volume"])
    used = {brick.path for brick in volume.bricks if brick.node == params["node"]} if volume else set()
    made = brick_directories(params["brick_directory"].rstrip("/"), params["volume"])
    result: dict[str, t.Any] = {"leftovers": [path for path in made if path not in used]}
    if params["prove"]:
        wait_connected(params["mount_point"], params["volume"], _REPAIR_S)
        result["nonce"] = write_nonce(params["mount_point"], params["node"])
    return result


def prepare(module: AnsibleModule, gluster: Gluster) -> dict[str, t.Any]:
    """Set this node up, and use the volume where that is all there is to do. Other nodes may not be set up yet."""
    params = module.params
    request = {
        **NOTHING,
        "packages": params["packages"],
        "directories": [directory_request(params["brick_directory"])],
        "units": [{"name": "glusterd.service", "state": "started", "enabled": True, "restart_on": []}],
    }
    found = NodeState(request, module).run(check=module.check_mode)
    if "needs" in found:
        # The action plugin brings the packages and calls again.
        return {**found, "done": []}
    left = bring_up(module, gluster, check=True)
    if not left:
        # Bricks that are down are brought back by the node that leads, once all are prepared: nobody waits for them here.
        left = [f"reach the brick of {node}" for node in disconnected(params["mount_point"], params["volume"])]
    result = {} if left else use(module, gluster)
    done = [f"{change['what']} {change['kind']} {change['name']}" for change in found["changes"]]
    return {**found, **result, "done": done, "left": left, "known": not left or knows(module, gluster)}


def knows(module: AnsibleModule, gluster: Gluster) -> bool:
    """Whether glusterd here knows the volume. In check mode there may be none to ask."""
    return (not module.check_mode or gluster.answers()) and gluster.volume(module.params["volume"]) is not None


def leave(module: AnsibleModule, gluster: Gluster) -> dict[str, t.Any]:
    """Unmount the volume here, unless it would be taken away from nodes that are not in this run."""
    params, check = module.params, module.check_mode
    # Nodes without a volume or a glusterd have nothing to say; the others of this run know all bricks.
    volume = gluster.volume(params["volume"]) if params["hosts"] and gluster.answers() else None
    if volume:
        check_run(gluster, wanted_volume(params), volume, params["hosts"])
    done = unmount(module, params["volume"], params["mount_point"], check=check)
    return {"done": done, "known": volume is not None}


def remove_bricks(params: dict[str, t.Any], *, check: bool) -> list[str]:
    """Remove this node's bricks; what lies on them only with consent."""
    bricks = params["brick_directory"]
    full = [path for path in brick_directories(bricks, params["volume"]) if holds_data(path)]
    if full and not params["allow_data_loss"]:
        raise ClusterError(
            "consent_missing",
            f"Files of {params['volume']} lie in {', '.join(full)}.",
            "Set `allow_data_loss: true` to delete them.",
        )
    return clean(bricks, params["volume"], params["mount_point"], check=check)


def apply_state(module: AnsibleModule) -> dict[str, t.Any]:
    """Do what the state asks for."""
    params, check, state = module.params, module.check_mode, module.params["state"]
    gluster = Gluster(module, params["timeout_s"])
    if state == "prepared":
        return prepare(module, gluster)
    if state == "started":
        done = bring_up(module, gluster, check=check)
        return {"done": done, **use(module, gluster)}
    if state == "unmounted":
        return leave(module, gluster)
    if state == "cleaned":
        return {"done": remove_bricks(params, check=check)}
    if not params["lead"] or not module.get_bin_path("gluster"):
        return {"done": []}
    keeper = VolumeKeeper(gluster, wanted_volume(params), params["node"], check=check)
    return {"done": keeper.stop(params["hosts"]) if state == "stopped" else keeper.delete(params["hosts"])}


def main() -> None:
    """Do what the state asks for."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.run_command_environ_update = {"LC_ALL": "C"}
    try:
        result = apply_state(module)
    except ClusterError as exc:
        module.fail_json(**exc.as_result())
    if result.get("leftovers"):
        module.warn(f"Left over from earlier volumes, and taking up space: {', '.join(result['leftovers'])}.")
    after = "".join(f"{line}\n" for line in result["done"])
    module.exit_json(**{"changed": bool(result["done"]), "diff": {"before": "", "after": after}, **result})


if __name__ == "__main__":
    main()
