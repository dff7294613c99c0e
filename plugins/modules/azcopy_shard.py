#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Share the files of a dataset out over ranks, as AzCopy takes them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: azcopy_shard
short_description: Share the files of a dataset out over ranks
version_added: 0.1.0
description:
  - Works out which files each rank copies with AzCopy. Every file is in exactly one share, whatever the number of
    ranks, and the same input gives the same shares on every machine.
  - With O(index) the share is a range of the running numbers in the file names, and AzCopy patterns select it. With
    O(files) or O(manifest) alone the shares are balanced by bytes, the largest file first to the rank with the least.
  - With O(index) and a list of files the numbers decide, and each name is checked to belong to exactly one of them.
  - AzCopy separates patterns by V(;) only. It takes an empty pattern for "copy everything", so a rank without work
    gets RV(shards[].skip=true) and RV(shards[].use=nothing); it must not call AzCopy.
  - The module computes only. It reads O(manifest), changes nothing, and runs equally well on the controller.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.attributes.read_only
attributes:
  action_group:
    membership:
      - hpcai.gpu_cluster.all
author:
  - The hpcai.gpu_cluster developers (@hpcai)
options:
  world_size:
    description: Number of ranks that share the files. It may be larger than the number of files.
    type: int
    required: true
  rank:
    description: The rank, from V(0) on, whose share is wanted. Leave it out for the shares of all ranks.
    type: int
  index:
    description: File names that differ in a running number.
    type: dict
    suboptions:
      template:
        description:
          - The last component of the names, with V({index}) where the number is, V({index:03d}) where it is padded
            with zeros to three digits.
          - What surrounds it is a pattern of AzCopy (C(*), C(?), C([a-c])), without V(;) and V(/).
          - Patterns match the last component of a name in every directory.
        type: str
        required: true
      start:
        description: The first number.
        type: int
        default: 0
      count:
        description: How many numbers there are. 64 from V(0) on end with 63.
        type: int
        required: true
      order:
        description:
          - V(contiguous) gives each rank a block of neighbors; blocks differ by one number at most and need few
            patterns.
          - V(round_robin) gives rank 0 the first number and every O(world_size)-th after it.
        type: str
        choices: [contiguous, round_robin]
        default: contiguous
  files:
    description: The files. For more than some ten thousand use O(manifest), which Ansible does not have to carry.
    type: list
    elements: dict
    suboptions:
      name:
        description: Path of the file below the source, with V(/) between components.
        type: str
        required: true
      size:
        description: Size in bytes.
        type: int
        required: true
  manifest:
    description:
      - Path of a manifest as the role P(hpcai.gpu_cluster.dataset_staging#role) writes it, on the machine where the
        module runs.
    type: path
  pattern_style:
    description:
      - V(compact) writes few patterns with classes of digits, C(*_00[0-3].tfrecord.gz).
      - V(literal) writes one pattern per number, C(*_000.tfrecord.gz;*_001.tfrecord.gz;...), for readers and for
        tools without classes. Where that exceeds 4096 bytes the patterns are compact all the same.
    type: str
    choices: [compact, literal]
    default: compact
  file_cost_bytes:
    description:
      - What a file costs besides its bytes (request, create, rename), in bytes that could be copied in that time. It
        keeps a rank with many small files from finishing last.
      - 5 ms per file, the middle of the 2 to 10 ms seen on local disks, at 750 MB/s are V(3750000) bytes.
      - Used where shares are balanced by bytes.
    type: int
    default: 0
"""

EXAMPLES = r"""
- name: Share 64 groups of files out over all nodes
  hpcai.gpu_cluster.azcopy_shard:
    rank: "{{ ansible_play_hosts.index(inventory_hostname) }}"
    world_size: "{{ ansible_play_hosts | length }}"
    index:
      template: "*_{index:03d}.tfrecord.gz"
      count: 64
  register: share

- name: Copy the share
  hpcai.gpu_cluster.azcopy_copy:
    source: https://example.blob.core.windows.net/cosmo
    destination: /mnt/scratch/cosmo
    include_pattern: "{{ share.include_pattern }}"
  when: not share.skip

- name: Balance listed files over four ranks
  hpcai.gpu_cluster.azcopy_shard:
    world_size: 4
    manifest: /mnt/scratch/manifest.jsonl
  register: plan
"""

RETURN = r"""
shards:
  description: The share of every rank, or that of O(rank) alone.
  returned: success
  type: list
  elements: dict
  contains:
    rank:
      description: The rank.
      type: int
    skip:
      description: Whether the rank has nothing to copy.
      type: bool
    use:
      description:
        - V(pattern), copy with RV(shards[].include_pattern).
        - V(file_list), copy RV(shards[].files), because patterns would be too long, select other files too, or cannot
          name a file.
        - V(nothing), do not copy.
      type: str
    patterns:
      description: Patterns that select the share and nothing else. Empty unless RV(shards[].use=pattern).
      type: list
      elements: str
    include_pattern:
      description:
        - The patterns as one argument of C(azcopy copy --include-pattern). Never to be passed on when it is empty.
      type: str
    files:
      description: The files of the share; empty where only patterns are known.
      type: list
      elements: str
    expected_files:
      description: Number of files; null where O(index) was given without files and the template has wildcards.
      type: int
    expected_bytes:
      description: Sum of the sizes in bytes; null where they are not known.
      type: int
  sample:
    - rank: 0
      skip: false
      use: pattern
      patterns: ["*_00[0-3].tfrecord.gz"]
      include_pattern: "*_00[0-3].tfrecord.gz"
      files: []
      expected_files: null
      expected_bytes: null
rank:
  description: As in RV(shards[].rank).
  returned: O(rank) was given
  type: int
skip:
  description: As in RV(shards[].skip).
  returned: O(rank) was given
  type: bool
use:
  description: As in RV(shards[].use).
  returned: O(rank) was given
  type: str
patterns:
  description: As in RV(shards[].patterns).
  returned: O(rank) was given
  type: list
  elements: str
include_pattern:
  description: As in RV(shards[].include_pattern).
  returned: O(rank) was given
  type: str
files:
  description: As in RV(shards[].files).
  returned: O(rank) was given
  type: list
  elements: str
expected_files:
  description: As in RV(shards[].expected_files).
  returned: O(rank) was given
  type: int
expected_bytes:
  description: As in RV(shards[].expected_bytes).
  returned: O(rank) was given
  type: int
imbalance:
  description:
    - The largest share divided by the ideal one, over all ranks. V(1.0) is perfect.
    - Ideal is an equal part of all, or the largest single file where that alone is more. Bytes (with
      O(file_cost_bytes)) are compared, or numbers where only O(index) was given.
  returned: success
  type: float
  sample: 1.00001
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._shards.answer import Index, share_out

ARGUMENT_SPEC: dict[str, t.Any] = {
    "world_size": {"type": "int", "required": True},
    "rank": {"type": "int"},
    "index": {
        "type": "dict",
        "options": {
            "template": {"type": "str", "required": True},
            "start": {"type": "int", "default": 0},
            "count": {"type": "int", "required": True},
            "order": {"type": "str", "choices": ["contiguous", "round_robin"], "default": "contiguous"},
        },
    },
    "files": {
        "type": "list",
        "elements": "dict",
        "options": {"name": {"type": "str", "required": True}, "size": {"type": "int", "required": True}},
    },
    "manifest": {"type": "path"},
    "pattern_style": {"type": "str", "choices": ["compact", "literal"], "default": "compact"},
    "file_cost_bytes": {"type": "int", "default": 0},
}


def result_of(params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """What the module returns for its options."""
    files = None
    if params["manifest"] is not None:
        files = [(blob.name, blob.size) for blob in Manifest.read(params["manifest"]).blobs]
    elif params["files"] is not None:
        files = [(file["name"], file["size"]) for file in params["files"]]
    plan = share_out(
        params["world_size"],
        rank=params["rank"],
        index=Index(**params["index"]) if params["index"] else None,
        files=files,
        pattern_style=params["pattern_style"],
        file_cost_bytes=params["file_cost_bytes"],
    )
    shards = [share._asdict() for share in plan.shares]
    own = shards[0] if params["rank"] is not None else {}
    return {"changed": False, "shards": shards, "imbalance": plan.imbalance, **own}


def main() -> None:
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        required_one_of=[("index", "files", "manifest")],
        mutually_exclusive=[("files", "manifest")],
        supports_check_mode=True,
    )
    try:
        result = result_of(module.params)
    except ClusterError as exc:
        module.fail_json(**exc.as_result())
    except OSError as exc:
        why = exc.strerror or type(exc).__name__
        unreadable = ClusterError(
            "bad_input",
            f"The manifest {module.params['manifest']} cannot be read ({why}).",
            "Check the path on the machine where this module runs.",
        )
        module.fail_json(**unreadable.as_result())
    module.exit_json(**result)


if __name__ == "__main__":
    main()
