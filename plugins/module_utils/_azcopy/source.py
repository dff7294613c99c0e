# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is at the source: a dry run of AzCopy, and what its answer proves."""

from __future__ import annotations

import dataclasses
import os

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.argv import CopyRequest, suggest_processes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.model import Settings, SourceFile
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.run import CopyOutcome, run_copy
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.room import available_cpus


def dry_run(request: CopyRequest, settings: Settings) -> CopyOutcome:
    """AzCopy's own view of patterns and lists: what it would copy. Raises what it fails with."""
    outcome = run_copy(
        dataclasses.replace(request, dry_run=True, decompress=False, processes=processes(request, settings)),
        timeout_s=settings.timeout_s,
        stall_timeout_s=settings.stall_timeout_s,
        should_stop=settings.should_stop,
    )
    if outcome.error is not None:
        raise outcome.error
    return outcome


def processes(request: CopyRequest, settings: Settings) -> int:
    """How many AzCopy processes share the file list."""
    return settings.processes or suggest_processes(len(request.file_list or ()), available_cpus())


def source_files(request: CopyRequest, listing: CopyOutcome) -> list[SourceFile]:
    """The files of a dry run by name; ``no_match`` or ``not_found`` where some or all are missing."""
    # AzCopy cleans this part of a path only: what follows is the blob's name to the letter, `a//b` and `a/../b` too.
    below = len(os.path.normpath(request.destination)) + 1
    files = []
    for planned in listing.planned:
        name = planned.destination[below:] if request.is_download else os.path.relpath(planned.source, request.source)
        if name in ("", "."):  # a single file
            name = os.path.basename(planned.source)
        files.append(SourceFile(name, planned.size, planned.md5))
    if not files and request.file_list is None:
        raise ClusterError(
            "no_match",
            "No file matched: nothing was copied, although AzCopy calls that a success.",
            "Check the prefix, and include_pattern (it matches file names only and is separated by `;`).",
        )
    if request.file_list is not None:
        missing = sorted(set(request.file_list) - {file.name for file in files})
        if missing:
            raise ClusterError(
                "not_found",
                f"{len(missing)} of {len(request.file_list)} listed files do not exist at the source: "
                f"{', '.join(missing[:5])}{', …' if len(missing) > 5 else ''}.",
                "Correct the list; AzCopy itself passes over such names without a word.",
                missing_files=missing[:1000],
            )
    return sorted(files, key=lambda file: file.name)


def check_expected(files: list[SourceFile], settings: Settings) -> None:
    """Raise ``changed_at_source`` unless number and bytes are those that the caller knows from an earlier listing."""
    size = sum(file.size for file in files)
    for expected, found, what in (
        (settings.expected_files, len(files), "files"),
        (settings.expected_bytes, size, "bytes"),
    ):
        if expected is not None and expected != found:
            raise ClusterError(
                "changed_at_source",
                f"{expected} {what} were expected at the source, {found} are there. Nothing was copied.",
                f"Check pattern or list, or plan again from a fresh listing and set expected_{what} to its result.",
            )


def unsure(files: list[SourceFile]) -> list[str]:
    """A warning where blobs have no MD5."""
    bare = sum(not file.md5 for file in files)
    if not bare:
        return []
    return [
        f"{bare} of {len(files)} blobs have no MD5: only their length can be checked, and a blob replaced by one of the "
        "same size is not noticed. Upload with put_md5, or set force to copy them again."
    ]


__all__ = ["check_expected", "dry_run", "processes", "source_files", "unsure"]
