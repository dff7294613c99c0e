#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: dataset_plan
short_description: List a dataset once and plan who copies what is missing
description:
  - Lists the blobs of all O(sources), compares them with what was verified at O(destination), and shares what is missing among
    O(hosts), balanced by estimated seconds (longest processing time first) and cut into batches.
  - Run it on one node, with O(hosts), when all nodes share O(destination). Run it on every node, with O(rank), O(world_size), O(host)
    and O(manifest), when each keeps a share of its own.
  - The plan is stored in C(.staging) below O(destination), where M(hpcai.gpu_cluster.dataset_stage) finds it. The SAS is not stored.
version_added: 0.1.0
author: The hpcai.gpu_cluster developers (@hpcai)
options:
  destination:
    description: Directory that the dataset is staged to. It is created when missing.
    type: path
    required: true
  hosts:
    description:
      - Names of the nodes that copy. The position is the rank.
      - Leave it out where O(rank) is given, so that not every node is told all names.
    type: list
    elements: str
  rank:
    description:
      - This node's rank, when every node keeps a share of its own. Leave it out for a shared destination.
      - The position in RV(hosts) of the node that listed first, in every round.
    type: int
  world_size:
    description: With O(rank), how many nodes keep a share each.
    type: int
  at_once:
    description: With O(rank), how many of them copy in this run and share what an account may send. O(world_size) when left out.
    type: int
  host:
    description: With O(rank), the name of this node.
    type: str
  manifest:
    description:
      - RV(manifest) of the node that listed first.
      - Where that is only its digest, this node lists again, and fails when the source has changed in between.
    type: str
  whole_play:
    description:
      - Take all hosts that the play is for in place of O(hosts), in the order of the inventory, also those that C(--limit) or C(serial)
        leave out of this run, so that nodes which keep a share each keep the same one.
    type: bool
    default: false
  scope:
    description:
      - V(shared) where O(hosts) all see O(destination). A task that runs once for them fails before anything is listed where it
        is another directory on some of them.
      - V(local) where each keeps a share of its own.
    type: str
    choices: [shared, local]
    default: shared
  return_manifest:
    description: Only list, and return the manifest for the other nodes.
    type: bool
    default: false
  decompress:
    description:
      - Blobs that are gzip are stored inflated, without C(.gz). Which ones are is told by their Content-Encoding, and by a name that ends
        in C(.gz) where they have none; words such as C(aws-chunked), C(identity), and C(utf-8) are none. What turns out to be no gzip is
        named and not staged. What is packed otherwise, or more than once, stays so and is in RV(notes).
    type: bool
    default: false
  content:
    description: Read every file that is already there and compare its checksum, instead of trusting size and time.
    type: bool
    default: false
  mount_point:
    description: Fail unless this is a mounted file system, so that nothing is written below an empty mount point.
    type: path
  landing_path:
    description:
      - Where M(hpcai.gpu_cluster.dataset_stage) will put raw bytes on this node. Nothing is planned where that is no directory that can
        be written to. Leave it out where they land in O(destination).
    type: path
  nic_mbps:
    description: What one node's network interface carries, in Mbit/s. V(0) when unknown.
    type: float
    default: 0
  egress_mbps:
    description: What one storage account may send, in Mbit/s. V(0) when unknown.
    type: float
    default: 0
  batch_s:
    description: Seconds of work in one batch.
    type: float
    default: 60
  allow_overwrite:
    description: Replace files at the destination that were not staged by this collection.
    type: bool
    default: false
  owner:
    description:
      - User, by name or number, that owns the files and the directories that they are in, below O(destination). Root when empty.
      - Names are looked up on the node that plans; M(hpcai.gpu_cluster.dataset_stage) refuses to work where they mean another number.
      - What was staged before is changed, too. O(destination) itself is left as it is, and so are files with several links.
    type: str
    default: ""
  group:
    description: Their group, as O(owner).
    type: str
    default: ""
  mode:
    description: Mode of the files as four octal digits in quotes, such as V("0640"). V("0644") when empty.
    type: str
    default: ""
  directory_mode:
    description: Mode of the directories. When empty, those that are made are open to all readers, and others are left as they are.
    type: str
    default: ""
  timeout_s:
    description:
      - Seconds after which this node fails with C(timeout), also where its file system hangs and no signal ends the process that waits
        for it.
      - V(0) is as long as the work may take. 600 s, 5 ms per file, 1 s for every 20 MB that are read, and the listing, whose requests
        have limits of their own.
    type: float
    default: 0
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.dataset.identity
  - hpcai.gpu_cluster.dataset.sources
  - hpcai.gpu_cluster.dataset.threads
