# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter mca_variables: parameters of Open MPI as environment variables."""

from __future__ import annotations

DOCUMENTATION = r"""
name: mca_variables
short_description: Turn MCA parameters of Open MPI into environment variables
version_added: 0.1.0
author:
  - The hpcai.gpu_cluster developers (@hpcai)
description:
  - Open MPI reads a parameter from the command line, from the variable C(OMPI_MCA_) with its name, and from its files, in
    this order.
options:
  _input:
    description: MCA parameters by name.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Run over sockets
  ansible.builtin.command:
    argv: [mpirun, hostname]
  environment: "{{ {'pml': 'ob1', 'btl': 'self,vader,tcp'} | hpcai.gpu_cluster.mca_variables }}"
  changed_when: false
"""

RETURN = r"""
_value:
  description: The same values by the names of environment variables.
  type: dict
  sample: {OMPI_MCA_btl: "self,vader,tcp", OMPI_MCA_pml: ob1}
"""

import typing as t

from ansible.errors import AnsibleFilterError


def mca_variables(parameters: t.Any) -> dict[str, t.Any]:
    """``{"pml": "ucx"}`` to ``{"OMPI_MCA_pml": "ucx"}``."""
    if not isinstance(parameters, t.Mapping):
        raise AnsibleFilterError(f"mca_variables wants a dictionary of MCA parameters, not {parameters!r}.")
    return {f"OMPI_MCA_{name}": value for name, value in parameters.items()}


class FilterModule:
    """The filter for Ansible."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Name and function."""
        return {"mca_variables": mca_variables}
