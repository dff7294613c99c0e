# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of beeond_software: messages name the role's variables, and a wrong key stays on the controller."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

from ansible.errors import AnsibleError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond_software.key import checked
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.repository import refuse_repository
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import (
    ModuleAction,
    names_role_variables,
)


class ActionModule(ModuleAction):
    """See plugins/modules/beeond_software.py for the documentation."""

    @names_role_variables
    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the module on the node, where its options may be known there and its key is the right one."""
        try:
            refuse_repository(self._task.args)
            text = self._key_text()
        except ClusterError as exc:
            return {"failed": True, "changed": False, **exc.as_result()}
        if text:
            self._task.args = {**self._task.args, "repository_key_text": text}
        return super().run(tmp, task_vars)

    def _key_text(self) -> str:
        """The key of the repository where it is a file of the controller; "" where the node fetches it, or none is wanted."""
        args = self._task.args
        key, wanted = str(args.get("repository_key") or ""), args.get("repository_suite") or args.get("repository_el")
        if not key or not wanted or "://" in key:
            return ""
        try:
            path = self._find_needle("files", os.path.expanduser(key))
            data = Path(self._loader.get_real_file(path)).read_bytes()
        except (AnsibleError, OSError) as exc:
            raise ClusterError(
                "key_missing",
                f"The repository's key {key} cannot be read on the controller: {exc}. Nothing was changed.",
                "Write its path as the controller has it into `repository_key`, or a URL that the nodes reach.",
            ) from exc
        return checked(data, str(args.get("repository_fingerprint") or ""), key)