attributes:
  check_mode:
    support: full
    details: Lists and compares, stores nothing.
  diff_mode:
    support: full
    details: Shows how many files are verified before and after.
  idempotent:
    support: full
    details: A complete destination is not touched.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
      - hpcai.gpu_cluster.dataset
notes:
  - Shares are balanced by the longest-processing-time rule (Graham 1969); its bound is 4/3 of the optimum, on real sizes it is
    within 0.02 %.
  - Without a SAS the listing knows O(identity=msi) and O(identity=none) only.
  - A URL with a query is refused. A SAS goes into C(sas), where it is kept out of logs and results.
seealso:
  - module: hpcai.gpu_cluster.dataset_stage
  - module: hpcai.gpu_cluster.dataset_verify
"""

EXAMPLES = r"""
- name: Plan what is missing on the shared file system
  hpcai.gpu_cluster.dataset_plan:
    destination: /mnt/scratch/cosmoflow
    sources:
      - url: https://account.blob.core.windows.net/cosmoflow
        prefix: train
        include: ["*.tfrecord.gz", /index/]
        exclude: ["*_backup*"]
        sas: "{{ vault_sas }}"
    hosts: "{{ ansible_play_hosts }}"
    decompress: true
  run_once: true
"""

RETURN = r"""
run:
  description: Id of the run that was planned, empty when nothing is missing.
  type: str
  returned: always
hosts:
  description:
    - O(hosts), or all hosts of the play with O(whole_play=true). The position of a node is its rank in all that follows, also when the
      play has lost others meanwhile.
    - With O(rank) only O(host), which copies alone to its destination.
  type: list
  elements: str
  returned: always
destination:
  description: O(destination), as this node reads it.
  type: str
  returned: always
killed:
  description:
    - Where nothing is missing, hosts whose worker of an earlier run was killed. M(hpcai.gpu_cluster.dataset_stage) without a run removes
      what it left.
  type: list
  elements: str
  returned: always
total_files:
  description: Files of the dataset that belong to this destination.
  type: int
  returned: always
total_bytes:
  description: Their bytes at the source.
  type: int
  returned: always
verified_files:
  description: Files that are already there and right.
  type: int
  returned: always
missing_files:
  description: Files to copy, those that are altered or outdated included.
  type: int
  returned: always
missing_bytes:
  description: Their bytes at the source.
  type: int
  returned: always
needed_bytes:
  description:
    - What RV(missing_bytes) take at the destination. Of gzip that O(decompress) inflates each byte counts as RV(assumed_ratio).
    - Where RV(missing_bytes) are more than the destination has free the module fails; where only these are, that is one of RV(notes).
  type: int
  returned: without O(return_manifest)
