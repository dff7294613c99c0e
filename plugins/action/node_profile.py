# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gather a node's facts, choose its profile on the controller, and say where the two differ."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible.utils.display import Display
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.compare import compare, describe, worst
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.options import FACT_OPTIONS
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.profile import (
    CHECKS,
    Choice,
    Profile,
    choose_profile,
    deep_merge,
)
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._plain_arguments import PlainArguments
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profiles import SHIPPED, FileLibrary, require_valid
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import (
    names_role_variables,
    translation_for,
)

ARGUMENT_SPEC: dict[str, t.Any] = {
    "name": {"type": "str", "default": ""},
    "paths": {"type": "list", "elements": "str", "default": []},
    "overrides": {"type": "dict", "default": {}},
    "checks": {"type": "list", "elements": "str", "choices": list(CHECKS), "default": list(CHECKS)},
    "state": {"type": "str", "choices": ["verified", "gathered"], "default": "verified"},
    "on_mismatch": {"type": "str", "choices": ["fail", "warn"], "default": "fail"},
    **FACT_OPTIONS,
}


class ActionModule(PlainArguments):
    """See plugins/modules/node_profile.py for the documentation."""

    @names_role_variables
    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        _validated, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        gathered: dict[str, t.Any] = self._execute_module(
            module_name="hpcai.gpu_cluster.node_facts",
            module_args={option: args[option] for option in FACT_OPTIONS},
            task_vars=task_vars,
        )
        if gathered.get("failed") or gathered.get("unreachable"):
            return gathered
        facts = gathered["ansible_facts"]["gpu_node"]
        try:
            library = FileLibrary([*(Path(path).expanduser() for path in args["paths"]), SHIPPED])
            choice = choose_profile(facts, args["name"], library)
            profile = deep_merge(choice.profile, args["overrides"])
            require_valid(profile, f"{choice.profile['name']} with `overrides`")
        except ClusterError as exc:
            return {"failed": True, "changed": False, **exc.as_result()}
        verdicts = compare(profile, facts, args["checks"])
        # Here, because they go into facts and a warning, too.
        say = translation_for(self, task_vars or {})
        verdicts = [
            {**item, **({"remedy": say(item["remedy"])} if item.get("remedy") else {})}
            for item in (*_choice_verdicts(choice), *verdicts)
        ]
        return self._result(
            facts, profile, choice, verdicts, args, str((task_vars or {}).get("inventory_hostname", ""))
        )

    def _result(
        self,
        facts: dict[str, t.Any],
        profile: Profile,
        choice: Choice,
        verdicts: list[dict[str, t.Any]],
        args: dict[str, t.Any],
        host: str,
    ) -> dict[str, t.Any]:
        verdict = worst(verdicts)
        left_out = [check for check in CHECKS if check not in args["checks"]]
        findings = [item for item in verdicts if item["verdict"] != "ok"]
        counts = {
            level: sum(item["verdict"] == level for item in verdicts) for level in ("ok", "warn", "incomplete", "fail")
        }
        summary = f"{profile['name']}, chosen by {choice.by}: " + ", ".join(
            f"{number} {level}" for level, number in counts.items() if number
        )
        if left_out:
            summary += f" (not asked for: {', '.join(left_out)})"
        fact = {**profile, "chosen_by": choice.by, "verdict": verdict, "findings": findings, "not_checked": left_out}
        result: dict[str, t.Any] = {
            "changed": False,
            "ansible_facts": {"gpu_node": facts, "node_profile": fact},
            "verdict": verdict,
            "verdicts": verdicts,
            "findings": findings,
            "msg": summary,
        }
        if args["state"] == "gathered":
            return result
        wrong = describe(verdicts, "fail")
        if wrong and args["on_mismatch"] == "fail":
            # Facts of a failed task are not kept: leaving them out keeps the report short enough to be read.
            return {
                "failed": True,
                "changed": False,
                "msg": f"The node is not what its profile says. {summary}\n{wrong}",
                "error_kind": "profile_mismatch",
                "verdict": verdict,
                "findings": findings,
            }
        remarks = describe(verdicts, "fail", "warn", "incomplete")
        if remarks:
            Display().warning(f"{host}: {summary}\n{remarks}")
        return result


def _choice_verdicts(choice: Choice) -> list[dict[str, t.Any]]:
    """Nothing is proven about a node whose machine type is not known, so that it must not look fine."""
    if not choice.notes:
        return []
    return [
        {
            "check": "profile",
            "verdict": "incomplete",
            "what": "machine type",
            "expected": "a profile of its own",
            "found": "; ".join(choice.notes),
            "source": f"chosen by {choice.by}",
            "remedy": "Set `name`, or add a file to `paths`.",
        }
    ]
