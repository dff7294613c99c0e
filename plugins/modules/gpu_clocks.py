#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Set the clocks of all GPUs of a node, and give back exactly what they had."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: gpu_clocks
short_description: Set the clocks of all NVIDIA GPUs of a node, and give back what they had
version_added: 0.1.0
description:
  - Brings graphics and memory clocks of every GPU to a policy in one call, with locks (C(nvidia-smi -lgc), C(-lmc)) or
    application clocks (C(-ac)), whichever the GPU and its driver have. Each is undone by its own reset (C(-rgc), C(-rmc),
    C(-rac)).
  - Highest clocks are asked of each GPU, so that different GPUs in one node get each their own. Nothing is looked up in a
    table.
  - What a GPU had before is saved by its UUID in O(state_path) (mode 0600) before the first change, and
    O(state=restored) gives back exactly that.
  - GPUs that want the same share one call of nvidia-smi. A GPU that is lost, hangs, or refuses does not keep the others from
    being set. The task fails at the end and says for each GPU why.
  - nvidia-smi exits with 0 when it refuses a clock. Its sentences are read, and the clocks are read back.
  - Application clocks and persistence mode are compared with what the GPU says. A lock cannot be read (no driver up to R610
    has a query for it, and C(clocks.max) does not show it), so this module remembers what it locked. It believes its memory
    only while the node has not been rebooted, the driver has not been reloaded or changed, persistence mode is on, and the
    graphics clock is one that the lock allows or that a power cap or slowdown explains. Otherwise the lock is set again,
    which disturbs nothing.
  - A lock of the memory clock alone, and a lock that another tool sets to a value near ours, go unnoticed. A lock that
    was set before the first run is not known and restored as no lock.
  - Without persistence mode a lock may end with the last process that uses the GPU. It then counts as unknown and every run
    sets it again.
author:
  - The hpcai.gpu_cluster developers (@hpcai)
options:
  state:
    description:
      - With V(applied) the policy is put into effect.
      - With V(verified) nothing is changed, and the task fails where something would be.
      - With V(restored) each GPU gets back what was saved for O(layer). Where nothing is saved, nothing is done.
      - A job that ends (O(layer=job)) holds a GPU no longer, also where the GPU does not answer or does not take its clocks back.
        What it had before stays saved, and the next run that reaches the GPU gives it back.
    type: str
    choices: [applied, verified, restored]
    default: applied
  policy:
    description:
      - V(max) sets graphics and memory clock to the highest that each GPU can do, or to O(graphics_mhz) and
        O(memory_mhz). A memory clock that cannot be locked, and was not given, is left to the driver, which runs it at its
        highest under load.
      - V(locked) does the same with locks only. A GPU whose clock cannot be locked fails. For measurements, where the
        clock must not move.
      - V(values) sets only what O(graphics_mhz) and O(memory_mhz) name.
      - V(default) takes locks away and resets application clocks.
    type: str
    choices: [max, locked, values, default]
    default: max
  graphics_mhz:
    description: Graphics clock in MHz. More than the GPU's C(clocks.max.graphics) is refused.
    type: int
  memory_mhz:
    description: Memory clock in MHz. More than the GPU's C(clocks.max.mem) is refused.
    type: int
  method:
    description:
      - With V(auto) clocks are locked where the GPU can (graphics since Volta, memory since Ampere), and set as application
        clocks where it cannot and the driver still has them.
      - V(lock) and V(applications) allow one of the two. A lock holds the clock also when the GPU is idle, which costs power.
        Application clocks hold it while work runs. They are deprecated since CUDA 13.0.
    type: str
    choices: [auto, lock, applications]
    default: auto
  persistence:
    description: Whether to turn persistence mode on where it is off, because settings last only as long as the driver is in
      use. It is turned off again when the clocks are restored.
    type: bool
    default: true
  layer:
    description:
      - V(node) is how the node is meant to be, V(job) lies upon it for as long as a job runs.
      - While a job holds a GPU, a change of the V(node) layer takes effect when the job ends.
      - V(all) is for O(state=restored) only. It ends every job's layer and the node's.
    type: str
    choices: [node, job, all]
    default: node
  job:
    description: Who holds the V(job) layer. When several jobs share a GPU, its clocks are restored when the last of them
      goes.
    type: str
    default: playbook
  gpus:
    description:
      - Which GPUs, by index, UUID or bus id. Empty means all.
      - Those that answer are set, and the task fails at the end with those that do not. If none answers, nothing is done.
    type: list
    elements: str
    default: []
  required:
    description: Whether a node without a GPU is a failure. Where it is not, a GPU on the PCI bus that does not answer still is.
    type: bool
    default: true
  allow_unsupported:
    description: Whether a GPU that does not have a setting is left as it is instead of failing.
    type: bool
    default: false
  timeout_s:
    description: How long one call of C(nvidia-smi) may take, in seconds. One that takes longer is killed.
    type: int
    default: 30
  state_path:
    description: Where earlier clocks are saved.
    type: path
    default: /var/lib/gpu_clocks/state.json
  prolog:
    description:
      - The script that Slurm has to run before a job, where jobs are to set the clocks. With O(state=verified) the task fails where
        Slurm does not run it and O(epilog), and warns where that cannot be found out. Empty does not look.
      - What C(scontrol show config) says counts, else what O(slurm_conf) says. A link to the script, a pattern that fits one, and a
        script that calls it are fine.
    type: str
    default: ""
  epilog:
    description: The script that Slurm has to run after a job.
    type: str
    default: ""
  scontrol:
    description: Name or path of C(scontrol).
    type: str
    default: scontrol
  slurm_conf:
    description: The node's C(slurm.conf), for when C(scontrol) does not answer.
    type: path
    default: /etc/slurm/slurm.conf
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.gpu_facts.nvidia_smi
attributes:
  check_mode:
    support: full
    details:
      - Asks the GPUs and reports what would be set, per GPU and as commands. What a GPU refuses shows only when it is
        tried.
  diff_mode:
    support: full
    details: Shows persistence mode, application clocks and locks of each GPU, before and after.
  idempotent:
    support: full
    details: See the description for what can be read back and what is remembered.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
