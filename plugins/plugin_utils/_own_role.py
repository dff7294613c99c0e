# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Texts of a role that its own task refuses: whoever lists the role in a play of his own has no playbook that did so before."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_arguments import validate
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_files import ROLES, role_files


def misformed_here(action: ActionBase, variables: t.Mapping[str, t.Any]) -> dict[str, t.Any] | None:
    """The failure of a task in a role of this collection, one of whose texts has not its form; None otherwise."""
    collection, _dot, role = str(variables.get("ansible_role_name") or "").rpartition(".")
    if not role or collection not in ("", "hpcai.gpu_cluster") or not (ROLES / role).is_dir():
        return None
    files = role_files(ROLES / role)
    forms = {name: limit for name, limit in files.limits.items() if "form" in limit}
    options = {name: option for name, option in files.options.get("main", {}).items() if name in forms}
    errors = validate(options, action._templar, limits=forms).errors if options else []
    if not errors:
        return None
    count = "One argument" if len(errors) == 1 else f"{len(errors)} arguments"
    first = f"{count} of the role {role} {'is' if len(errors) == 1 else 'are'} wrong. Nothing was changed. Correct them and run again."
    return {"changed": False, "failed": True, "msg": "\n".join([first, *errors]), "error_kind": "bad_input"}


__all__ = ["misformed_here"]
