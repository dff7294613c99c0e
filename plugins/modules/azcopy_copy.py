#!/usr/bin/python

# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copy between Azure Blob Storage and a local directory with a supervised AzCopy."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: azcopy_copy
short_description: Copy between Azure Blob Storage and a local directory, with proof
version_added: 0.1.0
description:
  - Runs AzCopy under supervision. AzCopy's exit code is not believed - it is 0 when nothing matched, when listed files
    do not exist, and when a file was skipped. What is at the source is listed first, only what is missing or differs is
    copied, and counts, bytes and checksums are compared afterwards.
  - AzCopy gets a standard input that stays open (at end of file it burns a CPU core), a watchdog on progress (some faults
    make it wait for ever, a dead endpoint for half an hour), and its temporary files are removed when it had to be killed.
  - The contents of O(source) go into O(destination); names below them are kept.
  - A blob that its metadata mark as a directory (C(hdi_isfolder)) or a symbolic link (C(is_symlink)) is left out, as AzCopy does it. One
    whose name no file can have (C(a//b), C(a/../b), a last component of more than 206 bytes) is refused before anything is copied.
requirements:
  - AzCopy 10.16 or later on the node; 10.32.2 is the tested version. It needs libsecret.
options:
  source:
    description:
      - URL of a container or of a prefix in it, C(https://ACCOUNT.blob.core.windows.net/CONTAINER[/PREFIX]), for a
        download; absolute path of a directory or file for an upload.
      - A SAS at the end of the URL works and is kept secret, but O(sas) is the better place.
    type: str
    required: true
  destination:
    description:
      - Absolute path of a directory for a download (made when it is missing); URL of a container, of a prefix, or of a
        blob when O(source) is one file, for an upload.
      - Directories below it may belong to others - AzCopy copies to a hidden directory in it, and files are moved from there, through
        no symbolic link. A name that leads through one is refused before anything is copied. The directory itself may be reached
        through links, but whoever may write to it can disturb a copy.
    type: str
    required: true
  sas:
    description:
      - Shared access signature, with or without a leading C(?). A download needs the permissions read and list, an upload
        create, write and list (C(sp=cwl)). Without list an upload cannot compare - every run uploads every file, is C(changed),
        and says why in a warning; with O(overwrite=false) it is refused.
      - AzCopy takes it only as part of the URL, so other users of the node can see it in C(ps) while the copy runs. On
        Azure machines prefer O(identity).
    type: str
  identity:
    description:
      - How AzCopy logs in when there is no SAS. V(msi) is the managed identity of the machine and the recommended way on
        Azure. V(azcli) uses the login of the Azure CLI, V(workload) a federated token, V(spn) a service principal from
        AzCopy's own environment variables, V(none) reads public containers.
    type: str
    choices: [none, msi, azcli, workload, spn]
    default: none
  identity_client_id:
    description: Client ID of a user-assigned managed identity, or of the service principal.
    type: str
  include_pattern:
    description:
      - Copy only files whose name (not path) matches one of these patterns, separated by C(;). C(*), C(?) and C([0-9]) work.
      - An empty string is refused - AzCopy would copy everything.
    type: str
  file_list:
    description:
      - Paths relative to O(source), or such a list as a text in JSON. Names that do not exist at the source are an error.
    type: list
    elements: str
  recursive:
    description: Whether to go into subdirectories.
    type: bool
    default: true
  decompress:
    description:
      - Unpack gzip files after a download.
      - With O(decompress_engine=collection), files whose name ends in C(.gz) must be gzip and lose that suffix; others
        are unpacked when they begin like gzip and are left alone otherwise.
    type: bool
    default: false
  decompress_engine:
    description:
      - V(collection) lets AzCopy bring the raw bytes and unpacks them in parallel while the download goes on; CRC32 and
        length of every gzip member and the MD5 of the blob are checked before a file gets its final name. It uses the
        Python package C(isal) where that is installed.
      - V(azcopy) is C(azcopy --decompress), which goes by the content encoding of the blob, keeps the C(.gz) in the name
        since version 10.31, and hangs on some damaged blobs until O(stall_timeout_s) ends it.
    type: str
    choices: [collection, azcopy]
    default: collection
  landing_dir:
    description:
      - Directory for raw files that wait to be unpacked by the collection, for example on node-local NVMe. The default is a
        hidden directory in O(destination), which other copies always use. It is emptied as files are finished and removed at the end.
    type: path
  cap_mbps:
    description:
      - Limit for the whole copy in megabits per second; 0 is no limit. The block size is lowered where AzCopy would
        otherwise refuse every transfer (a block must fit into one second of the cap).
    type: float
    default: 0
  block_size_mib:
    description: Block size in MiB, a whole number of bytes; 0 leaves the choice to AzCopy, or to O(cap_mbps).
    type: float
    default: 0
  concurrency:
    description: Number of concurrent requests (C(AZCOPY_CONCURRENCY_VALUE)); 0 leaves the choice to AzCopy.
    type: int
    default: 0
  processes:
    description:
      - Number of AzCopy processes that share O(file_list). AzCopy looks up listed files one after the other, so several
        processes are faster for long lists. 0 chooses by length, 1 per 250 files and at most 8.
    type: int
    default: 0
  timeout_s:
    description: Seconds after which the copy is stopped; 0 is no limit.
    type: float
    default: 0
  stall_timeout_s:
    description:
      - Seconds without any progress after which the copy is stopped; 0 waits for ever. Stopping takes up to 10 seconds.
    type: float
    default: 45
  expected_files:
    description: Number of files that must be at the source; otherwise nothing is copied.
    type: int
  expected_bytes:
    description: Number of bytes that must be at the source (as stored there); otherwise nothing is copied.
    type: int
  overwrite:
    description:
      - Whether existing files that differ are replaced. With V(false) they are an error, not silently kept.
    type: bool
    default: true
  force:
    description: Copy every file again, whatever is there.
    type: bool
    default: false
  check_md5:
    description: What a download does about the MD5 that is stored with a blob. Not used while unpacking, which always checks.
    type: str
    choices: [FailIfDifferent, FailIfDifferentOrMissing, LogOnly, NoCheck]
    default: FailIfDifferent
  put_md5:
    description: Store the MD5 of each uploaded file with the blob. Later runs need it to see what is there already.
    type: bool
    default: true
  links:
    description:
      - What becomes of symbolic links in a directory that is uploaded. V(refuse) names them and uploads nothing, V(follow) uploads
        what they point to, V(skip) leaves them out with a warning. AzCopy itself leaves them out in silence.
      - Pipes, sockets, devices, and names that are not UTF-8 are always refused. Only what O(include_pattern), O(file_list) and
        O(recursive) choose is looked at; links to directories are, whatever the pattern.
    type: str
    choices: [refuse, follow, skip]
    default: refuse
  content_encoding:
    description: Content encoding of uploaded blobs, V(gzip) for files that were compressed before the upload.
    type: str
  azcopy:
    description: Path of the AzCopy program.
    type: path
    default: /usr/local/bin/azcopy
  log_dir:
    description:
      - Directory for AzCopy's logs and job plans, better on a local disk. The default is C(/var/tmp/azcopy-UID). Nodes that share
        it have a directory each in it.
    type: path
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
attributes:
  check_mode:
    support: full
    details: Lists the source and says what would be copied.
  diff_mode:
    support: full
    details: Shows the names of the files that are copied.
  idempotent:
    support: full
    details:
      - A download keeps a hidden record beside the data (name, size and MD5 at the source; size and modification time
        here). A second run lists the source and copies nothing; after a failure it copies only the rest. Uploads are compared by
        size and MD5.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
      - hpcai.gpu_cluster.azcopy
author:
  - The hpcai.gpu_cluster developers (@hpcai)
"""

EXAMPLES = r"""
- name: Copy a share of the data set with the managed identity of the machine
  hpcai.gpu_cluster.azcopy_copy:
    source: https://cosmoflow.blob.core.windows.net/train
    destination: /mnt/beeond/train
    include_pattern: "*_00[0-3].tfrecord.gz"
    identity: msi
    decompress: true
    landing_dir: /mnt/nvme/landing

- name: Copy listed files with a SAS, at most 2 Gb/s
  hpcai.gpu_cluster.azcopy_copy:
    source: https://cosmoflow.blob.core.windows.net/train
    destination: /mnt/nvme/train
    sas: "{{ cosmoflow_sas }}"
    file_list: [a/univ_000.tfrecord, a/univ_001.tfrecord]
    cap_mbps: 2000

- name: Upload one rank's checkpoint, throttled to its part of the account's ingress
  hpcai.gpu_cluster.azcopy_copy:
    source: /mnt/nvme/checkpoint/rank-3.pt
    destination: https://checkpoints.blob.core.windows.net/run-17/step-900/rank-3.pt
    identity: msi
    cap_mbps: 2300
    concurrency: 10
"""

RETURN = r"""
files_total:
  description: Files at the source that the copy is about.
  returned: success
  type: int
  sample: 2048
bytes_total:
  description: Their size at the source in bytes.
  returned: success
  type: int
  sample: 4630511616
files_copied:
  description: Files that were copied (in check mode, that would be).
  returned: success
  type: int
  sample: 12
bytes_copied:
  description: Bytes that were copied, as stored at the source.
  returned: success
  type: int
  sample: 27131904
seconds:
  description: Duration of the copy.
  returned: success
  type: float
  sample: 4.1
gbps:
  description: Throughput of the copy in 10^9 bit/s.
  returned: success
  type: float
  sample: 5.3
job_ids:
  description: AzCopy's job IDs; its logs are named after them.
  returned: success
  type: list
  elements: str
  sample: [ac8f5861-e007-d343-5313-38d26a21e78e]
error_kind:
  description:
    - Why the copy failed, for programs. One of V(auth_failed), V(sas_expired), V(container_missing), V(no_match),
      V(not_found), V(partial), V(disk_full), V(unreachable), V(stalled), V(stuck), V(azcopy_crashed), V(azcopy_missing),
      V(azcopy_unsuitable), V(archived), V(bad_input), V(changed_at_source), V(corrupt), V(io), V(not_gzip), V(throttled),
      V(tls_untrusted), V(truncated).
  returned: failure
  type: str
  sample: sas_expired
remedy:
  description: What to do about it.
  returned: failure
  type: str
  sample: Make a new SAS that outlives the copy, and check the clock of this node.
failed_files:
  description: Files that could not be copied (at most 1000).
  returned: when single files failed
  type: list
  elements: str
  sample: [a/univ_007.tfrecord.gz]
missing_files:
  description: Listed files that do not exist at the source (at most 1000).
  returned: when listed files do not exist
  type: list
  elements: str
  sample: [a/univ_999.tfrecord.gz]
"""

import dataclasses
import os
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.argv import CopyRequest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.chosen import choose
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.compare import make_plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.copy import copy
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.model import Plan, Report
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.options import (
    ARGUMENT_SPEC,
    EXCLUSIVE,
    read_options,
    take_secret,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.record import remember
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.share import private_directory, share_id
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.secrets import hide_secrets, query_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.url import is_url
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError


def to_result(plan: Plan, report: Report | None) -> dict[str, t.Any]:
    """The module's result; without a report nothing was copied (check mode, or nothing to do)."""
    names = [file.name for file in plan.needed]
    return {
        "changed": bool(plan.needed),
        "files_total": len(plan.files),
        "bytes_total": sum(file.size for file in plan.files),
        "files_copied": len(names),
        "bytes_copied": plan.needed_bytes,
        "seconds": round(report.seconds, 3) if report else 0.0,
        "gbps": round(report.gbps, 3) if report else 0.0,
        "job_ids": report.job_ids if report else [],
        "diff": {
            "before_header": "files that are missing or differ",
            "after_header": "files that were copied",
            "before": "",
            "after": "".join(f"{name}\n" for name in names[:1000]),
        },
    }


def _of_links(left_out: list[str]) -> list[str]:
    names = ", ".join(left_out[:5]) + (", …" if len(left_out) > 5 else "")
    return [f"{len(left_out)} symbolic links are not uploaded: {names}."] if left_out else []


def main() -> None:
    """Run the module."""
    # A SAS inside a URL must not reach the system log, which is written before any of our code could take it out.
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        supports_check_mode=True,
        mutually_exclusive=EXCLUSIVE,
        no_log=True,
    )
    try:
        raw_urls = [module.params[side] for side in ("source", "destination")]
        hide_secrets(module, module.params["sas"], *(query_of(url) for url in raw_urls if is_url(url)))
        sas = take_secret(module.params)
        request, settings = read_options(module.params, sas)
        request, left_out = choose(request, module.params["links"])
        with private_directory(module.params["log_dir"] or "", share_id(request)) as private:
            request = with_directories(request, private)
            plan = make_plan(request, settings)
            report = None
            if plan.needed and not module.check_mode:
                report = copy(request, settings, plan)
            elif not module.check_mode:
                remember(request, settings, plan)
        for warning in [*_of_links(left_out), *plan.warnings, *(report.warnings if report else ())]:
            module.warn(warning)
        module.exit_json(**to_result(plan, report))
    except ClusterError as exc:
        module.fail_json(**exc.as_result())


def with_directories(request: CopyRequest, private: str) -> CopyRequest:
    """Put logs and job plans of this share into its own directory: plans found there later are leftovers of ours."""
    return dataclasses.replace(request, log_dir=os.path.join(private, "log"), plan_dir=os.path.join(private, "plan"))


if __name__ == "__main__":
    main()
