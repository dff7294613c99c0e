#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: dataset_stage
short_description: Copy this node's part of a planned dataset, and help the others
description:
  - Works on the run that M(hpcai.gpu_cluster.dataset_plan) stored at O(destination). Claims batches, first this rank's own, then
    those that no rank has begun, then those whose owner gives no sign of life.
  - AzCopy lands the raw bytes. Every file is inflated if wanted, its checksums are compared (MD5 of the blob, CRC-32 and length
    of gzip's trailer), and only then it gets its final name and a receipt.
  - Ends when nothing is left to claim. Meant to be started with C(async) on all nodes at once.
  - With C(async) the process that Ansible started goes on by itself, as C(dataset_stage). A SAS is in its memory only, and on the command
    line of AzCopy while that runs. M(hpcai.gpu_cluster.dataset_collect) and M(ansible.builtin.async_status) read the result.
  - Files of Ansible that hold a SAS, which killed modules of earlier versions of this collection left on the node, are deleted.
  - A worker of an earlier run on this node is stopped first.
version_added: 0.1.0
author: The hpcai.gpu_cluster developers (@hpcai)
options:
  sources:
    description: The same list that was planned with; only C(sas) is used.
  run:
    description: Id of the run. Empty when there is nothing to copy; then what workers that were killed left on this node is removed.
    type: str
    required: true
  rank:
    description: This node's rank in the run.
    type: int
    required: true
  host:
    description: Name of this node in reports.
    type: str
    required: true
  only_check:
    description:
      - Copy nothing. RV(unlike) tells whether this node means the same by the O(hpcai.gpu_cluster.dataset_plan#module:owner) and
        O(hpcai.gpu_cluster.dataset_plan#module:group) of the run as the node that planned it.
    type: bool
    default: false
  cap_mbps:
    description: Bandwidth that AzCopy may use, in Mbit/s. V(0) for no limit.
    type: float
    default: 0
  processes:
    description: At most so many AzCopy processes per source and batch. Listed names are looked up one after the other in each.
    type: int
    default: 8
  concurrency:
    description: Requests in flight of each AzCopy process. V(0) lets AzCopy choose.
    type: int
    default: 0
  threads:
    description: Files checked and inflated in parallel. V(0) is one per CPU.
    type: int
    default: 0
  decompress_engine:
    description:
      - V(collection) inflates here and checks everything; V(azcopy) uses AzCopy's C(--decompress) for blobs with Content-Encoding gzip.
    type: str
    choices: [collection, azcopy]
    default: collection
  landing_path:
    description: Directory for raw bytes, best on a node-local disk. Inside the destination when left out.
    type: path
  landing_limit_gib:
    description:
      - At most so many GiB of raw bytes wait on this node to be checked. Where they are inflated slower than they arrive, the
        next download waits. V(0) is what is free where they land, which is looked at before every copy in any case.
      - What AzCopy inflates with O(decompress_engine=azcopy) counts with its size before that.
    type: float
    default: 0
  claim_expiry_s:
    description: Seconds without sign of life after which another rank's batch is taken over.
    type: float
    default: 60
  stall_timeout_s:
    description: Seconds without progress after which a copy is stopped and its batch given back.
    type: float
    default: 45
  timeout_s:
    description: Seconds after which this rank stops, whatever is left.
    type: float
    default: 86400
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.dataset.azcopy
  - hpcai.gpu_cluster.dataset.destination
  - hpcai.gpu_cluster.dataset.identity
  - hpcai.gpu_cluster.dataset.sources
attributes:
  check_mode:
    support: none
    details: M(hpcai.gpu_cluster.dataset_plan) tells in check mode what would be copied.
  diff_mode:
    support: none
    details: M(hpcai.gpu_cluster.dataset_plan) shows the difference.
  idempotent:
    support: full
    details: A run whose batches are all done copies nothing.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
      - hpcai.gpu_cluster.azcopy
      - hpcai.gpu_cluster.dataset
notes:
  - A URL with a query is refused. A SAS goes into C(sas), where it is kept out of logs and results.
seealso:
  - module: hpcai.gpu_cluster.dataset_plan
  - module: hpcai.gpu_cluster.dataset_watch
"""

EXAMPLES = r"""
- name: Start copying on every node
  hpcai.gpu_cluster.dataset_stage:
    destination: /mnt/scratch/cosmoflow
    sources: "{{ sources }}"
    run: "{{ plan.run }}"
    rank: "{{ plan.hosts.index(inventory_hostname) }}"
    host: "{{ inventory_hostname }}"
    landing_path: /mnt/resource_nvme/landing
  async: 86400
  poll: 0
"""

RETURN = r"""
unlike:
  description: The end of a sentence about this node, such as V(knows no user 'hpc'); empty where it agrees with the one that planned.
  type: str
  returned: with O(only_check=true)
files:
  description: Files that this node finished.
  type: int
  returned: always
raw_bytes:
  description: Their bytes over the network.
  type: int
  returned: always
bytes:
  description: Their bytes on disk.
  type: int
  returned: always
seconds:
  description: How long this rank worked.
  type: float
  returned: always
gbps:
  description: Bytes over the network per second, in Gbit/s.
  type: float
  returned: always
batches:
  description: Batches that this node finished.
  type: int
  returned: always
stolen_batches:
  description: Those of them that were planned for other ranks.
  type: int
  returned: always
retried_batches:
  description: Those of them that had been tried before.
  type: int
  returned: always
sees_destination:
  description: Whether the node sees the plan in O(destination) all the same.
  type: bool
  returned: when this rank stopped before its end
failed_files:
  description: Files that are themselves at fault, each with C(name), C(kind), C(message) and C(remedy). The first twenty.
  type: list
  elements: dict
  returned: always
failed_count:
  description: How many files are themselves at fault. The report of M(hpcai.gpu_cluster.dataset_verify) names all.
  type: int
  returned: always
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.parameters import remove_values
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.options import AZCOPY, IDENTITY, SOURCES, failure
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.secrets import hide_secrets, refuse_queries
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.in_time import look_within
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.killed import sweep_killed
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.limits import check_options
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.payloads import (
    remote_directories,
    sweep_payloads,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.rank import StageRequest, run_rank
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import read_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import check_state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.part_file import disk_errors
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.background import asked_for
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.ownership import Ownership


def argument_spec() -> dict[str, t.Any]:
    return {
        "destination": {"type": "path", "required": True},
        "sources": SOURCES,
        "run": {"type": "str", "required": True},
        "rank": {"type": "int", "required": True},
        "host": {"type": "str", "required": True},
        "only_check": {"type": "bool", "default": False},
        "cap_mbps": {"type": "float", "default": 0},
        "processes": {"type": "int", "default": 8},
        "concurrency": {"type": "int", "default": 0},
        "threads": {"type": "int", "default": 0},
        "decompress_engine": {"type": "str", "choices": ["collection", "azcopy"], "default": "collection"},
        "landing_path": {"type": "path"},
        "landing_limit_gib": {"type": "float", "default": 0},
        "claim_expiry_s": {"type": "float", "default": 60},
        "stall_timeout_s": {"type": "float", "default": 45},
        "timeout_s": {"type": "float", "default": 86400},
        **AZCOPY,
        **IDENTITY,
    }


def read_options(params: t.Mapping[str, t.Any]) -> StageRequest:
    """The module's options as the request that they make."""
    return StageRequest(
        destination=params["destination"],
        run=params["run"],
        rank=params["rank"],
        host=params["host"],
        urls=[source["url"] for source in params["sources"]],
        sas=[source["sas"] for source in params["sources"]],
        azcopy=params["azcopy"],
        cap_mbps=params["cap_mbps"],
        processes=params["processes"],
        concurrency=params["concurrency"],
        threads=params["threads"],
        decompress_engine=params["decompress_engine"],
        landing_path=params["landing_path"] or "",
        landing_limit_gib=params["landing_limit_gib"],
        log_path=params["log_path"],
        claim_expiry_s=params["claim_expiry_s"],
        stall_timeout_s=params["stall_timeout_s"],
        timeout_s=params["timeout_s"],
        identity=params["identity"],
        identity_client_id=params["identity_client_id"],
    )


def _unlike(destination: str, run_id: str) -> str:
    """Whom the files of the run shall belong to that this node does not know, or by another id; "" where it sees no such run."""
    check_state(destination)
    run = read_run(destination, run_id)
    return Ownership(**run.ownership).unlike_here() if run else ""


def _without_copy(params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """What the module returns where the play waits for a node that is not to copy."""
    if not params["run"]:
        swept = sweep_killed(params["destination"], params["landing_path"] or "", params["host"])
        return {"changed": swept, "msg": "Nothing to copy."}
    return {"changed": False, "unlike": _unlike(params["destination"], params["run"])}


def copy(params: t.Mapping[str, t.Any], secrets: t.Sequence[str]) -> dict[str, t.Any]:
    """What the module returns, also where it fails."""
    try:
        if not params["run"] or params["only_check"]:
            return look_within(params["destination"], 0, lambda: _without_copy(params))
        with disk_errors(params["destination"]):
            return run_rank(read_options(params))
    except ClusterError as error:
        return {"failed": True, "changed": False, **failure(error, *secrets)}


def lost(host: str, reason: str) -> dict[str, t.Any]:
    """What the module returns where its process ended before it could."""
    error = ClusterError(
        "worker_lost",
        f"The copy on {host} ended before its time: {reason.strip()}.",
        "Other nodes take over what it had begun. Where files are missing, run again; what it finished is kept.",
    )
    return {"failed": True, "changed": False, **error.as_result()}


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=False, no_log=True)
    params: dict[str, t.Any] = module.params
    secrets = [source["sas"] for source in params["sources"]]
    hide_secrets(module, *secrets)

    def hidden(result: dict[str, t.Any]) -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", remove_values(result, module.no_log_values))

    try:
        refuse_queries(module, params["sources"])
        check_options(params)
        sweep_payloads(remote_directories(getattr(module, "_remote_tmp", None) or "~/.ansible/tmp"))
        job = asked_for("dataset_stage")
        if job is not None:
            with disk_errors(job.directory):
                started = job.start(
                    lambda: hidden(copy(params, secrets)), lambda reason: hidden(lost(params["host"], reason))
                )
            module.exit_json(changed=True, **started)
    except ClusterError as error:
        module.fail_json(**failure(error, *secrets))
    result = copy(params, secrets)
    (module.fail_json if result.get("failed") else module.exit_json)(**result)


if __name__ == "__main__":
    main()
