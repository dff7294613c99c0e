# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter as_dict: turn the text of a survey into the dictionary that it stands for."""

from __future__ import annotations

DOCUMENTATION = r"""
name: as_dict
short_description: Turn the text of a survey into the dictionary that it stands for
version_added: 0.1.0
author:
  - The hpcai.gpu_cluster developers (@hpcai)
description:
  - Surveys of AWX, and C(-e name=value), give texts. The roles of this collection read each of their dictionaries through this filter.
  - A text is JSON where it begins with a brace; otherwise C(a=1,b=2), whose values are texts. The empty text is the empty dictionary.
    Any other value stays as it is.
options:
  _input:
    description: A dictionary, or the text of one.
    type: raw
    required: true
"""

EXAMPLES = r"""
- name: Show what a survey sets
  ansible.builtin.debug:
    msg: "{{ 'OMP_NUM_THREADS=4,NCCL_DEBUG=WARN' | hpcai.gpu_cluster.as_dict }}"
"""

RETURN = r"""
_value:
  description: The dictionary, or what else was given.
  type: raw
  sample: {NCCL_DEBUG: WARN, OMP_NUM_THREADS: "4"}
"""

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _survey_texts


def as_dict(value: t.Any) -> t.Any:
    """The value without the text around it. What is neither stays as it is: argument specs judge types."""
    try:
        return _survey_texts.as_dict(value)
    except ValueError as exc:
        raise AnsibleFilterError(f"What is to be a dictionary {exc}") from None


class FilterModule:
    """The filter for Ansible."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Name and function."""
        return {"as_dict": as_dict}
