# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Validate the arguments of roles before any of them starts."""

from __future__ import annotations

import typing as t

from ansible import constants
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._play import out_of_step
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_arguments import validate
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_files import (
    ROLES,
    RoleFiles,
    read_all,
    role_files,
)
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_limits import phases_of
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import names_role_variables

Result = dict[str, t.Any]

# Here, once, and not in the worker of every node.
read_all()


class ActionModule(ActionBase):
    """See plugins/modules/role_arguments.py for the documentation. Nothing is run on the node, nor is it connected to."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    @names_role_variables
    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        """Validate them all, so that one message names everything that is wrong."""
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(
            argument_spec={
                "roles": {"type": "list", "elements": "raw", "required": True},
                "entry_point": {"type": "str", "default": "main"},
                "again": {"type": "bool", "default": False},
                "switches": {"type": "list", "elements": "str", "default": []},
            }
        )
        plays = [item if isinstance(item, list) else [item] for item in args["roles"]]
        unknown = [str(name) for play in plays for name in play if not _is_role(name)]
        if unknown:
            names = ", ".join(unknown)
            return _failed(
                f"The collection has no role {names}. `roles` takes its roles by their names, without hpcai.gpu_cluster."
            )
        together = [name for play in plays for name in play if role_files(ROLES / name).in_step]
        if refusal := self._without_root():
            return _failed(refusal)
        pace = (
            out_of_step(self._task, f"the role {together[0]}")
            if together and args["entry_point"] != "install"
            else None
        )
        if pace is not None:
            return {"changed": False, "failed": True, **pace.as_result()}
        errors: list[str] = []
        later: dict[str, str] = {}
        injected = constants.INJECT_FACTS_AS_VARS
        if args["switches"]:
            # Variables of playbooks, which belong to no role.
            limits = {name: {"switch": True} for name in args["switches"]}
            templar = self._templar.copy_with_new_env(available_variables=task_vars or {})
            anything = {name: {"type": "raw"} for name in limits}
            verdict = validate(anything, templar, injected=injected, limits=limits)
            errors += verdict.errors
            later.update(verdict.later)
        for play in plays:
            found = {name: role_files(ROLES / name) for name in play}
            templar = self._templar.copy_with_new_env(available_variables=_variables(found.values(), task_vars or {}))
            for name, files in found.items():
                options = files.options.get(args["entry_point"], {})
                phases = phases_of(name, args["entry_point"], task_vars or {})
                verdict = validate(options, templar, injected=injected, limits=files.limits, phases=phases)
                errors += [f"{name}: {error}" for error in verdict.errors]
                later.update(verdict.later)
        if errors:
            return {**_failed(_message(errors, first=args["again"])), "argument_errors": errors, "later": [*later]}
        if later and not args["again"]:
            # The same text on every node, which Ansible shows once.
            Display().warning(_unjudged(later))
        return {"changed": False, "later": [*later]}

    def _without_root(self) -> str:
        """The message where it is known that modules will not run as root. As whom ssh logs in by itself is not known."""
        if self._connection.transport == "local":
            return ""
        become = self._connection.become
        user = self.get_become_option("become_user") if become else self._get_remote_user()
        if user in (None, "", "root"):
            return ""
        remedy = (
            "Leave ansible_become_user and --become-user out."
            if become
            else f"Set ansible_become: true in the inventory, or give --become, so that {user} becomes root."
        )
        return f"Roles work as root, and on this node they would as {user}. Nothing was changed. {remedy}"


def _is_role(name: t.Any) -> bool:
    """Whether it is the name of a role, and not a path that leads out of the collection."""
    return isinstance(name, str) and name.isidentifier() and (ROLES / name / "tasks").is_dir()


def _variables(roles: t.Iterable[RoleFiles], host: Result) -> Result:
    """The host's variables with the roles' defaults below and their vars above, as a play has them that lists these roles."""
    roles = list(roles)
    defaults = {name: value for role in roles for name, value in role.defaults.items()}
    return {**defaults, **host, **{name: value for role in roles for name, value in role.variables.items()}}


def _failed(message: str) -> Result:
    return {"changed": False, "failed": True, "msg": message}


def _unjudged(later: t.Mapping[str, str]) -> str:
    """``later``: the arguments, and what each of them lacks, which shows a name that is misspelled."""
    names = ", ".join(f"{name} ({fact})" if fact else name for name, fact in later.items())
    return (
        f"These arguments lack a fact and are not validated: {names}. Run the playbook profile before this one in the same "
        "command where they read what it learns."
    )


def _message(errors: list[str], *, first: bool) -> str:
    """``first``: nothing has run before, and all is validated again. Otherwise other roles may have changed the node."""
    count = "One argument of a role is" if len(errors) == 1 else f"{len(errors)} arguments of roles are"
    so_far = "Nothing was changed." if first else "The roles that take them have not run."
    return "\n".join([f"{count} wrong. {so_far} Correct them and run again.", *errors])
