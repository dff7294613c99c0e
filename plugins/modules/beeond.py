#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start, stop, clean or verify an on-demand BeeGFS file system over all its nodes, from the first of them."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: beeond
short_description: Start, stop, clean up or verify BeeGFS on demand (BeeOND) on all its nodes
version_added: 0.1.0
description:
  - Runs once for a cluster, on the first node of O(nodes), which reaches the others as root through ssh (C(BatchMode)).
    The role P(hpcai.gpu_cluster.cluster_ssh#role) makes that trust. M(hpcai.gpu_cluster.beeond_software) brings what it needs.
  - Looks at mounts, the status file, processes and data of every node at the same time, compares them with what is asked
    for, and does only what is missing. Where all is right, nothing is changed.
  - What stands in the way is refused before anything starts, with its node. A name that a node cannot resolve, a mount point
    that is not empty or a link, a storage path in the file system of the operating system, a link, or a mount point in the data, too
    little space (1 GiB) or too few inodes (100000) for new data, a port in use, two names of one machine.
  - A file system that works in O(storage_path) with another O(mount_point) or O(port_shift), or on more nodes than O(nodes), is left
    alone, as is data of users of a file system in which no node has the name that is given.
  - C(beeond) is never given C(-F), and C(beeond stop) never C(-d). Data is removed by the module alone, below
    C(beeond) in O(storage_path), and only with the mark that it put there.
  - C(beeond) works on all nodes at once where the first one has C(pdsh), else on one after the other.
  - A start that fails, takes too long or is interrupted is taken back on all nodes. Data in which users have files by then stays.
author:
  - The hpcai.gpu_cluster developers (@hpcai)
options:
  state:
    description:
      - V(started) makes the file system run on all nodes. Data of an earlier session is used again where it is whole and of the same
        nodes and servers.
      - V(stopped) unmounts it and ends the services on all nodes that answer. The data stays.
      - V(cleaned) also removes the data, which needs O(allow_data_loss) where users may have written some.
      - V(verified) changes nothing, and fails with what is wrong.
    type: str
    choices: [started, stopped, cleaned, verified]
    default: started
  nodes:
    description: The nodes, by the names with which all of them reach each other. The order is kept. The first one manages the
      file system, the first O(meta_servers) and O(storage_servers) serve it, all mount it.
    type: list
    elements: str
    required: true
  storage_path:
    description: The nodes' own scratch. The services keep their files in the directory C(beeond) below it.
    type: path
    required: true
  mount_point:
    description: Where every node mounts the file system. The directory is made if it is missing, and must be empty.
    type: path
    required: true
  meta_servers:
    description: How many nodes serve metadata; V(0) means all.
    type: int
    default: 1
  storage_servers:
    description: How many nodes serve data; V(0) means all.
    type: int
    default: 0
  port_shift:
    description: What is added to BeeGFS' ports. Two file systems on the same nodes need two numbers.
    type: int
    default: 1000
  config_dir:
    description:
      - A directory with settings of the services that is there on every node, as C(beeond -f) takes it.
      - With version 8 a C(conn.auth) in it turns authentication of connections on (C(-C)). If one node has it, all of them need it.
        With version 7 the files in it name it (C(connAuthFile)).
      - With version 8 a C(license.pem) in it on the first node is the license (C(-H)). Without it the management service reads
        C(/etc/beegfs/license.pem), if that is there.
      - Without O(config_dir) connections are not authenticated.
    type: path
  interfaces:
    description: The network interfaces to use, the best first, for example V(ib0). Without them BeeGFS chooses. If one begins
      with C(ib), clients do not fall back to TCP.
    type: list
    elements: str
    default: []
  timeout_s:
    description: How long C(beeond) may take, and the removal of data on each node, in seconds. Neither has a limit of its own.
    type: int
    default: 300
  allow_data_loss:
    description: Whether data of users may be removed, a file system that is in use and not whole may be stopped to repair it, and
      programs that use it may be ended.
    type: bool
    default: false
  version:
    description: The major version of BeeGFS that has to be installed. Without it, the one that is.
    type: int
    choices: [7, 8]
  root_mode:
    description: Permissions of the file system's root directory after a start, in octal, quoted. Empty leaves them.
    type: str
    default: "01777"
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
attributes:
  check_mode:
    support: full
    details: Looks at all nodes and says what would be done.
  diff_mode:
    support: full
    details: Lists what is done.
  idempotent:
    support: full
    details: A second run changes nothing.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
notes:
  - Needs Python 3.9 or newer as C(python3), and C(/bin/bash) as root's login shell, on every node.
"""

EXAMPLES = r"""
- name: Start a file system over all nodes
  hpcai.gpu_cluster.beeond:
    nodes: "{{ groups['gpu_nodes'] }}"
    storage_path: /mnt/resource_nvme
    mount_point: /mnt/scratch
  run_once: true
  delegate_to: "{{ groups['gpu_nodes'] | first }}"

- name: Stop it, and remove its data
  hpcai.gpu_cluster.beeond:
    state: cleaned
    nodes: [gpu-1, gpu-2]
    storage_path: /mnt/resource_nvme
    mount_point: /mnt/scratch
    allow_data_loss: true
  run_once: true
  delegate_to: gpu-1
"""

RETURN = r"""
nodes:
  description: How every node is after the run, or was in check mode.
  returned: when the nodes could be looked at
  type: dict
  contains:
    mounted:
      description: Whether the file system is mounted.
      type: bool
    services:
      description: The services of BeeGFS that run.
      type: list
      elements: str
    target_bytes:
      description: The size of what the storage service uses, 0 on a node without one.
      type: int
    problems:
      description: What is not as asked for, such as a service that does not run, or why the node does not answer.
      type: list
      elements: str
  sample:
    gpu-1: {mounted: true, services: [beegfs-meta, beegfs-mgmtd, beegfs-storage], target_bytes: 960197124096, problems: []}
capacity_bytes:
  description: The size of the file system, 0 where it is not mounted.
  returned: when the nodes could be looked at
  type: int
done:
  description: What was done, or would be, in words.
  returned: success
  type: list
  elements: str
  sample: [start the file system]
left:
  description: What of a start that failed could not be taken back, by node.
  returned: when that is so
  type: dict
log_tail:
  description: The end of what C(beeond) said, and of the services' logs of the nodes at fault.
  returned: when a start failed
  type: dict
"""

import signal
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond.apply import FileSystem, only_one
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond.model import Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond.plan import all_problems
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond.request import SPEC, request_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond.verify import report, verify, verify_ended
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError, failing

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _interrupted(number: int, _frame: t.Any) -> t.NoReturn:
    # What is taken back now has a limit of its own, and another signal must not leave it half done.
    for other in _SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    raise ClusterError("interrupted", f"The run was ended by signal {number}.", "Run again.")


def reach(request: Request, *, check: bool, run: str = "") -> tuple[list[str], dict[str, t.Any]]:
    """Bring the file system to its state; returns what was done, or would be, and how the nodes are."""
    system = FileSystem(request, run)
    cluster = system.observe()
    if request.state == "verified":
        return [], verify(request, cluster)
    if check and request.state == "started" and not any(seen.program or seen.unreachable for seen in cluster.values()):
        # A run that is no check installs it before.
        return ["start the file system"], report(request, cluster, {})
    plan = system.plan(cluster)
    if check:
        return plan.words, report(request, cluster, plan.problems)
    if plan.words:
        system.apply(plan, cluster)
        cluster = system.observe()
    if request.state == "started":
        return plan.words, verify(request, cluster)
    return plan.words, verify_ended(
        request, cluster, {node: all_problems(request, {node: cluster[node]})[node] for node in plan.problems}
    )


def main() -> None:
    """Reach the state."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    with failing(module):
        request = request_of(module.params)
        for number in _SIGNALS:
            signal.signal(number, _interrupted)
        if module.check_mode or request.state == "verified":
            done, result = reach(request, check=True)
        else:
            with only_one(request) as run:
                done, result = reach(request, check=False, run=run)
    for node, seen in result["nodes"].items():
        if seen["problems"] and not module.check_mode:
            module.warn(f"{node}: {', '.join(seen['problems'])}. It was left out.")
    after = "".join(f"{line}\n" for line in done)
    module.exit_json(changed=bool(done), done=done, diff={"before": "", "after": after}, **result)


if __name__ == "__main__":
    main()
