#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Documentation only: the work is done on the controller, in plugins/action/node_profile.py.

from __future__ import annotations

DOCUMENTATION = r"""
module: node_profile
short_description: Tell what a GPU node should be and whether it is
version_added: 0.1.0
author:
  - The hpcai.gpu_cluster developers (@hpcai)
description:
  - Gathers the facts of M(hpcai.gpu_cluster.node_facts), chooses the profile of the machine type and compares the two.
  - The machine type is the one of O(name), else the one that the cloud's instance metadata names, else the one whose
    product name the firmware carries, else the one whose GPUs (model and PCI addresses) the node has, else V(generic),
    which expects nothing.
  - Verdicts are V(ok), V(warn), V(fail) and V(incomplete). A tool that is missing, hangs or may not be used gives
    V(incomplete), never V(fail); a value that its profile marks C(verified=false) gives V(warn) at most.
options:
  name:
    description:
      - Name of the profile, which is the name of its file. Empty means to find out.
    type: str
    default: ""
  paths:
    description:
      - Directories on the controller with profiles of the site. A file there hides a shipped one of the same name.
    type: list
    elements: str
    default: []
  overrides:
    description:
      - Single values to lay over the chosen profile. Mappings are merged key by key, everything else is replaced, and
        a null takes a value away, so that it is not expected any more.
      - Without C(gpus), C(fabric) or C(fabric.hcas) the profile's C(numa.nodes) do not name these devices either.
    type: dict
    default: {}
  checks:
    description:
      - Parts of the profile to compare. The others are named as not checked.
    type: list
    elements: str
    choices: [cpu, memory, gpus, numa, fabric, nvme]
    default: [cpu, memory, gpus, numa, fabric, nvme]
  state:
    description:
      - With V(verified) the task fails or warns where the node differs from its profile.
      - With V(gathered) the facts are set, and the verdicts are only returned.
    type: str
    choices: [verified, gathered]
    default: verified
  on_mismatch:
    description:
      - Whether a V(fail) verdict fails the task or only warns.
    type: str
    choices: [fail, warn]
    default: fail
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.attributes.read_only
  - hpcai.gpu_cluster.attributes.action
  - hpcai.gpu_cluster.gpu_facts
  - hpcai.gpu_cluster.gpu_facts.nvidia_smi
attributes:
  action:
    details: Runs on the controller and calls one module on the node.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
      - hpcai.gpu_cluster.gpu_facts
seealso:
  - module: hpcai.gpu_cluster.node_facts
"""

EXAMPLES = r"""
- name: Know what the node is, and stop if it is not what it should be
  hpcai.gpu_cluster.node_profile:

- name: Accept a node with less memory
  hpcai.gpu_cluster.node_profile:
    name: Standard_ND96asr_v4
    overrides:
      memory:
        mib: 800000
"""

RETURN = r"""
ansible_facts:
  description: RV(ansible_facts.gpu_node) as of M(hpcai.gpu_cluster.node_facts), and the profile.
  returned: success
  type: dict
  contains:
    gpu_node:
      description: What the node is made of.
      returned: success
      type: dict
    node_profile:
      description:
        - The profile with the overrides applied, and C(chosen_by), C(verdict), C(findings) (every verdict that is not
          V(ok)) and C(not_checked).
      returned: success
      type: dict
verdict:
  description: The worst verdict; V(incomplete) counts as worse than V(warn).
  returned: always
  type: str
  sample: ok
verdicts:
  description: All verdicts as C({check, verdict, what, expected, found, source, remedy}).
  returned: success
  type: list
  elements: dict
findings:
  description: The verdicts that are not V(ok).
  returned: always
  type: list
  elements: dict
"""
