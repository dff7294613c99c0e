# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The options of azcopy_copy: the module reads them on the node, and its action refuses what cannot work before that."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.argv import CopyRequest, check_request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.model import Settings, check_settings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.url import is_url, split_sas
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

EXCLUSIVE = [("include_pattern", "file_list")]
ARGUMENT_SPEC: dict[str, dict[str, t.Any]] = {
    "source": {"type": "str", "required": True},
    "destination": {"type": "str", "required": True},
    "sas": {"type": "str", "no_log": True},
    "identity": {"type": "str", "choices": ["none", "msi", "azcli", "workload", "spn"], "default": "none"},
    "identity_client_id": {"type": "str"},
    "include_pattern": {"type": "str"},
    "file_list": {"type": "list", "elements": "str"},
    "recursive": {"type": "bool", "default": True},
    "decompress": {"type": "bool", "default": False},
    "decompress_engine": {"type": "str", "choices": ["collection", "azcopy"], "default": "collection"},
    "landing_dir": {"type": "path"},
    "cap_mbps": {"type": "float", "default": 0},
    "block_size_mib": {"type": "float", "default": 0},
    "concurrency": {"type": "int", "default": 0},
    "processes": {"type": "int", "default": 0},
    "timeout_s": {"type": "float", "default": 0},
    "stall_timeout_s": {"type": "float", "default": 45},
    "expected_files": {"type": "int"},
    "expected_bytes": {"type": "int"},
    "overwrite": {"type": "bool", "default": True},
    "force": {"type": "bool", "default": False},
    "check_md5": {
        "type": "str",
        "choices": ["FailIfDifferent", "FailIfDifferentOrMissing", "LogOnly", "NoCheck"],
        "default": "FailIfDifferent",
    },
    "put_md5": {"type": "bool", "default": True},
    "links": {"type": "str", "choices": ["refuse", "follow", "skip"], "default": "refuse"},
    "content_encoding": {"type": "str"},
    "azcopy": {"type": "path", "default": "/usr/local/bin/azcopy"},
    "log_dir": {"type": "path"},
}


def take_secret(params: dict[str, t.Any]) -> str:
    """Take the SAS out of the options, also one that was left in a URL, which loses it."""
    sas = params["sas"] or ""
    for side in ("source", "destination"):
        if is_url(params[side]) and "?" in params[side]:
            params[side], found = split_sas(params[side])
            sas = sas or found
    return sas


def read_options(params: t.Mapping[str, t.Any], sas: str) -> tuple[CopyRequest, Settings]:
    """Sort the module's options into the request to AzCopy and the settings around it."""
    request = CopyRequest(
        azcopy=params["azcopy"],
        source=params["source"].rstrip("/") or "/",
        destination=params["destination"].rstrip("/") or "/",
        sas=sas,
        recursive=params["recursive"],
        include_pattern=params["include_pattern"],
        file_list=params["file_list"],
        check_md5=params["check_md5"],
        put_md5=params["put_md5"],
        content_encoding=params["content_encoding"] or "",
        cap_mbps=params["cap_mbps"],
        block_size_mib=params["block_size_mib"],
        concurrency=params["concurrency"],
        identity=params["identity"],
        identity_client_id=params["identity_client_id"] or "",
    )
    settings = Settings(
        decompress=params["decompress"],
        decompress_engine=params["decompress_engine"],
        landing_dir=params["landing_dir"] or "",
        overwrite=params["overwrite"],
        force=params["force"],
        timeout_s=params["timeout_s"],
        stall_timeout_s=params["stall_timeout_s"],
        expected_files=params["expected_files"],
        expected_bytes=params["expected_bytes"],
        processes=params["processes"],
    )
    if settings.decompress and not request.is_download:
        raise ClusterError("bad_input", "decompress works for downloads only.", "Remove it for an upload.")
    check_request(request)
    check_settings(settings)
    return request, settings


__all__ = ["ARGUMENT_SPEC", "EXCLUSIVE", "read_options", "take_secret"]
