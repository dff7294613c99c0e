# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The options that describe a plan, shared by gpu_affinity and gpu_binding, and the way from them to the plan."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.formats import HCA_NAMES, Style, render
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.nccl import PCI_SWITCHES
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.nccl_graph import nccl_graph
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.plan import BINDINGS, Request, make_plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.shapes import require_shapes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.topology import (
    UNPLACED,
    from_facts,
    from_profile,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.options import from_options

PLAN_OPTIONS: dict[str, t.Any] = {
    "ranks_per_node": {"type": "int", "default": 0},
    "gpus_per_rank": {"type": "int", "default": 0},
    "threads_per_rank": {"type": "int", "default": 0},
    "reserve_cpus": {"type": "str", "default": ""},
    "smt": {"type": "bool", "default": True},
    "binding": {"type": "str", "choices": list(BINDINGS), "default": "auto"},
    "unplaced": {"type": "str", "choices": list(UNPLACED), "default": "refuse"},
    "hca_names": {"type": "str", "choices": list(HCA_NAMES), "default": "auto"},
    "gres_type": {"type": "str", "default": ""},
    "rankfile_host": {"type": "str", "default": "+n0"},
    "pci_switches": {"type": "str", "choices": list(PCI_SWITCHES), "default": "auto"},
}


@dataclasses.dataclass(frozen=True)
class PlanRequest:
    """The options of a plan: what ranks want, what becomes of GPUs without a place, and in which words to write it."""

    ranks: Request
    unplaced: str
    style: Style

    @classmethod
    def of(cls, options: t.Mapping[str, t.Any]) -> PlanRequest:
        """From the parameters of a module that has PLAN_OPTIONS."""
        # What the node says of its CPUs is no option.
        style = from_options(Style, options, cpu_identity={})
        return from_options(cls, options, ranks=from_options(Request, options), style=style)


def plan_and_render(
    facts: t.Mapping[str, t.Any], profile: t.Mapping[str, t.Any], wanted: PlanRequest
) -> dict[str, t.Any]:
    """Facts lead; the profile fills what the kernel does not tell, or stands alone where there are no facts."""
    require_shapes(facts, profile)
    if facts:
        topology = from_facts(facts, profile, wanted.unplaced)
    elif profile:
        topology = from_profile(profile)
    else:
        raise ClusterError(
            "bad_input",
            "There are neither facts nor a profile to plan from.",
            "Run hpcai.gpu_cluster.node_facts first, or name the machine type's profile.",
        )
    result = render(make_plan(topology, wanted.ranks), wanted.style)
    nccl = profile.get("nccl") or {}
    if nccl.get("channels"):
        result["nccl_graph_xml"], reason = nccl_graph(topology, nccl["channels"])
        result["notes"] += [reason] if reason else []
    if "NCCL_TOPO_FILE" in (nccl.get("unset") or []):
        result["notes"].append("nccl_topology_xml: on this machine type a topology file lowers results, leave it unset")
    return result


__all__ = ["PLAN_OPTIONS", "PlanRequest", "plan_and_render"]
