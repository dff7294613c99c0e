# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Texts of a role that its own task refuses: whoever lists the role in a play of his own has no playbook that did so before."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._plain_arguments import resolved
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_files import (
    ROLES,
    RoleFiles,
    read_all,
    role_files,
)
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_forms import misformed
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._survey_texts import meant

# Before Ansible forks: in a play of somebody's own no playbook has read them.
read_all()


def misformed_here(action: ActionBase, variables: t.Mapping[str, t.Any]) -> dict[str, t.Any] | None:
    """The failure of a task in a role of this collection, one of whose texts has not its form; None otherwise."""
    collection, _dot, role = str(variables.get("ansible_role_name") or "").rpartition(".")
    if not role or collection not in ("", "hpcai.gpu_cluster") or not (ROLES / role).is_dir():
        return None
    errors = list(_faults(role_files(ROLES / role), action._templar))
    if not errors:
        return None
    count = "One argument" if len(errors) == 1 else f"{len(errors)} arguments"
    first = f"{count} of the role {role} {'is' if len(errors) == 1 else 'are'} wrong. Nothing was changed. Correct them and run again."
    return {"changed": False, "failed": True, "msg": "\n".join([first, *errors]), "error_kind": "bad_input"}


def _faults(files: RoleFiles, templar: t.Any) -> t.Iterator[str]:
    """A sentence each. What has no value, the task that reads it says better."""
    options = files.options.get("main", {})
    for name in options:
        form = files.limits.get(name, {}).get("form")
        if form is None or name not in templar.available_variables:
            continue
        try:
            value = meant(options[name], resolved(templar.available_variables[name], templar))
        except ValueError as exc:
            yield f"{name} {exc}"
        except AnsibleError:
            continue
        else:
            yield from (f"{name}: {fault}" for fault in misformed(form, value))


__all__ = ["misformed_here"]
