#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: dataset_verify
short_description: Prove that a staged dataset equals its manifest
description:
  - Compares every file below O(destination) with the manifest and the receipts that M(hpcai.gpu_cluster.dataset_stage) left there.
  - Works on any node that sees the destination; needs no access to the source.
  - Changes nothing, except that O(report=true) writes C(.staging/staging.json) after a run, and what O(mark_damaged) says.
version_added: 0.1.0
author: The hpcai.gpu_cluster developers (@hpcai)
options:
  content:
    description:
      - Read every file and compare its CRC-32 (the checksum of gzip's trailer, RFC 1952).
      - Without it a file is trusted while its size and modification time are those noted when its content was checked.
    type: bool
    default: false
  rank:
    description: Which part of the files to look at, when several nodes share the work.
    type: int
    default: 0
  world_size:
    description: How many nodes share the work.
    type: int
    default: 1
  unread_ranks:
    description:
      - Which of O(unread_world_size) nodes that shared the work have not come to its end. Their parts are read and compared as with
        O(content=true), and of all other files size and modification time.
      - For who looks at all files, with O(rank) and O(world_size) as they are by default.
    type: list
    elements: int
    default: []
  unread_world_size:
    description: How many nodes shared the work of which O(unread_ranks) have left their parts.
    type: int
    default: 1
  mark_damaged:
    description:
      - Give a file whose content O(content=true) or O(unread_ranks) finds wrong, although its size and modification time are right,
        another modification time. Then whoever looks at it later reads it, too, until it is copied again.
    type: bool
    default: false
  report:
    description:
      - Write C(.staging/staging.json) and pack the receipts. Only while no worker is running.
      - Unfinished files of workers of earlier runs are removed first, so that none of them, if it goes on, replaces a file afterwards.
    type: bool
    default: false
  fail:
    description:
      - Fail when the dataset is not whole. Otherwise only say so in RV(verdict).
      - What keeps it from being looked at fails in any case.
    type: bool
    default: true
  tries_left:
    description:
      - How often the caller would plan and copy again. With V(1) or more a dataset that is not whole does not fail where RV(again) says
        that trying again may help.
    type: int
    default: 0
  manifest_digest:
    description:
      - SHA-256 of the manifest that is meant, as M(hpcai.gpu_cluster.dataset_plan) returns it. Where another play has planned another
        dataset at the destination since, or where nothing is there any more, the task fails, whatever O(fail) says.
      - Any manifest is taken where it is empty.
    type: str
    default: ""
  timeout_s:
    description:
      - Seconds after which this node fails with C(timeout), also where its file system hangs and no signal ends the process that waits
        for it.
      - V(0) is as long as the work may take. 600 s, 5 ms per file, and 1 s for every 20 MB that are read.
    type: float
    default: 0
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.dataset.destination
  - hpcai.gpu_cluster.dataset.threads
attributes:
  check_mode:
    support: full
    details: Writes no report and marks no file in check mode. RV(marked_names) are then those that O(mark_damaged) would mark.
  diff_mode:
    support: none
    details: RV(problems) says what differs, RV(marked_names) what O(mark_damaged) marked.
  idempotent:
    support: full
    details: Only O(mark_damaged) changes files, each once.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
      - hpcai.gpu_cluster.dataset
seealso:
  - module: hpcai.gpu_cluster.dataset_stage
"""

EXAMPLES = r"""
- name: Prove the dataset from any node
  hpcai.gpu_cluster.dataset_verify:
    destination: /mnt/scratch/cosmoflow
    content: true
"""

RETURN = r"""
verdict:
  description: V(ok), V(fail), or V(incomplete) when nothing was ever staged here.
  type: str
  returned: always
total_files:
  description: Files that the manifest names, in this rank's part.
  type: int
  returned: always
verified_files:
  description: Files that are what the manifest says.
  type: int
  returned: always
verified_bytes:
  description: Their bytes on disk.
  type: int
  returned: always
extra_files:
  description: Files below the destination that the manifest does not name. They are left alone.
  type: int
  returned: always
former_files:
  description:
    - Files of an earlier choice of sources, prefix or decompression, as they were staged. They are left alone;
      M(hpcai.gpu_cluster.dataset_remove) deletes them with O(hpcai.gpu_cluster.dataset_remove#module:only_former).
  type: int
  returned: with O(report=true)
marked_files:
  description: Files that O(mark_damaged) gave another modification time. They are a warning, too, with the name of the node that read them.
  type: int
  returned: with O(mark_damaged=true)
marked_names:
  description: Their names, the first twenty.
  type: list
  elements: str
  returned: with O(mark_damaged=true)
unfinished_batches:
  description: Unfinished batches of the last run, each with C(batch) and C(host), which it was planned for. The first twenty.
  type: list
  elements: dict
  returned: with O(report=true)
problems:
  description: What differs, by V(missing), V(altered), V(outdated) and V(foreign), with a count, names (20 at most) and a remedy.
  type: list
  elements: dict
  returned: always
causes:
  description: Why the last run left something out, one per kind of error, each with C(host), C(kind), C(message), C(remedy).
  type: list
  elements: dict
  returned: always
again:
  description: Whether trying again may help.
  type: bool
  returned: always
manifest_digest:
  description: SHA-256 of the manifest.
  type: str
  returned: always
"""

import socket
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.dataset import Dataset
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.followed import forget_readers, reading
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.in_time import look_within
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.limits import check_options
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.report import explain
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError


def unread(params: t.Mapping[str, t.Any]) -> t.Callable[[int], bool] | bool:
    """Which of all files nobody has read, by their number. Raises ClusterError (``bad_input``) where there are no such parts."""
    ranks, world_size = frozenset(params["unread_ranks"]), params["unread_world_size"]
    if not ranks:
        return False
    if not all(0 <= rank < world_size for rank in ranks):
        raise ClusterError(
            "bad_input",
            f"`unread_ranks` are {', '.join(map(str, sorted(ranks)))}, of `unread_world_size: {world_size}`.",
            "Ranks begin at 0 and end below the number of nodes.",
        )
    if (params["rank"], params["world_size"]) != (0, 1):
        raise ClusterError(
            "bad_input",
            "`unread_ranks` is for who looks at all files, not at a part of them.",
            "Leave out `rank` and `world_size`.",
        )
    return lambda index: index % world_size in ranks


def look(params: t.Mapping[str, t.Any], *, dry_run: bool) -> dict[str, t.Any]:
    """Compare the destination with its manifest, and write down what was found where a report is wanted."""
    report = params["report"] and not dry_run
    try:
        dataset = Dataset.open(params["destination"])
    except ClusterError as error:
        if error.kind != "not_staged" or not params["manifest_digest"]:
            raise
        raise ClusterError(
            "not_mounted",
            f"Nothing is at {params['destination']} any more of what was planned there: its file system was unmounted, or somebody "
            "deleted it.",
            "Mount it again (`findmnt`, `journalctl`), then run again: only what is missing will be copied.",
        ) from error
    if params["manifest_digest"] not in ("", dataset.manifest.digest):
        raise ClusterError(
            "superseded",
            f"Another play has planned another dataset at {params['destination']} meanwhile.",
            "Give every dataset a destination of its own, then run again.",
        )
    if dry_run or not (report or params["mark_damaged"]):  # somebody only looks
        return compare(dataset, params, report=report, dry_run=dry_run)
    with reading(params["destination"]):
        result = compare(dataset, params, report=report, dry_run=dry_run)
    if report:
        forget_readers(params["destination"])
    return result


def compare(dataset: Dataset, params: t.Mapping[str, t.Any], *, report: bool, dry_run: bool) -> dict[str, t.Any]:
    """What the module returns, but for a message."""
    if report:
        dataset.fence()
    result = dataset.verify(
        content=params["content"] or unread(params),
        part=(params["rank"], params["world_size"]),
        threads=params["threads"],
        mark=params["mark_damaged"],
        dry_run=dry_run,
    )
    if not params["mark_damaged"]:
        result = {key: value for key, value in result.items() if not key.startswith("marked_")}
    return dataset.write_report(result) if report else result


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "destination": {"type": "path", "required": True},
            "content": {"type": "bool", "default": False},
            "rank": {"type": "int", "default": 0},
            "world_size": {"type": "int", "default": 1},
            "unread_ranks": {"type": "list", "elements": "int", "default": []},
            "unread_world_size": {"type": "int", "default": 1},
            "threads": {"type": "int", "default": 16},
            "mark_damaged": {"type": "bool", "default": False},
            "report": {"type": "bool", "default": False},
            "fail": {"type": "bool", "default": True},
            "tries_left": {"type": "int", "default": 0},
            "manifest_digest": {"type": "str", "default": ""},
            "timeout_s": {"type": "float", "default": 0},
        },
        supports_check_mode=True,
    )
    params: dict[str, t.Any] = module.params
    try:
        check_options(params)
        result = look_within(
            params["destination"], params["timeout_s"], lambda: look(params, dry_run=module.check_mode)
        )
    except ClusterError as error:
        if params["fail"] or error.kind != "not_staged":
            module.fail_json(verdict="incomplete", **error.as_result())
        nothing = {"total_files": 0, "verified_files": 0, "problems": [], "causes": [], "again": False}
        module.exit_json(changed=False, verdict="incomplete", msg=str(error), **nothing)
    marked = result.get("marked_files", 0)
    if marked:
        module.warn(
            f"{socket.gethostname()} found wrong content, although size and time are right, in {marked} files: "
            f"{', '.join(result['marked_names'])}."
        )
    hopeless = params["tries_left"] < 1 or not result["again"]
    if params["fail"] and hopeless and result["verdict"] != "ok":
        module.fail_json(changed=marked > 0, msg=explain(result), **result)
    module.exit_json(changed=marked > 0, msg=explain(result), **result)


if __name__ == "__main__":
    main()
