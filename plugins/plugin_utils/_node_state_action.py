# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The controller's half of modules that work through NodeState: bring what the module finds missing, then call it again."""

from __future__ import annotations

import os
import re
import typing as t

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.executor.module_common import _apply_action_arg_defaults
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.request import wanted_items, wanted_numbers
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._file_contents import FileContents, Sources
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._plain_arguments import PlainArguments
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import names_role_variables
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._run_action import run_action

#: How long apt waits for another that installs, in seconds, where the play does not say.
_LOCK_TIMEOUT_S = 300
#: Where an error says that an item stands.
_PLACE = re.compile(r"`(\w+)\[(\d+)\]")
#: What says that the play decides when apt reads its lists.
_APT_UPDATE = {"update_cache", "update-cache", "cache_valid_time"}


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


def _refuse_words(args: t.Mapping[str, t.Any]) -> None:
    """Refuse items as ``path=/x content=y``. Ansible would take them, but the action has to look into these."""
    for option in ("files", "archives"):
        items = args.get(option) or []
        for number, item in enumerate([items] if isinstance(items, str) else items, 1):
            if not isinstance(item, t.Mapping):
                # Without its words: a secret may be among them.
                raise AnsibleActionFail(
                    f"Item {number} of `{option}` is not a mapping. Write it with a line for each of its keys."
                )


def as_in_the_task(result: dict[str, t.Any], numbers: t.Mapping[str, list[int]]) -> dict[str, t.Any]:
    """A failure that counts items as the task does, ``files[3].path``, and not without those whose ``when`` is false."""

    def renumber(match: re.Match[str]) -> str:
        known, number = numbers.get(match[1], []), int(match[2])
        return f"`{match[1]}[{known[number] if number < len(known) else number}]"

    texts = {key: _PLACE.sub(renumber, result[key]) for key in ("msg", "remedy") if isinstance(result.get(key), str)}
    return {**result, **texts}


class NodeStateAction(PlainArguments):
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
            numbers = wanted_numbers(self._task.args)
            self._task.args = wanted_items(self._task.args)
        except ClusterError as exc:
            raise AnsibleActionFail(str(exc)) from exc
        self.validate_argument_spec(argument_spec=self.OPTIONS)
        _refuse_words(self._task.args)
        try:
            args, contents = self._arguments(variables)
        except ClusterError as exc:
            return as_in_the_task({"failed": True, "changed": False, **exc.as_result()}, numbers)
        installed: list[str] = []
        while True:
            if contents:
                args["files"] = contents.items()
            result = self._execute_module(module_name=self.MODULE, module_args=args, task_vars=variables)
            needs = result.get("needs")
            if result.get("failed"):
                return as_in_the_task(result, numbers)
            if not needs:
                break
            failure = self._bring(needs, args, contents, installed, variables)
            if failure:
                return failure
        if installed:
            added = package_changes(installed)
            result["changed"] = True
            result["changes"] = added["changes"] + list(result.get("changes") or [])
            result["diff"] = added["diff"] + list(result.get("diff") or [])
        return result

    def _bring(
        self,
        needs: t.Mapping[str, t.Any],
        args: dict[str, t.Any],
        contents: FileContents | None,
        installed: list[str],
        variables: dict[str, t.Any],
    ) -> dict[str, t.Any] | None:
        """Bring what the module asked for; returns the failure, or None. What was brought before never helps again."""
        still = [name for name in needs["packages"] if name in installed]
        if still:
            raise AnsibleActionFail(
                f"The package manager reported success, but {', '.join(still)} is still missing. "
                "Write the names as the distribution's package database has them, without versions."
            )
        staged = self._stage(args, needs["archives"])
        sent = contents is not None and contents.send(needs.get("files", []))
        if not (needs["packages"] or staged or sent):
            raise AnsibleActionFail(
                "The node asks again for what it was sent. Run the task again with -vvv to see what for."
            )
        installed += needs["packages"]
        return self._install(needs["packages"], needs["package_manager"], variables) if needs["packages"] else None

    def _arguments(self, variables: dict[str, t.Any]) -> tuple[dict[str, t.Any], FileContents | None]:
        """The task's arguments for this run to change, and what its files hold."""
        args = {**self._task.args}
        if args.get("archives"):
            args["archives"] = [dict(item) for item in args["archives"]]
        return args, Sources(self, variables).contents(args["files"]) if args.get("files") else None

    def _stage(self, args: dict[str, t.Any], paths: t.Sequence[str]) -> bool:
        """Transfer the controller's archives to the node's temporary directory; returns whether there was one."""
        wanted = [
            (number, entry)
            for number, entry in enumerate(args.get("archives") or [])
            if entry["path"].rstrip("/") in paths and not entry.get("staged_src")
        ]
        for number, entry in wanted:
            directory = self._connection._shell.tmpdir or self._make_tmp_path()
            try:
                source = self._find_needle("files", os.path.expanduser(entry["controller_src"]))
            except AnsibleError as exc:
                raise AnsibleActionFail(f"The archive for {entry['path']} is not on the controller. {exc}") from exc
            target = self._connection._shell.join_path(directory, f"{number}-{os.path.basename(source)}")
            self._transfer_file(source, target)
            self._fixup_perms2((directory, target))
            entry["staged_src"] = target
        return bool(wanted)

    def _install(self, names: list[str], manager: str, variables: dict[str, t.Any]) -> dict[str, t.Any] | None:
        """Install packages, with the play's defaults for the module that does; returns the failure, or None."""
        if manager == "dpkg":
            return self._install_with_apt(names, variables)
        # The action adds the defaults of the package manager's module.
        args = self._with_defaults("ansible.builtin.package", names)
        result = run_action(self, "ansible.builtin.package", args, variables)
        return {**result, "error_kind": "package_failed"} if result.get("failed") else None

    def _with_defaults(self, module: str, names: list[str]) -> dict[str, t.Any]:
        """The arguments that install these packages, and what the play's ``module_defaults`` say beside."""
        wanted = {"name": names, "state": "present"}
        return t.cast(dict[str, t.Any], _apply_action_arg_defaults(module, self._task, wanted, self._templar))

    def _install_with_apt(self, names: list[str], variables: dict[str, t.Any]) -> dict[str, t.Any] | None:
        """Its lists are read again only when a first try failed, unless the play says when."""
        wanted = {"lock_timeout": _LOCK_TIMEOUT_S, **self._with_defaults("ansible.builtin.apt", names)}
        tries = [{}] if _APT_UPDATE & set(wanted) else [{"update_cache": False}, {"update_cache": True}]
        result: dict[str, t.Any] = {}
        for update in tries:
            result = self._execute_module(
                module_name="ansible.builtin.apt", module_args={**wanted, **update}, task_vars=variables
            )
            if not result.get("failed"):
                return None
        return {**result, "error_kind": "package_failed"}


__all__ = ["NodeStateAction", "package_changes"]
