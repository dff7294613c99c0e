#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Launch the collectives of one round of a health check from this node."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: health_round
short_description: Launch the collectives of one round of a health check, side by side
version_added: 0.1.0
description:
  - Starts programs of nccl-tests over groups of nodes with C(mpirun) or C(srun), reads what they print, and ends on every node what one
    that hung or failed has left. M(hpcai.gpu_cluster.health_check) calls it once a round, on one node.
author:
  - The hpcai.gpu_cluster developers (@hpcai)
options:
  launches:
    description: What to launch. No node is in two of them.
    type: list
    elements: dict
    required: true
    suboptions:
      id:
        description: Names the launch in the result.
        type: str
        required: true
      nodes:
        description: The nodes, as this one can reach them by ssh or as Slurm knows them.
        type: list
        elements: str
        required: true
      program:
        description: A program of nccl-tests in O(directory).
        type: str
        required: true
      arguments:
        description: Its arguments.
        type: list
        elements: str
        required: true
      samples:
        description: How often it prints each size.
        type: int
        required: true
      timeout_s:
        description: After so many seconds it hangs, and is ended.
        type: float
        required: true
  tag:
    description: Marks all processes of the check, in the environment variable C(HPCAI_HEALTH_RUN).
    type: str
    required: true
  sweep:
    description: First end on these nodes what an earlier, interrupted run of the same O(tag) has left.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.health
attributes:
  check_mode:
    support: full
    details: Nothing is launched.
  diff_mode:
    support: N/A
    details: The module changes nothing.
  idempotent:
    support: full
    details: The module changes nothing.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
      - hpcai.gpu_cluster.health
"""

EXAMPLES = r"""
- name: Launch two pairs side by side
  hpcai.gpu_cluster.health_round:
    tag: by-hand
    launches:
      - {id: a, nodes: [gpu-1, gpu-2], program: all_reduce_perf, arguments: [-b, 1G, -e, 1G], samples: 1, timeout_s: 120}
      - {id: b, nodes: [gpu-3, gpu-4], program: all_reduce_perf, arguments: [-b, 1G, -e, 1G], samples: 1, timeout_s: 120}
    ranks_per_node: 8
"""

RETURN = r"""
outcomes:
  description:
    - What became of each launch, in their order. Bandwidths are in GB/s, one for each sample at the largest size.
    - C(trouble) is why it could not be started, C(unreadable) why it has no numbers, C(lost) has nodes
      that do not answer or on which something of it is left.
  returned: success
  type: list
  elements: dict
  sample:
    - id: a
      nodes: [gpu-1, gpu-2]
      seconds: 12.1
      rc: 0
      timed_out: false
      busbw_gbytes_s: [234.9]
      curve: [[1073741824, 234.9]]
      wrong: 0
      transport: [IB]
      unreadable: ""
      trouble: ""
      lost: {}
      log_tail: ""
seconds:
  description: How long the round took.
  returned: success
  type: float
"""

import time
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError, failing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._health.launch import Round, interruptible
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._health.model import Launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._health.options import (
    LAUNCH_OPTIONS,
    ROUND_OPTIONS,
    settings_of,
)


def work(params: dict[str, t.Any]) -> dict[str, t.Any]:
    """Launch, and tell what became of it."""
    began = time.monotonic()
    launches = [
        Launch(**{**one, "nodes": tuple(one["nodes"]), "arguments": tuple(one["arguments"])})
        for one in params["launches"]
    ]
    this_round = Round(settings_of(params))
    with interruptible():
        left = this_round.sweep(params["sweep"], ()) if params["sweep"] else {}
        stuck = [f"{node}: {'; '.join(answer['left'])}" for node, answer in left.items() if answer.get("left")]
        if stuck:
            raise ClusterError(
                "left_over",
                f"An earlier run of this check holds GPUs: {stuck[0]}.",
                "Reboot that node, or leave it out.",
            )
        outcomes = this_round.run(launches)
    return {
        "changed": False,
        "outcomes": [one.as_json() for one in outcomes],
        "seconds": round(time.monotonic() - began, 2),
    }


def main() -> None:
    """Launch a round."""
    module = AnsibleModule(argument_spec={**ROUND_OPTIONS, **LAUNCH_OPTIONS}, supports_check_mode=True)
    if module.check_mode:
        module.exit_json(changed=False, outcomes=[], seconds=0.0)
    with failing(module):
        result = work(module.params)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
