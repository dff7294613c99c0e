# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is missing at the destination.

A file that is there counts as copied only when the record of an earlier run still fits it (size and modification time
here, size and MD5 at the source), or when its MD5 equals the one at the source.
"""

from __future__ import annotations

import base64
import concurrent.futures
import hashlib
import os

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.argv import CopyRequest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.model import (
    Plan,
    Settings,
    SourceFile,
    status_of,
    target_names,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.record import entry, read_record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.source import (
    check_expected,
    dry_run,
    source_files,
    unsure,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.there import files_there
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import check_paths
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.room import available_cpus
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.beneath import refuse_links

_BLOCK_BYTES = 1 << 20
_BLIND = (
    "Nothing can be compared: this SAS or identity may not list the destination. Every file is uploaded again, which counts as a "
    "change although the container may hold it already. A SAS with the permission list (l) beside create and write is enough."
)


def make_plan(request: CopyRequest, settings: Settings) -> Plan:
    """List the source (AzCopy's dry run: its own view of patterns and lists) and compare with the destination."""
    listing = dry_run(request, settings)
    files = source_files(request, listing)
    check_expected(files, settings)
    if request.is_download:
        check_paths(file.name for file in files)
        # Raises when two files would get one name, and where a directory of one is a link: nothing is read or written through it.
        refuse_links(request.destination, target_names(files, settings).values())
        needed, warnings = _needed_downloads(request, settings, files), unsure(files)
    else:
        needed, warnings = _needed_uploads(request, settings, files)
    return Plan(files, files if settings.force else needed, listing.warnings + warnings)


def _needed_downloads(request: CopyRequest, settings: Settings, files: list[SourceFile]) -> list[SourceFile]:
    record = read_record(request)
    names = target_names(files, settings)
    unknown: list[SourceFile] = []
    needed: list[SourceFile] = []
    for file in files:
        status = status_of(os.path.join(request.destination, names[file.name]))
        if status is None:
            needed.append(file)
        elif record.get(file.name) == entry(file, status, settings):
            continue
        elif settings.decompress or not file.md5 or status.st_size != file.size:
            needed.append(file)
        else:
            unknown.append(file)
    sums = md5_of_all([os.path.join(request.destination, names[file.name]) for file in unknown])
    needed += [file for file, md5 in zip(unknown, sums) if md5 != file.md5]
    present = [file for file in needed if os.path.lexists(os.path.join(request.destination, names[file.name]))]
    if present and not settings.overwrite:
        raise ClusterError(
            "bad_input",
            f"{len(present)} files exist at the destination and differ from the source: "
            f"{', '.join(file.name for file in present[:5])}.",
            "Set overwrite to true to replace them, or choose another destination.",
            differing_files=[file.name for file in present[:1000]],
        )
    return sorted(needed, key=lambda file: file.name)


def _needed_uploads(
    request: CopyRequest, settings: Settings, files: list[SourceFile]
) -> tuple[list[SourceFile], list[str]]:
    """Compare with what the container holds; where the container may not be listed, everything has to be uploaded."""
    single = os.path.isfile(request.source)
    there = files_there(request, settings)
    if there is None:
        if not settings.overwrite:
            raise ClusterError(
                "auth_failed",
                "This SAS or identity may not list the destination, so nobody can tell which blobs exist. Nothing was uploaded.",
                "Give it the permission list (l), or set overwrite to true to replace what is there.",
            )
        return files, [_BLIND]
    if single:  # a container holds it under its own name, a blob URL is the file itself
        found = [file for name, file in there.items() if name in (files[0].name, _blob_name(request))]
        there = {files[0].name: found[0]} if found else {}
    same = [
        file for file in files if file.name in there and there[file.name].size == file.size and there[file.name].md5
    ]
    paths = [request.source if single else os.path.join(request.source, file.name) for file in same]
    done = {file.name for file, md5 in zip(same, md5_of_all(paths)) if md5 == there[file.name].md5}
    needed = [file for file in files if file.name not in done]
    present = [file.name for file in needed if file.name in there]
    bare = [file.name for file in needed if file.name in there and _is_bare(there[file.name], file)]
    if present and not settings.overwrite:
        raise ClusterError(
            "bad_input",
            f"{len(present)} blobs exist and differ: {', '.join(present[:5])}.",
            "Set overwrite to true to replace them, or choose another destination.",
        )
    if not bare:
        return needed, []
    return needed, [
        f"{len(bare)} blobs at the destination have no MD5, so nobody can tell whether they are what is uploaded: "
        f"{', '.join(bare[:5])}{', …' if len(bare) > 5 else ''}. They are uploaded again, which counts as a change; with put_md5 "
        "they are compared the next time."
    ]


def _is_bare(there: SourceFile, here: SourceFile) -> bool:
    """Whether nothing tells that a blob differs from the file, nor that it does not."""
    return not there.md5 and there.size == here.size


def _blob_name(request: CopyRequest) -> str:
    return request.remote.path.rsplit("/", 1)[-1]


def md5_of_all(paths: list[str]) -> list[str]:
    with concurrent.futures.ThreadPoolExecutor(available_cpus()) as pool:
        return list(pool.map(_md5_of, paths))


def _md5_of(path: str) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with open(path, "rb", buffering=0) as stream:
            for block in iter(lambda: stream.read(_BLOCK_BYTES), b""):
                digest.update(block)
    except OSError:
        return ""
    return base64.b64encode(digest.digest()).decode()


__all__ = ["make_plan"]
