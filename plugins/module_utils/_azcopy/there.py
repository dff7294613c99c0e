# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What a container holds already at the destination of an upload."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import urllib.parse

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.argv import CopyRequest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.judge import CopyOutcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.model import Settings, SourceFile
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.source import dry_run, source_files
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.catalogue import build_manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.listing import Limits, Listing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

_NOTHING_THERE = ("no_match", "not_found")


def files_there(request: CopyRequest, settings: Settings) -> dict[str, SourceFile] | None:
    """Its blobs by their names below the destination; None where neither AzCopy nor a listing of our own may look.

    AzCopy asks for the properties of the destination first, which takes the permission to read; a SAS for an upload often has
    none. A listing tells sizes and MD5s without.
    """
    if _may_read(request.token):
        try:
            return {file.name: file for file in source_files(*_as_download(request, settings))}
        except ClusterError as exc:
            if exc.kind in _NOTHING_THERE:
                return {}
            if exc.kind != "auth_failed":
                raise
    if not request.token:
        return None
    try:
        return _listed_file(request) if os.path.isfile(request.source) else _listed_tree(request)
    except ClusterError as exc:
        if exc.kind in _NOTHING_THERE:
            return {}
        if exc.kind != "auth_failed":
            raise
        return None


def _may_read(sas: str) -> bool:
    """Whether a SAS says so, or says nothing: a stored access policy has the permissions then."""
    return "r" in dict(urllib.parse.parse_qsl(sas)).get("sp", "r")


def _as_download(request: CopyRequest, settings: Settings) -> tuple[CopyRequest, CopyOutcome]:
    download = dataclasses.replace(
        request,
        source=request.destination,
        destination="/azcopy-dry-run",
        include_pattern=None,
        content_encoding="",
        put_md5=False,
        file_list=None,
        expected_files=None,
        expected_bytes=None,
        follow_links=False,
    )
    return download, dry_run(download, settings)


def _listed_tree(request: CopyRequest) -> dict[str, SourceFile]:
    remote = request.remote
    place = {"url": remote.container_url, "prefix": remote.path, "sas": request.token}
    return {blob.name: SourceFile(blob.name, blob.size, blob.md5) for blob in build_manifest([place]).blobs}


def _listed_file(request: CopyRequest) -> dict[str, SourceFile]:
    """The blob of the URL, or the one of the file's name below it, as AzCopy takes a URL that is a directory already."""
    remote, base = request.remote, os.path.basename(request.source)
    names = [name for name in (remote.path, f"{remote.path}/{base}".lstrip("/")) if name]
    found = {}
    with contextlib.closing(Listing(remote.container_url, request.token, None, Limits())) as listing:
        for name in names:
            # Of the names that begin with it, it is the first itself.
            for blob in next(iter(listing.pages(name))).blobs[:1]:
                if blob.name == name:
                    found[name.rpartition("/")[2]] = SourceFile(name.rpartition("/")[2], blob.size, blob.md5)
    return found


__all__ = ["files_there"]
