# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Copy what a plan needs, prove that it arrived, and remember it."""

from __future__ import annotations

import dataclasses
import os

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.argv import CopyRequest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.land import land
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.model import (
    Plan,
    Report,
    Settings,
    SourceFile,
    status_of,
    target_names,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.record import recorded_if_it_fails, write_record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.run import run_copy
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.source import processes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.encoding import is_gzip
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.room import check_room


def copy(request: CopyRequest, settings: Settings, plan: Plan) -> Report:
    """Copy what the plan needs, check it, and write the record."""
    notes = []
    if request.is_download:
        packed = sum(file.size for file in plan.needed if is_gzip(file.name)) if settings.decompress else 0
        notes = check_room(request.destination, plan.needed_bytes, packed)
    everything = len(plan.needed) == len(plan.files)
    names = [file.name for file in plan.needed]
    # A single file as the source cannot be listed relative to itself, and needs no list.
    listed = request if everything else dataclasses.replace(request, file_list=names, include_pattern=None)
    listed = dataclasses.replace(listed, expected_files=len(names), expected_bytes=plan.needed_bytes)
    listed = dataclasses.replace(listed, processes=processes(listed, settings), overwrite="true")
    if request.is_download:
        with recorded_if_it_fails(request, settings, plan) as finished:
            outcome = land(listed, settings, plan.needed, finished)
        _check_arrived(request, settings, plan.needed)
        write_record(request, settings, plan.files)
    else:
        outcome = run_copy(
            listed,
            timeout_s=settings.timeout_s,
            stall_timeout_s=settings.stall_timeout_s,
            should_stop=settings.should_stop,
        )
        if outcome.error is not None:
            outcome.error.details.setdefault("log_tail", outcome.log_tail[-10:])
            raise outcome.error
    return Report(
        len(names), plan.needed_bytes, outcome.seconds, outcome.gbps, outcome.job_ids, outcome.warnings + notes
    )


def _check_arrived(request: CopyRequest, settings: Settings, needed: list[SourceFile]) -> None:
    names = target_names(needed, settings)
    wrong = []
    for file in needed:
        status = status_of(os.path.join(request.destination, names[file.name]))
        if status is None or (not settings.decompress and status.st_size != file.size):
            wrong.append(file.name)
    if wrong:
        raise ClusterError(
            "partial",
            f"{len(wrong)} files are missing or have the wrong size after the copy: {', '.join(wrong[:5])}.",
            "Does another program write to the destination? Run again.",
            failed_files=wrong[:1000],
        )


__all__ = ["copy"]
