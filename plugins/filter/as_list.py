# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter as_list: turn the text of a survey into the list that it stands for."""

from __future__ import annotations

DOCUMENTATION = r"""
name: as_list
short_description: Turn the text of a survey into the list that it stands for
version_added: 0.1.0
author:
  - The hpcai.gpu_cluster developers (@hpcai)
description:
  - Surveys of AWX, and C(-e name=value), give texts. The roles of this collection read each of their lists through this filter.
  - A text is JSON where it begins with a bracket or a brace, which may be a single object; otherwise its values have commas between
    them, with or without spaces. The empty text is the empty list. Any other value stays as it is.
options:
  _input:
    description: A list, or the text of one.
    type: raw
    required: true
"""

EXAMPLES = r"""
- name: Show the nodes that a survey names
  ansible.builtin.debug:
    msg: "{{ 'gpu-1, gpu-2' | hpcai.gpu_cluster.as_list }}"
"""

RETURN = r"""
_value:
  description: The list, or what else was given.
  type: raw
  sample: [gpu-1, gpu-2]
"""

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _survey_texts


def as_list(value: t.Any) -> t.Any:
    """The value without the text around it. What is neither stays as it is: argument specs judge types."""
    try:
        return _survey_texts.as_list(value)
    except ValueError as exc:
        raise AnsibleFilterError(f"What is to be a list {exc}") from None


class FilterModule:
    """The filter for Ansible."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Name and function."""
        return {"as_list": as_list}
