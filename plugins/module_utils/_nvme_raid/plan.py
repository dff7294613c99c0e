# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What must be done: the way through the rules, from a request and a node to steps. Pure functions."""

from __future__ import annotations

import dataclasses

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.create import disks_to_expect, plan_new
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.existing import can_run, plan_existing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.find import find, labeled
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.judge import judge
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import Node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.remove import plan_absent
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import Wanted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.selector import unknown_names
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.steps import Plan, release


def plan(wanted: Wanted, node: Node) -> Plan:
    """What must be done. Raises ClusterError where nothing may be done."""
    found = find(wanted, node)
    verdicts = judge(wanted, node, found)
    if wanted.state == "inspected":
        if found and not found.active and not can_run(found):
            # What is left of an array that cannot run is ours, and can only be given up.
            verdicts = judge(wanted, node, dataclasses.replace(found, members=()))
        return Plan(verdicts, found, disks_to_expect=disks_to_expect(wanted, verdicts))
    if wanted.state == "absent":
        made = plan_absent(wanted, node, found, verdicts)
    elif found is None:
        made = plan_new(wanted, node, verdicts)
    else:
        made = plan_existing(wanted, node, found, verdicts)
    foreign = [] if found else [(disk, reason) for disk, reason in labeled(wanted, node) if reason]
    left = tuple(
        f"{disk.stable} holds {wanted.filesystem} labeled {wanted.label}, but it {reason}. It is left alone."
        for disk, reason in foreign
    )
    hidden: tuple[str, ...] = ()
    if node.directory.names and any(step.kind == "mount" for step in made.steps):
        hidden = (f"The mount hides files that are in {wanted.mount_point}: {', '.join(node.directory.names)}.",)
    # Where it was mounted before the mount point was changed.
    steps = (*made.steps, *map(release, node.left_behind))
    return dataclasses.replace(made, steps=steps, warnings=(*unknown_names(wanted, node.disks), *left, *hidden))


__all__ = ["plan"]
