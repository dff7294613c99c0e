# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The controller's half of modules that work through NodeState: bring what the module finds missing, then call it again."""

from __future__ import annotations

import os
import typing as t

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.request import wanted_items
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._file_contents import FileContents
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import names_role_variables


def package_changes(names: list[str]) -> dict[str, t.Any]:
    """How installed packages appear in the result, as the module would have written it."""
    return {
        "changes": [{"kind": "package", "name": name, "what": "install"} for name in names],
        "diff": [
            {
                "before_header": f"package {name}",
                "after_header": f"package {name} (install)",
                "before": "",
                "after": f"{name}\n",
            }
            for name in names
        ],
    }


class NodeStateAction(ActionBase):
    """One module call where nothing is missing; otherwise packages, archives and a second call.

    An action names the module and its options.
    """

    MODULE: t.ClassVar[str]
    OPTIONS: t.ClassVar[dict[str, t.Any]]

    _supports_check_mode = True
    _supports_async = False

    @names_role_variables
    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the module, bring what it needs, and run it again."""
        super().run(tmp, task_vars)
        variables = task_vars or {}
        try:
            # First, so that an item that is not wanted may be anything.
            self._task.args = wanted_items(self._task.args)
        except ClusterError as exc:
            raise AnsibleActionFail(str(exc)) from exc
        self.validate_argument_spec(argument_spec=self.OPTIONS)
        args = self._arguments(variables)
        result = self._execute_module(module_name=self.MODULE, module_args=args, task_vars=variables)
        needs = result.get("needs")
        if result.get("failed") or not needs:
            return result
        self._stage(args, needs["archives"])
        if needs["packages"]:
            failure = self._install(needs["packages"], needs["package_manager"], variables)
            if failure:
                return failure
        result = self._execute_module(module_name=self.MODULE, module_args=args, task_vars=variables)
        still = (result.get("needs") or {}).get("packages")
        if still:
            names = ", ".join(still)
            raise AnsibleActionFail(
                f"The package manager reported success, but {names} is still missing. "
                "Write the names as the distribution's package database has them, without versions."
            )
        added = package_changes(needs["packages"])
        if needs["packages"]:
            result["changed"] = True
            result["changes"] = added["changes"] + list(result.get("changes") or [])
            result["diff"] = added["diff"] + list(result.get("diff") or [])
        return result

    def _arguments(self, variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """The task's arguments as the module takes them, for this run to change."""
        args = {**self._task.args}
        contents = FileContents(self, variables)
        if args.get("files"):
            args["files"] = [contents.filled(item) for item in args["files"]]
        if args.get("archives"):
            args["archives"] = [dict(item) for item in args["archives"]]
        return args

    def _stage(self, args: dict[str, t.Any], paths: list[str]) -> None:
        """Transfer the controller's archives to the node's temporary directory."""
        if not paths:
            return
        directory = self._connection._shell.tmpdir or self._make_tmp_path()
        for number, entry in enumerate(args["archives"]):
            if entry["path"].rstrip("/") not in paths:
                continue
            try:
                source = self._find_needle("files", os.path.expanduser(entry["controller_src"]))
            except AnsibleError as exc:
                raise AnsibleActionFail(f"The archive for {entry['path']} is not on the controller. {exc}") from exc
            target = self._connection._shell.join_path(directory, f"{number}-{os.path.basename(source)}")
            self._transfer_file(source, target)
            self._fixup_perms2((directory, target))
            entry["staged_src"] = target

    def _install(self, names: list[str], manager: str, variables: dict[str, t.Any]) -> dict[str, t.Any] | None:
        """Install packages; returns the failure, or None. apt's lists are read again only when a first try failed."""
        if manager == "dpkg":
            wanted = {"name": names, "state": "present", "lock_timeout": 300}
            result: dict[str, t.Any] = {"failed": True}
            for update in (False, True):
                result = self._execute_module(
                    module_name="ansible.builtin.apt",
                    module_args={**wanted, "update_cache": update},
                    task_vars=variables,
                )
                if not result.get("failed"):
                    return None
            return {**result, "error_kind": "package_failed"}
        task = self._task.copy()
        task.args = {"name": names, "state": "present"}
        action = self._shared_loader_obj.action_loader.get(
            "ansible.builtin.package",
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
        result = action.run(task_vars=variables)
        return {**result, "error_kind": "package_failed"} if result.get("failed") else None


__all__ = ["NodeStateAction", "package_changes"]
