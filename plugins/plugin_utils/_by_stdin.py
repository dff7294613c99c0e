# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Modules whose options may hold a SAS: they reach the node through stdin, whatever the settings say.

Ansible has a module run from a file on the node that holds the options, too, unless it pipelines. It does not where pipelining is
off, which it is by default, where files are to be kept, and for whatever runs in the background. A file stays where the module is
killed or the node loses power. So a SAS is piped always, and refused where the way to the node has no stdin.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.background import LIMIT_VARIABLE
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import (
    ModuleAction,
    names_role_variables,
)

Result = dict[str, t.Any]

_SIGNATURE = re.compile(r"(?i)sig(?:=|%3d)")


def holds_sas(value: t.Any) -> bool:
    """Whether a SAS is among the options: an option ``sas`` that is set, or a signature in any other."""
    if isinstance(value, dict):
        return any((key == "sas" and bool(item)) or holds_sas(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return any(holds_sas(item) for item in value)
    return isinstance(value, str) and bool(_SIGNATURE.search(value))


def _no_async() -> ClusterError:
    return ClusterError(
        "bad_input",
        "With `async` Ansible runs this module from a file on the node, and a SAS would lie in it. It was not sent.",
        "Leave `async` out. Or leave `sas` out, and give the nodes a managed identity.",
    )


class PipedModuleAction(ModuleAction):
    """Runs the module on the node; one that holds a SAS through stdin."""

    #: Whether the module goes on by itself where the task says ``async``.
    _goes_on = False

    @names_role_variables
    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> Result:
        """Run it, in the background, too."""
        if holds_sas(self._task.args) and not self._has_stdin():
            return {"failed": True, "changed": False, **self._no_stdin().as_result()}
        if holds_sas(self._task.args) and self._task.async_val and not self._goes_on:
            return {"failed": True, "changed": False, **_no_async().as_result()}
        return super().run(tmp, task_vars)

    def _is_pipelining_enabled(self, module_style: str, wrap_async: bool = False) -> bool:
        if module_style == "new" and holds_sas(self._task.args):
            return True
        return bool(super()._is_pipelining_enabled(module_style, wrap_async))

    def _has_stdin(self) -> bool:
        become = self._connection.become
        return bool(self._connection.has_pipelining and (become is None or getattr(become, "pipelining", True)))

    def _no_stdin(self) -> ClusterError:
        become = self._connection.become
        way = f"The connection {self._connection.transport}"
        if self._connection.has_pipelining and become is not None:
            way = f"become_method {become.name}"
        return ClusterError(
            "bad_input",
            f"{way} has no stdin for modules, and a SAS would lie in a file on the node. It was not sent.",
            "Connect with ssh, and become with sudo. Or leave `sas` out, and give the nodes a managed identity.",
        )


class BackgroundModuleAction(PipedModuleAction):
    """Has a module that can do so go on by itself where the task says ``async``, in place of Ansible's ``async_wrapper``."""

    _goes_on = True

    def _execute_module(self, *args: t.Any, wrap_async: bool = False, **options: t.Any) -> Result:
        if not wrap_async:
            return t.cast(Result, super()._execute_module(*args, wrap_async=False, **options))
        # Ansible adds the directory of jobs in the same way.
        self._task.environment.append({LIMIT_VARIABLE: str(self._task.async_val)})
        try:
            result = super()._execute_module(*args, wrap_async=False, **options)
        finally:
            self._task.environment.pop()
        # With async Ansible leaves this to async_wrapper.
        self._remove_tmp_path(self._connection._shell.tmpdir)
        return t.cast(Result, result)


__all__ = ["BackgroundModuleAction", "PipedModuleAction", "holds_sas"]
