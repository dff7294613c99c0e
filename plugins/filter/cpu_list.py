# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter cpu_list: a hexadecimal mask as a list of CPUs."""

from __future__ import annotations

DOCUMENTATION = r"""
name: cpu_list
short_description: Turn a hexadecimal mask of CPUs into a list
version_added: 0.1.0
author:
  - The hpcai.gpu_cluster developers (@hpcai)
description:
  - Gives the list that C(taskset -c), C(numactl --physcpubind) and systemd's C(CPUAffinity) take. The reverse of
    P(hpcai.gpu_cluster.cpu_mask#filter).
options:
  _input:
    description: The mask, with or without C(0x), with or without the commas of the kernel's own masks.
    type: str
    required: true
seealso:
  - plugin: hpcai.gpu_cluster.cpu_mask
    plugin_type: filter
"""

EXAMPLES = r"""
- name: See which CPUs a mask in a job script means
  ansible.builtin.debug:
    msg: "{{ 'ffffff000000' | hpcai.gpu_cluster.cpu_list }}"
"""

RETURN = r"""
_value:
  description: The CPUs.
  type: str
  sample: 24-47
"""

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.formats import mask_cpus
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._ranges import format_ranges


def cpu_list(mask: t.Any) -> str:
    """``f0f`` to ``0-3,8-11``."""
    if not isinstance(mask, str):
        raise AnsibleFilterError(f"cpu_list wants a text such as 'f0f', not {mask!r}: quote a mask of digits only.")
    try:
        return format_ranges(mask_cpus(mask))
    except ValueError as exc:
        raise AnsibleFilterError(f"cpu_list: {mask!r} is not a hexadecimal mask.") from exc


class FilterModule:
    """The filter for Ansible."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Name and function."""
        return {"cpu_list": cpu_list}
