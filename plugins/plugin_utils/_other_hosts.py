# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What an argument of a task that runs once would be on the other hosts it works for.

Templates cost a millisecond each, so the variables behind them are compared as they are written. Only where these differ between
hosts, which may still come to the same, they are made up. With a thousand hosts that is a fraction of what one task costs.
"""

from __future__ import annotations

import re
import typing as t

from ansible.errors import AnsibleError
from ansible.template import Templar

Variables = t.Mapping[str, t.Any]

_NAME = re.compile(r"[A-Za-z_]\w*")
#: Of Ansible's own, large and the same for everybody.
_OF_ALL = frozenset({"groups", "hostvars", "vars"})
_MISSING = object()


def values_elsewhere(text: t.Any, hosts: t.Iterable[str], templar: Templar, variables: Variables) -> dict[str, t.Any]:
    """What ``text`` is on those of the hosts where it may be something else, by host. ``text`` is an argument before it was templated.

    A host where it cannot be told, since a variable is missing there, is left out.
    """
    hostvars, here = variables["hostvars"], variables["inventory_hostname"]
    own = hostvars.raw_get(here)
    # What a play, a role or a loop says is the same for all hosts, and counts more than the inventory's.
    of_host = [name for name in _names_behind(text, variables) if _is_same(own.get(name, _MISSING), variables[name])]
    if not of_host:
        return {}
    values = {}
    for host in hosts:
        if host not in hostvars:  # a name that means something to the cluster only
            continue
        there = hostvars.raw_get(host) if host != here else own
        if all(_is_same(there.get(name, _MISSING), own[name]) for name in of_host):
            continue
        told = {name: there[name] for name in of_host if name in there}
        common = {name: value for name, value in variables.items() if name not in of_host}
        try:
            values[host] = templar.copy_with_new_env(available_variables={**common, **told}).template(text)
        except AnsibleError:
            continue
    return values


def _is_same(one: t.Any, other: t.Any) -> bool:
    return one is other or bool(one == other)


def _names_behind(text: t.Any, variables: Variables) -> set[str]:
    """The variables that a template reads, also through others."""
    found: set[str] = set()
    left = [str(text)]
    while left:
        for name in _NAME.findall(left.pop()):
            if name in found or name in _OF_ALL or name not in variables:
                continue
            found.add(name)
            value = variables[name]
            if isinstance(value, (str, list, dict)) and not name.startswith("ansible_") and "{" in str(value):
                left.append(str(value))
    return found


__all__ = ["values_elsewhere"]
