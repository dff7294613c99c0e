#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the map by which gpu-bind binds ranks next to their GPUs, and prove that it does."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: gpu_binding
short_description: Write the map by which gpu-bind places ranks on a node, and prove that it does
version_added: 0.1.0
description:
  - Plans like M(hpcai.gpu_cluster.gpu_affinity) from the node's facts, writes the map that C(gpu-bind) reads, and starts
    a process through C(gpu-bind) for every different place in it to see in C(/proc) that it is there.
  - The map is made of CPUs that the node has. A profile only tells where GPUs are that the kernel does not place.
  - On a node without GPUs whose profile expects none it does nothing.
  - Writes the files that NCCL needs where a virtual machine hides its PCIe topology, from the same plan.
author:
  - The hpcai.gpu_cluster developers (@hpcai)
options:
  state:
    description:
      - V(present) writes what is missing and then proves it, V(verified) writes nothing and fails where the map is not
        the one that would be written.
      - V(absent) takes away the map and the files for NCCL that were written with it.
    type: str
    choices: [present, verified, absent]
    default: present
  facts:
    description: The node's facts, C(ansible_facts.gpu_node). Empty, they are gathered.
    type: dict
    default: {}
  profile:
    description: The node's profile, C(ansible_facts.node_profile).
    type: dict
    default: {}
  source:
    description:
      - Where the NUMA nodes of GPUs come from. V(facts) is the kernel alone, V(profile) the profile alone, V(auto) the
        kernel, and the profile for GPUs of which the kernel does not know it.
    type: str
    choices: [auto, facts, profile]
    default: auto
  map:
    description: The map's path.
    type: path
    default: /etc/gpu-bind/map
  gpu_bind:
    description: The path of C(gpu-bind).
    type: path
    default: /usr/local/bin/gpu-bind
  gres_conf:
    description: Where to write lines for Slurm's C(gres.conf). Empty writes none.
    type: str
    default: ""
  nccl_topology:
    description:
      - Where to write a topology file for NCCL. Empty writes none.
      - V(auto) is where the profile's C(NCCL_TOPO_FILE) (C(nccl.env)) says, and nowhere if it says nothing. A file that is there
        already, such as the one of a vendor's image, is left alone.
    type: str
    default: auto
  nccl_graph:
    description:
      - Where to write a graph file for NCCL, from the channels of the profile (C(nccl.channels)). Empty writes none.
      - V(auto) is where the profile's C(NCCL_GRAPH_FILE) says, as with O(nccl_topology). No profile of this collection names one,
        because NCCL ends every job that does not use all GPUs of its graph.
    type: str
    default: auto
  allow_overwrite:
    description:
      - Whether files of another author at O(gres_conf), O(nccl_topology), O(nccl_graph) or O(map) may be replaced.
      - Without it they are refused before anything is changed. Those of this module say so in their first line; one at O(map) that
        reads like a map counts as this module's, too.
    type: bool
    default: false
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.gpu_plan
attributes:
  check_mode:
    support: full
    details: Reports what would be written. Nothing is proven while something would be.
  diff_mode:
    support: full
    details: One entry per file.
  idempotent:
    support: full
    details: A second run changes nothing.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
      - hpcai.gpu_cluster.gpu_plan
seealso:
  - module: hpcai.gpu_cluster.gpu_affinity
"""

EXAMPLES = r"""
- name: Write the map of this node
  hpcai.gpu_cluster.gpu_binding:

- name: See whether it still fits
  hpcai.gpu_cluster.gpu_binding:
    state: verified
    facts: "{{ ansible_facts['gpu_node'] }}"
"""

RETURN = r"""
plan:
  description: What was planned, like the result of M(hpcai.gpu_cluster.gpu_affinity); empty on a node without GPUs.
  returned: success
  type: dict
proven:
  description: For how many different places a process was started and found there.
  returned: success
  type: int
changes:
  description: What was changed, or would be.
  returned: success
  type: list
  elements: dict
  sample: [{kind: file, name: /etc/gpu-bind/map, what: create}]
error_kind:
  description: Identifies the reason of a failure for programs.
  returned: on failure
  type: str
  sample: profile_does_not_fit
remedy:
  description: What to do about a failure.
  returned: on failure
  type: str
