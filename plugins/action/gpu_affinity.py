# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the ranks of a node on the controller: profiles lie here, and nothing on a node is needed."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.options import (
    PLAN_OPTIONS,
    PlanRequest,
    plan_and_render,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.profile import Profile
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._plain_arguments import PlainArguments
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profiles import SHIPPED, FileLibrary
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import names_role_variables

ARGUMENT_SPEC: dict[str, t.Any] = {
    "profile": {"type": "str", "default": ""},
    "profile_paths": {"type": "list", "elements": "str", "default": []},
    "facts": {"type": "dict", "default": {}},
    **PLAN_OPTIONS,
}


class ActionModule(PlainArguments):
    """See plugins/modules/gpu_affinity.py for the documentation."""

    _requires_connection = False

    @names_role_variables
    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        _validated, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        facts = args["facts"]
        if not facts and not args["profile"]:
            facts = ((task_vars or {}).get("ansible_facts") or {}).get("gpu_node") or {}
        try:
            profile = self._profile(args["profile"], args["profile_paths"]) if args["profile"] else {}
            return {"changed": False, **plan_and_render(facts, profile, PlanRequest.of(args))}
        except ClusterError as exc:
            return {"failed": True, "changed": False, **exc.as_result()}

    @staticmethod
    def _profile(name: str, paths: list[str]) -> Profile:
        library = FileLibrary([*(Path(path).expanduser() for path in paths), SHIPPED], "profile_paths")
        profile = library.load(name)
        if profile is None:
            known = ", ".join(sorted(item["name"] for item in library.load_all()))
            raise ClusterError("profile_unknown", f"There is no profile {name!r}.", f"Choose one of {known}.")
        return profile
