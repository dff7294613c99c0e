# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter cpu_mask: a list of CPUs as a hexadecimal mask."""

from __future__ import annotations

DOCUMENTATION = r"""
name: cpu_mask
short_description: Turn a list of CPUs into a hexadecimal mask
version_added: 0.1.0
author:
  - The hpcai.gpu_cluster developers (@hpcai)
description:
  - Gives the mask that C(srun --cpu-bind=mask_cpu) takes, without the C(0x) that C(I_MPI_PIN_DOMAIN) needs.
options:
  _input:
    description: CPUs as the kernel lists them, for example V(0-3,8-11), or as a list of numbers.
    type: raw
    required: true
seealso:
  - plugin: hpcai.gpu_cluster.cpu_list
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Bind a job to one NUMA node
  ansible.builtin.command:
    argv: [srun, "--cpu-bind=mask_cpu:{{ '24-47' | hpcai.gpu_cluster.cpu_mask }}", hostname]
  changed_when: false
"""

RETURN = r"""
_value:
  description: The mask.
  type: str
  sample: ffffff000000
"""

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.formats import cpu_mask as to_mask
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._ranges import parse_ranges


def cpu_mask(cpus: t.Any) -> str:
    """``0-3`` or ``[0, 1, 2, 3]`` to ``f``."""
    if isinstance(cpus, (list, tuple)) and all(
        isinstance(cpu, int) and not isinstance(cpu, bool) and cpu >= 0 for cpu in cpus
    ):
        return to_mask(cpus)
    if not isinstance(cpus, str):
        raise AnsibleFilterError(f"cpu_mask wants a text such as '0-3,8' or a list of numbers, not {cpus!r}.")
    try:
        return to_mask(parse_ranges(cpus))
    except ValueError as exc:
        raise AnsibleFilterError(f"cpu_mask: {cpus!r} is not a list of CPUs: {exc}.") from exc


class FilterModule:
    """The filter for Ansible."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Name and function."""
        return {"cpu_mask": cpu_mask}