notes:
  - Changing clocks needs root on the machine that owns the GPUs. Containers and virtual machines with a virtual GPU are
    refused by the driver.
  - A GPU with MIG enabled has one clock for all its instances. It is set like any other.
seealso:
  - name: nvidia-smi
    description: The manual of nvidia-smi.
    link: https://docs.nvidia.com/deploy/nvidia-smi/index.html
  - name: NVML API reference
    description: Which architecture can lock which clock, and when settings are lost.
    link: https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceCommands.html
"""

EXAMPLES = r"""
- name: Run all GPUs at their highest clocks
  hpcai.gpu_cluster.gpu_clocks:

- name: Hold the graphics clock still for a measurement
  hpcai.gpu_cluster.gpu_clocks:
    policy: locked
    graphics_mhz: 1400
    layer: job

- name: Give back what was there before the measurement
  hpcai.gpu_cluster.gpu_clocks:
    state: restored
    layer: job

- name: Take back everything that was set
  hpcai.gpu_cluster.gpu_clocks:
    state: restored
    layer: all
"""

RETURN = r"""
gpus:
  description: What became of each GPU that answered.
  returned: always
  type: list
  elements: dict
  contains:
    index:
      description: Index of nvidia-smi.
      type: int
    uuid:
      description: UUID.
      type: str
    bus_id:
      description: PCI address.
      type: str
    status:
      description: V(ok), V(changed) or V(failed).
      type: str
    before:
      description: Persistence mode, application clocks and locks before.
      type: dict
    after:
      description: The same afterwards; in check mode, what it would be.
      type: dict
    clocks:
      description: Current and highest clocks, in MHz.
      type: dict
    problems:
      description: Why something was not done, each with C(setting), C(kind), C(message) and C(remedy).
      type: list
    notes:
      description: What is worth knowing, such as a clock that a power cap keeps below its lock.
      type: list
commands:
  description: Calls of nvidia-smi that changed something; in check mode, those that would be made.
  returned: always
  type: list
  sample: [[nvidia-smi, -i, "GPU-1b2c,GPU-3d4e", -lgc, "1410,1410"]]
unknown:
  description: GPUs that do not answer, and why.
  returned: always
  type: list
reason:
  description: Why there was nothing to do on a node without GPUs.
  returned: when the node has none and O(required=false)
  type: str
error_kind:
  description: Identifies the reason of a failure for programs, such as V(no_permission), V(unsupported), V(lost), V(timeout),
    V(not_applied) or V(not_as_wanted).
  returned: on failure
  type: str
remedy:
  description: What to do about it.
  returned: on failure
  type: str
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks import slurm
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.apply import Clocks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.request import ARGUMENT_SPEC, Request


def run(request: Request, *, check: bool) -> dict[str, t.Any]:
    """Do what was asked for."""
    clocks = Clocks(request.options)
    if request.state == "verified":
        return clocks.verify(request.wish, request.layer, request.holder)
    if request.state == "restored":
        return clocks.restore(request.layer, request.holder, check=check)
    return clocks.apply(request.wish, request.layer, request.holder, check=check)


def main() -> None:
    """Read, plan and, unless in check mode, apply."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        request = Request.of(module.params)
        unknown = slurm.check(request.scripts) if request.state == "verified" and request.scripts else ""
        result = run(request, check=module.check_mode)
    except ClusterError as exc:
        module.fail_json(**exc.as_result())
    except OSError as exc:
        module.fail_json(
            msg=f"{exc.filename or 'A file'}: {exc.strerror}. Run as root (become: true), or correct this on the node.",
            error_kind="os_error",
        )
    for gpu in result["gpus"]:
        for note in gpu["notes"]:
            module.warn(f"GPU {gpu['index']} ({gpu['bus_id']}): {note}")
    if unknown:
        module.warn(unknown)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
