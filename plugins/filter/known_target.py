# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter known_target: refuse the hosts of a play that the inventory does not have."""

from __future__ import annotations

DOCUMENTATION = r"""
name: known_target
short_description: Refuse the hosts of a play that the inventory does not have
version_added: 0.1.0
author:
  - The hpcai.gpu_cluster developers (@hpcai)
description:
  - A play whose C(hosts) match nothing is skipped, and the run ends as if all were well. The playbooks of this collection read their
    C(target) through this filter, which ends the run with one sentence instead.
  - What C(--limit) leaves out is there all the same. An inventory without any host is left to Ansible, which warns of it itself.
options:
  _input:
    description: The pattern, as C(hosts) takes it.
    type: raw
    required: true
  groups:
    description: The variable C(groups).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Work on what -e target names
  hosts: "{{ target | hpcai.gpu_cluster.known_target(groups) | default('gpu_nodes') }}"
"""

RETURN = r"""
_value:
  description: The pattern as it was.
  type: raw
  sample: gpu_nodes
"""

import typing as t

from ansible.errors import AnsibleFilterError
from ansible.plugins.lookup.inventory_hostnames import LookupModule


def known_target(pattern: t.Any, groups: t.Mapping[str, t.Sequence[str]]) -> t.Any:
    """The pattern, where a host matches it."""
    names = groups.get("all", ())
    # Looked at first: every play asks, and to read a pattern means to build an inventory.
    if not names or (isinstance(pattern, str) and (groups.get(pattern) or pattern in names)):
        return pattern
    if pattern and LookupModule().run([pattern] if isinstance(pattern, str) else pattern, {"groups": groups}):
        return pattern
    known = sorted(name for name, hosts in groups.items() if hosts and name != "ungrouped")
    raise AnsibleFilterError(
        f"target is {pattern!r}, and no host of the inventory matches it. Nothing was done. Name a host, or one of the groups "
        f"{', '.join(known)}."
    )


class FilterModule:
    """The filter for Ansible."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Name and function."""
        return {"known_target": known_target}
