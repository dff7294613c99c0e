# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a role knows when it starts, and what Ansible's own validation says of it."""

from __future__ import annotations

import typing as t

from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins.action.validate_argument_spec import ActionModule as AnsibleValidation
from ansible.plugins.connection.local import Connection
from ansible.template import Templar
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_files import ROLES, role_files

HOST = {
    "inventory_hostname": "gpu-1",
    "ansible_play_hosts": ["gpu-1"],
    "ansible_play_hosts_all": ["gpu-1"],
    "ansible_facts": {},
}
# Reads a spec once.
LOADER = DataLoader()


def known(role: str, **host: t.Any) -> dict[str, t.Any]:
    """The role's defaults, the host's variables, and the role's vars."""
    files = role_files(ROLES / role)
    return {**files.defaults, **HOST, **host, **files.variables}


def spec_of(role: str, entry: str) -> dict[str, t.Any]:
    """The options of an entry point as Ansible itself reads them."""
    path = ROLES / role / "meta/argument_specs.yml"
    # Not copied: a copy of tagged data takes longer than to judge by it.
    specs = LOADER.load_from_file(str(path), unsafe=True, trusted_as_template=True)["argument_specs"]
    return t.cast("dict[str, t.Any]", specs[entry].get("options") or {})


def by_ansible(
    role: str, entry: str, variables: dict[str, t.Any], *, whole: bool = False, without: t.Collection[str] = ()
) -> list[str] | None:
    """What Ansible's own task says about the spec as Ansible itself reads it. None: it failed over the value.

    ``whole``: with the dictionaries that a spec calls raw so that a text passes. ``without`` these options.
    """
    spec = {name: option for name, option in spec_of(role, entry).items() if name not in without}
    for name, option in spec.items() if whole else ():
        if option.get("elements") == "raw" and option.get("options"):
            spec[name] = {**option, "elements": "dict"}
    task, connection = Task(), Connection(PlayContext())
    task.args = {"argument_spec": spec, "provided_arguments": {}}
    action = AnsibleValidation(task, connection, None, LOADER, Templar(loader=LOADER, variables=variables), None)
    try:
        return t.cast("list[str]", action.run(task_vars=variables).get("argument_errors", []))
    except (AttributeError, TypeError, ValueError):
        return None