"""

import dataclasses
import os
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError, failing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.binding import (
    PROBE,
    SOURCES,
    judge_probe,
    map_text,
    nothing_to_pin,
    probes,
    sources,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.foreign import (
    HEAD,
    MARK,
    foreign_among,
    is_map,
    read_regular,
    refuse,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.nccl_files import (
    AUTO,
    FILES,
    folders,
    is_foreign,
    place,
    require_distinct,
    written_beside,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.options import (
    PLAN_OPTIONS,
    PlanRequest,
    plan_and_render,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.shapes import require_shapes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.options import from_options, require_absolute
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.facts import collect
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.apply import NodeState
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.request import (
    NOTHING,
    directory_request,
    file_request,
)

ARGUMENT_SPEC: dict[str, t.Any] = {
    "state": {"type": "str", "choices": ["present", "verified", "absent"], "default": "present"},
    "facts": {"type": "dict", "default": {}},
    "profile": {"type": "dict", "default": {}},
    "source": {"type": "str", "choices": list(SOURCES), "default": "auto"},
    "map": {"type": "path", "default": "/etc/gpu-bind/map"},
    "gpu_bind": {"type": "path", "default": "/usr/local/bin/gpu-bind"},
    "gres_conf": {"type": "str", "default": ""},
    "nccl_topology": {"type": "str", "default": AUTO},
    "nccl_graph": {"type": "str", "default": AUTO},
    "allow_overwrite": {"type": "bool", "default": False},
    **PLAN_OPTIONS,
}


@dataclasses.dataclass(frozen=True)
class BindingRequest:
    """What the task asks for. Empty ``facts``: those of the node; empty ``gres_conf`` or file for NCCL: no such file."""

    state: str
    facts: dict[str, t.Any]
    profile: dict[str, t.Any]
    source: str
    map: str
    gpu_bind: str
    gres_conf: str
    nccl_topology: str
    nccl_graph: str
    allow_overwrite: bool
    plan: PlanRequest

    @classmethod
    def of(cls, params: dict[str, t.Any]) -> BindingRequest:
        """From the module's parameters. Raises ClusterError (``bad_input``) for a path that is not absolute."""
        require_absolute(params, "map", "gpu_bind", "gres_conf")
        return from_options(cls, params, plan=PlanRequest.of(params))


def _reason(plan: dict[str, t.Any], key: str) -> str:
    """Why a plan has no text for a file."""
    return next((note for note in plan["notes"] if note.startswith(key)), f"{key}: the profile says nothing of it")


def _cannot_write(path: str, plan: dict[str, t.Any], key: str, remedy: str) -> ClusterError:
    return ClusterError("cannot_write", f"{path} cannot be written: {_reason(plan, key)}.", remedy)


def _places(request: BindingRequest) -> list[str]:
    """The path of each of NCCL's files, empty where there is to be none. Refuses what cannot be kept beside the others."""
    paths = [place(getattr(request, file.option), file, request.profile) for file in FILES]
    require_distinct([path for path in (request.map, request.gres_conf, *paths) if path])
    return paths


def _nccl_files(
    plan: dict[str, t.Any], places: t.Sequence[str], request: BindingRequest, module: AnsibleModule
) -> dict[str, str]:
    """The files for NCCL: text by path. Where ``auto`` cannot make one that NCCL can do without, the reason is a warning."""
    found = {}
    for file, path in zip(FILES, places):
        wanted = getattr(request, file.option)
        if not path or (wanted == AUTO and is_foreign(path)):
            continue
        if plan.get(file.key) is not None:
            found[path] = MARK + plan[file.key]
        elif wanted != AUTO:
            raise _cannot_write(path, plan, file.key, f"Leave `{file.option}` empty.")
        elif file.needed:
            remedy = f"Take {file.variable} out of the profile (nccl.env): NCCL ends every job without that file."
            raise _cannot_write(path, plan, file.key, remedy)
        else:
            module.warn(
                f"{path} was not written, so that NCCL finds its topology by itself: {_reason(plan, file.key)}."
            )
    return found


def _wanted(plan: dict[str, t.Any], request: BindingRequest, nccl: dict[str, str]) -> dict[str, t.Any]:
    """The files in the words of node_state."""
    texts = {request.map: map_text(plan, nccl), **nccl}
    if request.gres_conf and plan["gres_conf"] is None:
        raise _cannot_write(request.gres_conf, plan, "gres_conf", "Leave `gres_conf` empty.")
    if request.gres_conf:
        texts[request.gres_conf] = HEAD + plan["gres_conf"]
    if request.state == "present" and not request.allow_overwrite:
        refuse(_foreign(texts, request))
    files = [file_request(path, text) for path, text in texts.items()]
    # Directories that are there are somebody's, with a mode of theirs; that of the map is ours.
    missing = {os.path.dirname(path) for path in nccl if not os.path.isdir(os.path.dirname(path))}
    homes = sorted({os.path.dirname(request.map), *missing})
    stale = [path for path in _written(request) if path not in nccl]
    return {**NOTHING, "directories": [directory_request(home) for home in homes], "files": files, "absent": stale}


