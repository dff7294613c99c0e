#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: dataset_upload
short_description: Upload a directory to Blob storage, compressed or within a share of the account's ingress
description:
  - With O(compress=true) every file is stored as C(NAME.gz) with Content-Encoding gzip, so that a later staging can inflate it.
  - With O(ingress_mbps) several AzCopy processes share the upload, and their caps together stay below 92 % of the account's limit.
    8 processes and 20,000 Mbit/s give 2,300 Mbit/s each.
  - Every blob gets the MD5 of its bytes. Files that the container holds already are not uploaded again.
  - Nothing is left out in silence. What is no file, a link among it, is refused by name unless O(links) says otherwise. Only the
    state of a staging is not uploaded (RV(left_out)).
version_added: 0.1.0
author: The hpcai.gpu_cluster developers (@hpcai)
options:
  source:
    description: Directory to upload.
    type: path
    required: true
  url:
    description: URL of the container. One with a query is refused; a SAS goes into O(sas).
    type: str
    required: true
  prefix:
    description: Directory in the container, as it is called there. Nothing in it is percent-encoded.
    type: str
    default: ""
  sas:
    description: Shared access signature with write and list permission. Leave it out to use the managed identity.
    type: str
    default: ""
  compress:
    description: Compress every file with gzip first.
    type: bool
    default: false
  work_path:
    description:
      - Directory for the compressed files. They stay there, so that a second run need not compress again.
      - It may not be O(source) or in it.
    type: path
  links:
    description:
      - What becomes of symbolic links in O(source). Links to files and to directories are treated alike.
      - V(refuse) names them and uploads nothing. V(follow) uploads what they point to, wherever that is. V(skip) leaves them out
        and names them in RV(left_out).
      - They cannot be stored as links. AzCopy passes over a link that it is given by name.
    type: str
    choices: [refuse, follow, skip]
    default: refuse
  processes:
    description: AzCopy processes at the same time, such as one per checkpoint file.
    type: int
    default: 8
  ingress_mbps:
    description: What the storage account accepts, in Mbit/s. V(0) for no cap.
    type: float
    default: 0
  timeout_s:
    description: Seconds after which the upload is stopped. V(0) for no limit.
    type: float
    default: 0
  stall_timeout_s:
    description: Seconds without progress after which the upload is stopped.
    type: float
    default: 45
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.dataset.azcopy
  - hpcai.gpu_cluster.dataset.identity
attributes:
  check_mode:
    support: full
    details: Says what would be uploaded. Files that are not compressed yet count as changed.
  diff_mode:
    support: full
    details: Shows the names of the first thousand files.
  idempotent:
    support: full
    details: Blobs of the same size and MD5 are not uploaded again.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
      - hpcai.gpu_cluster.azcopy
"""

EXAMPLES = r"""
- name: Store a dataset for later staging
  hpcai.gpu_cluster.dataset_upload:
    source: /data/cosmo
    url: https://account.blob.core.windows.net/cosmoflow
    compress: true
    work_path: /data/cosmo.gz

- name: Save a checkpoint without using up the account
  hpcai.gpu_cluster.dataset_upload:
    source: /mnt/scratch/checkpoint-1200
    url: https://account.blob.core.windows.net/checkpoints
    prefix: run-7/1200
    processes: 8
    ingress_mbps: 20000
"""

RETURN = r"""
files:
  description: Files in O(source).
  type: int
  returned: success
bytes:
  description: Their bytes, before compression.
  type: int
  returned: success
left_out:
  description: What in O(source) was left out. That are directories with the state of a staging (C(.staging)), and links with O(links=skip).
  type: list
  elements: str
  returned: success
files_copied:
  description: Files that were (or would be) uploaded.
  type: int
  returned: success
bytes_copied:
  description: Bytes that were uploaded.
  type: int
  returned: success
gbps:
  description: Rate of the upload, in Gbit/s.
  type: float
  returned: success
cap_mbps:
  description: Cap of each AzCopy process, in Mbit/s. V(0) for none.
  type: float
  returned: success
bandwidth:
  description: Sentences that explain the cap.
  type: list
  elements: str
  returned: success
"""

import os
import typing as t
import urllib.parse

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.options import AZCOPY, IDENTITY, SAS, failure
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.secrets import hide_secrets, refuse_queries
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.limits import check_options
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.upload import Upload, upload
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "source": {"type": "path", "required": True},
            "url": {"type": "str", "required": True},
            "prefix": {"type": "str", "default": ""},
            "sas": SAS,
            "compress": {"type": "bool", "default": False},
            "links": {"type": "str", "choices": ["refuse", "follow", "skip"], "default": "refuse"},
            "work_path": {"type": "path"},
            "processes": {"type": "int", "default": 8},
            "ingress_mbps": {"type": "float", "default": 0},
            **AZCOPY,
            **IDENTITY,
            "timeout_s": {"type": "float", "default": 0},
            "stall_timeout_s": {"type": "float", "default": 45},
        },
        required_if=[("compress", True, ["work_path"])],
        supports_check_mode=True,
        no_log=True,
    )
    params: dict[str, t.Any] = dict(module.params)
    url, prefix = params.pop("url").rstrip("/"), urllib.parse.quote(params.pop("prefix").strip("/"))
    wanted = Upload(**{**params, "work_path": params["work_path"] or ""}, destination=f"{url}/{prefix}".rstrip("/"))
    hide_secrets(module, wanted.sas)
    try:
        refuse_queries(module, [{"url": url, "prefix": prefix}])
        check_options(module.params)
        if wanted.compress:
            check_work_path(wanted)
        module.exit_json(**upload(wanted, write=not module.check_mode))
    except ClusterError as error:
        module.fail_json(**failure(error, wanted.sas))


def check_work_path(wanted: Upload) -> None:
    """Compressed files within the source would become data of the next upload."""
    source, work_path = os.path.realpath(wanted.source), os.path.realpath(wanted.work_path)
    if os.path.commonpath([source, work_path]) == source:
        raise ClusterError(
            "bad_input",
            f"{wanted.work_path} for the compressed files is within {wanted.source}, which is to be uploaded.",
            f"Set work_path to a directory beside it, such as {source}.gz.",
        )


if __name__ == "__main__":
    main()
