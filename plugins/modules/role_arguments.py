#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: role_arguments
short_description: Validate the arguments of roles before any of them starts
description:
  - Validates a node's variables by the argument specs of this collection's roles, and names everything that is wrong in one message.
    Ansible itself validates the arguments of a role when the role starts, after the roles before it have changed the node.
  - The verdicts are those of M(ansible.builtin.validate_argument_spec), with the roles' defaults for what is not set.
  - What is outside the limits that a role sets in C(meta/limits.yml) is refused, too, as numbers, paths that are not absolute, empty
    lists, texts of a wrong form such as a sha256, and what the value of another option requires. So is a SAS within a URL.
  - What only some phases of a role need is asked for where O(entry_point) and the run's tags let one of them run.
  - A value whose template fails because of a fact that is not known yet, as C(ansible_facts) or by a name of its own such as
    C(ansible_default_ipv4), of this node or through C(hostvars) of another, is not validated here. The result names such variables
    in RV(later). Validate again when it is known, because a role may turn a value of a wrong type into one that it takes. Where
    nothing will (O(again)), they are in a warning, with the names that are not known. A template that names another variable which
    does not exist is refused; so is one with a fact by a name of its own where Ansible gives it none (C(inject_facts_as_vars=false)).
  - Under the strategies C(free) and C(host_pinned) a role is refused, but for its entry point C(install), where one of its tasks runs
    once for all hosts.
  - A node on which modules would run as another user than root is refused, where the inventory or the command tells that.
  - A text for a list or a dictionary is judged as what it stands for, as the roles read it (P(hpcai.gpu_cluster.as_list#filter),
    P(hpcai.gpu_cluster.as_dict#filter)).
  - A value that is C(omit) is not set, as for Ansible.
  - Values of options that are secret are not in messages.
version_added: 0.1.0
author: The hpcai.gpu_cluster developers (@hpcai)
options:
  roles:
    description:
      - Names of roles of this collection, without the collection's.
      - A list in the list holds the roles that one play imports. Each of them has the defaults and vars of all of these, and of no
        other role, as in the play itself.
    type: list
    elements: raw
    required: true
  entry_point:
    description: Entry point of the roles. Of a role without this entry point nothing is validated.
    type: str
    default: main
  switches:
    description: Variables of playbooks, which have to be true or false where they are set.
    type: list
    elements: str
    default: []
  again:
    description: Whether the arguments are validated again when the facts are known. What lacks a fact then makes no warning here.
    type: bool
    default: false
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.attributes.read_only
  - hpcai.gpu_cluster.attributes.action
attributes:
  action:
    details: Runs on the controller. The node is not connected to.
  platform:
    details: Nothing runs on the node.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
"""

EXAMPLES = r"""
- name: Validate the arguments of the two roles that this play imports
  hpcai.gpu_cluster.role_arguments:
    roles: [[cluster_ssh, hpcx_mpi]]
"""

RETURN = r"""
argument_errors:
  description: What is wrong, one sentence each.
  type: list
  elements: str
  returned: on failure
later:
  description: Variables whose values need facts that are not known yet.
  type: list
  elements: str
  returned: when the roles are known
"""