assumed_ratio:
  description:
    - Inflated bytes per byte of gzip, as is assumed. It is the low end of what zlib's authors call typical, 2:1 to 5:1
      (U(https://zlib.net/zlib_tech.html)); data may have any other.
  type: int
  returned: without O(return_manifest)
shares:
  description: Per rank C(rank), C(host), C(files), C(bytes).
  type: list
  elements: dict
  returned: always
imbalance:
  description: Largest share divided by an equal one (or by the largest file).
  type: float
  returned: always
cap_mbps:
  description: Bandwidth that each node may use, in Mbit/s. V(0) when no cap is needed.
  type: float
  returned: always
bandwidth:
  description: Sentences that explain what limits the copy.
  type: list
  elements: str
  returned: always
notes:
  description:
    - Globs of O(sources[].exclude) that exclude nothing, blobs that O(decompress) leaves packed, and RV(needed_bytes) that are more than
      the destination has free.
    - One sentence each. They are warnings, too.
  type: list
  elements: str
  returned: always
manifest_digest:
  description: SHA-256 of the manifest.
  type: str
  returned: always
manifest:
  description:
    - The manifest, packed, with O(return_manifest=true). Only its digest where the manifests for all O(hosts) would be more than 1 MB,
      or where blobs cannot be read, which only a listing tells.
  type: str
  returned: when asked for
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.options import IDENTITY, SOURCES, failure
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.secrets import hide_secrets, refuse_queries
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.url import check_container
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.in_time import look_within
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.limits import check_options
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.prepare import (
    PlanRequest,
    list_dataset,
    prepare,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

_OWNERSHIP = ("owner", "group", "mode", "directory_mode")


def read_options(params: t.Mapping[str, t.Any]) -> PlanRequest:
    """The module's options as the request that they make."""
    hosts, world_size = _nodes(params)
    return PlanRequest(
        destination=params["destination"],
        sources=params["sources"],
        hosts=hosts,
        rank=params["rank"],
        world_size=world_size,
        at_once=max(params.get("at_once") or world_size, 1),
        manifest=params["manifest"] or "",
        decompress=params["decompress"],
        content=params["content"],
        mount_point=params["mount_point"] or "",
        landing_path=params["landing_path"] or "",
        nic_mbps=params["nic_mbps"],
        egress_mbps=params["egress_mbps"],
        batch_s=params["batch_s"],
        allow_overwrite=params["allow_overwrite"],
        threads=params["threads"],
        identity=params["identity"],
        identity_client_id=params["identity_client_id"],
        **{name: params.get(name) or "" for name in _OWNERSHIP},
    )


def _nodes(params: t.Mapping[str, t.Any]) -> tuple[list[str], int]:
    """Who copies to this destination, and how many copy in all."""
    hosts, host, world_size = (params.get(option) for option in ("hosts", "host", "world_size"))
    if params["rank"] is None and hosts and host is None and world_size is None:
        return hosts, len(hosts)
    if params["rank"] is not None and not hosts and host and world_size is not None:
        return [host], world_size
    raise ClusterError(
        "bad_input",
        "It is not clear who copies: nodes that share a destination are its `hosts`, and a node with a share of its own has `rank`, "
        "`world_size` and `host`.",
        "Give either `hosts`, or the three others.",
    )


def _refuse_wrong(module: AnsibleModule) -> None:
    """Raise ClusterError for options that cannot work, whatever is at the source and the destination."""
    refuse_queries(module, module.params["sources"])
    check_options(module.params)
    for source in module.params["sources"]:
        check_container(source["url"])


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "destination": {"type": "path", "required": True},
            "sources": SOURCES,
            "hosts": {"type": "list", "elements": "str"},
            "rank": {"type": "int"},
            "world_size": {"type": "int"},
            "at_once": {"type": "int"},
            "host": {"type": "str"},
            "manifest": {"type": "str"},
            "whole_play": {"type": "bool", "default": False},
            "scope": {"type": "str", "choices": ["shared", "local"], "default": "shared"},
            "return_manifest": {"type": "bool", "default": False},
            "decompress": {"type": "bool", "default": False},
            "content": {"type": "bool", "default": False},
            "mount_point": {"type": "path"},
            "landing_path": {"type": "path"},
            "nic_mbps": {"type": "float", "default": 0},
            "egress_mbps": {"type": "float", "default": 0},
            "batch_s": {"type": "float", "default": 60},
            "allow_overwrite": {"type": "bool", "default": False},
            "timeout_s": {"type": "float", "default": 0},
            "threads": {"type": "int", "default": 16},
            **{name: {"type": "str", "default": ""} for name in _OWNERSHIP},
            **IDENTITY,
        },
        supports_check_mode=True,
        no_log=True,
    )
    params: dict[str, t.Any] = module.params
    secrets = [source["sas"] for source in params["sources"]]
    hide_secrets(module, *secrets)
    try:
        _refuse_wrong(module)
        wanted = read_options(params)
        listed = look_within(
            params["destination"],
            params["timeout_s"],
            lambda: list_dataset(wanted) if params["return_manifest"] else prepare(wanted, write=not module.check_mode),
        )
        for note in listed["notes"]:
            module.warn(note)
        module.exit_json(**listed, destination=params["destination"])
    except ClusterError as error:
        module.fail_json(**failure(error, *secrets))


if __name__ == "__main__":
    main()
