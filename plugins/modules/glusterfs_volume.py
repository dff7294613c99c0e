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
  - hpcai.gpu_cluster.glusterfs
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
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError, failing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.apply import delete, start, stop
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.bricks import (
    brick_directories,
    check_consent,
    clean,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.cli import Gluster
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.model import Removal
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.mount import (
    disconnected,
    mount,
    set_mode,
    unmount,
    wait_connected,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.plan import check_whole_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.read import read_removal
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.request import VOLUME_SPEC, VolumeRequest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.verify import write_nonce
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.apply import NodeState
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.request import (
    NOTHING,
    check_mode,
    directory_request,
)

# How long a node waits for bricks that are being started.
_REPAIR_S = 30.0


class Member:
    """This node as one of the volume's, asked through its own glusterd."""

    def __init__(self, request: VolumeRequest, module: AnsibleModule) -> None:
        self.request, self.module, self.check = request, module, module.check_mode
        self.volume = request.wanted.name
        self.gluster = Gluster(module, request.timeout_s)

    def wait_for_volume(self) -> None:
        """Wait until the node that leads has started the volume and this node has its brick."""
        node = self.request.node
        while True:
            volume = self.gluster.volume(self.volume)
            if volume and volume.started and any(brick.node == node for brick in volume.bricks):
                return
            self.gluster.wait(f"The node that leads did not start {self.volume} with a brick on {node}")

    def bring_up(self, *, check: bool) -> list[str]:
        """Bring the volume up and mount it here; returns what was done, or would be."""
        request, path = self.request, self.request.mount_point
        if request.node not in request.wanted.nodes:
            raise ClusterError("bad_input", f"{request.node} is not among the nodes.", "Add it to `nodes`.")
        if check and request.lead and not self.gluster.answers():
            # The packages are not installed or not started yet: nothing can be asked, and everything is still to be done.
            return [f"create {self.volume}", f"mount {self.volume} at {path}"]
        done = start(self.gluster, request.wanted, request.node, check=check) if request.lead else []
        if not request.lead and not check:
            self.wait_for_volume()
        done += mount(self.gluster, self.module, self.volume, path, request.mount_options, check=check)
        if request.lead:
            done += set_mode(path, check_mode(request.mode, path), check=check)
        return done

    def use(self) -> dict[str, t.Any]:
        """What there is to say of a volume that is up, and the proof that it works here."""
        request = self.request
        if self.check:
            return {"leftovers": []}
        volume = self.gluster.volume(self.volume)
        used = {brick.path for brick in volume.bricks if brick.node == request.node} if volume else set()
        made = brick_directories(request.wanted.bricks, self.volume)
        result: dict[str, t.Any] = {"leftovers": [path for path in made if path not in used]}
        if request.prove:
            wait_connected(request.mount_point, self.volume, _REPAIR_S)
            result["nonce"] = write_nonce(request.mount_point, request.node)
        return result

    def start(self) -> dict[str, t.Any]:
        """Bring the volume up, mount it here, and use it."""
        done = self.bring_up(check=self.check)
        return {"done": done, **self.use()}

    def prepare(self) -> dict[str, t.Any]:
        """Set this node up, and use the volume where that is all there is to do. Other nodes may not be set up yet."""
        request = {
            **NOTHING,
            "packages": list(self.request.packages),
            "directories": [directory_request(self.request.wanted.bricks)],
            "units": [{"name": "glusterd.service", "state": "started", "enabled": True, "restart_on": []}],
        }
        found = NodeState(request, self.module).run(check=self.check)
        if "needs" in found:
            # The action plugin brings the packages and calls again.
            return {**found, "done": []}
        left = self.bring_up(check=True)
        if not left:
            # Bricks that are down are brought back by the node that leads, once all are prepared: nobody waits for them here.
            left = [f"reach the brick of {node}" for node in disconnected(self.request.mount_point, self.volume)]
        result = {} if left else self.use()
        done = [f"{change['what']} {change['kind']} {change['name']}" for change in found["changes"]]
        return {**found, **result, "done": done, "left": left, "known": not left or self.knows()}

    def knows(self) -> bool:
        """Whether glusterd here knows the volume. In check mode there may be none to ask."""
        return (not self.check or self.gluster.answers()) and self.gluster.volume(self.volume) is not None

    def leave(self) -> dict[str, t.Any]:
        """Unmount the volume here, unless it would be taken away from nodes that are not in this run."""
        request = self.request
        # Nodes without a volume or a glusterd have nothing to say; the others of this run know all bricks.
        asked = request.hosts and self.gluster.answers()
        found = read_removal(self.gluster, request.wanted) if asked else Removal(None)
        if found.volume:
            check_whole_run(found.volume, request.hosts, found.lost)
        done = unmount(self.module, self.volume, request.mount_point, check=self.check)
        return {"done": done, "known": found.volume is not None}

    def stop(self) -> dict[str, t.Any]:
        """Stop the volume, or delete it, where this node leads."""
        request = self.request
        if not request.lead or not self.module.get_bin_path("gluster"):
            return {"done": []}
        wanted, hosts = request.wanted, request.hosts
        if request.state == "stopped":
            return {"done": stop(self.gluster, wanted, hosts, check=self.check)}
        return {"done": delete(self.gluster, wanted, request.node, hosts, check=self.check)}

    def remove_bricks(self) -> dict[str, t.Any]:
        """Remove this node's bricks; what lies on them only with consent."""
        wanted = self.request.wanted
        check_consent(wanted.bricks, self.volume, allowed=wanted.allow_data_loss)
        return {"done": clean(wanted.bricks, self.volume, self.request.mount_point, check=self.check)}


def apply_state(request: VolumeRequest, module: AnsibleModule) -> dict[str, t.Any]:
    """Do what the state asks for."""
    member = Member(request, module)
    return {
        "prepared": member.prepare,
        "started": member.start,
        "unmounted": member.leave,
        "stopped": member.stop,
        "deleted": member.stop,
        "cleaned": member.remove_bricks,
    }[request.state]()


def main() -> None:
    """Do what the state asks for."""
    module = AnsibleModule(argument_spec=VOLUME_SPEC, supports_check_mode=True)
    module.run_command_environ_update = {"LC_ALL": "C"}
    with failing(module):
        result = apply_state(VolumeRequest.of(module.params), module)
    if result.get("leftovers"):
        module.warn(f"Left over from earlier volumes, and taking up space: {', '.join(result['leftovers'])}.")
    after = "".join(f"{line}\n" for line in result["done"])
    module.exit_json(**{"changed": bool(result["done"]), "diff": {"before": "", "after": after}, **result})


if __name__ == "__main__":
    main()