def _foreign(texts: dict[str, str], request: BindingRequest) -> list[str]:
    """Where one of these files would take the place of somebody else's."""
    others = {path: text for path, text in texts.items() if path != request.map}
    have = read_regular(request.map)
    return [*([request.map] if have is not None and not is_map(have) else []), *foreign_among(others)]


def _written(request: BindingRequest) -> list[str]:
    """The files for NCCL that the map on the node names, without those that were written since by other means."""
    return [path for path in written_beside(read_regular(request.map) or "") if not is_foreign(path)]


def _remove(request: BindingRequest, module: AnsibleModule) -> dict[str, t.Any]:
    """Take away the map, and the files for NCCL that its head or the options name, if they are ours."""
    named = [place(getattr(request, file.option), file, request.profile) for file in FILES]
    ours = sorted({*_written(request), *(path for path in named if path.startswith("/") and not is_foreign(path))})
    empty = [{"path": folder, "if_empty": True} for path in ours for folder in folders(path)]
    home = {"path": os.path.dirname(request.map), "if_empty": True}
    have = read_regular(request.map)
    maps = [request.map] if have is not None and is_map(have) else []
    return NodeState({**NOTHING, "absent": [*maps, *ours, *empty, home]}, module).run(check=module.check_mode)


def _prove(plan: dict[str, t.Any], request: BindingRequest, module: AnsibleModule, memory_nodes: int) -> int:
    """Start a process for every different place and read where it is."""
    if not os.access(request.gpu_bind, os.X_OK):
        raise ClusterError(
            "not_installed",
            f"{request.gpu_bind} is not there, or not a program.",
            "Run the entry point install of the role numa_pinning.",
        )
    ranks = probes(plan)
    for rank in ranks:
        rc, out, err = module.run_command(
            # Empty it would show no GPU.
            ["env", "-u", "CUDA_VISIBLE_DEVICES", request.gpu_bind, "-m", request.map, "--", "sh", "-c", PROBE],
            environ_update={"GPU_BIND_RANK": str(rank["rank"]), "GPU_BIND_MEMORY": "bind"},
        )
        wrong = (err or out).strip() or f"exit status {rc}" if rc else judge_probe(rank, out, memory_nodes)
        if wrong:
            raise ClusterError(
                "not_bound",
                f"gpu-bind does not bind as planned: {wrong}.",
                "See which CPUs this machine or container may use, and keep the others out with `reserve_cpus`.",
            )
    return len(ranks)


def _refuse_due(result: dict[str, t.Any]) -> None:
    """Verification fails where something would be written."""
    if result["changed"]:
        names = ", ".join(f"{change['name']} ({change['what']})" for change in result["changes"])
        raise ClusterError(
            "not_as_planned",
            f"This node is not pinned as it should be: {names} is due.",
            "Run the role numa_pinning.",
            diff=result["diff"],
        )


def run(module: AnsibleModule) -> dict[str, t.Any]:
    """Plan, write, prove."""
    request = BindingRequest.of(module.params)
    if request.state == "absent":
        removed = _remove(request, module)
        return {**{key: removed[key] for key in ("changed", "changes", "diff")}, "plan": {}, "proven": 0}
    facts = request.facts or collect(Path("/"), metadata="never")
    require_shapes(facts, request.profile)
    if nothing_to_pin(facts, request.profile):
        return {"changed": False, "plan": {}, "proven": 0, "changes": [], "msg": "No GPU here, and none is expected."}
    places = _places(request)
    plan = plan_and_render(*sources(request.source, facts, request.profile), request.plan)
    verify_only = request.state == "verified"
    wanted = _wanted(plan, request, _nccl_files(plan, places, request, module))
    result = NodeState(wanted, module).run(check=module.check_mode or verify_only)
    if verify_only:
        _refuse_due(result)
    pending = module.check_mode and (result["changed"] or not os.path.exists(request.gpu_bind))
    memory_nodes = sum(bool(node.get("memory_mib")) for node in facts["numa"])
    proven = 0 if pending else _prove(plan, request, module, memory_nodes)
    return {
        "changed": result["changed"],
        "changes": result["changes"],
        "diff": result["diff"],
        "plan": plan,
        "proven": proven,
    }


def main() -> None:
    """Run once and say what was done."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.run_command_environ_update = {"LC_ALL": "C", "LANGUAGE": "C"}
    with failing(module):
        result = run(module)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
