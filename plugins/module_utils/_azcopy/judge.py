# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What a copy came to: never what AzCopy's exit codes say, but its messages, the counts, and what is at the destination."""

from __future__ import annotations

import dataclasses
import os
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.argv import CopyRequest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.job import Job
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.messages import (
    FATAL_KINDS,
    PlannedFile,
    check_counts,
    classify,
    find_cause,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.probe import check_reachable
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.supervisor import Supervisor
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.url import redact
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError


@dataclasses.dataclass
class CopyOutcome:
    """What a copy did. ``error`` is None only when everything that was expected has been copied."""

    status: str
    total: int
    completed: int
    failed: int
    skipped: int
    bytes: int
    seconds: float
    gbps: float
    failed_files: list[str]
    rc: int
    warnings: list[str]
    error: ClusterError | None
    job_ids: list[str]
    planned: list[PlannedFile] = dataclasses.field(default_factory=list)
    log_tail: list[str] = dataclasses.field(default_factory=list)


def judge(copied: Supervisor, originals: t.Sequence[CopyRequest], warnings: list[str], seconds: float) -> CopyOutcome:
    """The outcome of a copy whose processes have ended. ``originals`` are the requests as they came, SAS included."""
    states = [job.state for job in copied.jobs]
    errors = [] if copied.complete else _errors(copied, originals)
    failed_files = sorted({name for state in states for name in state.failed_files})
    error = errors[0] if errors else None
    if error is not None and failed_files:
        error.details["failed_files"] = failed_files
    statuses = sorted({state.status for state in states if state.status})
    size = sum(state.bytes_done for state in states)
    tail = [line for state in states for line in state.tail]
    secrets = [request.token for request in originals]
    return CopyOutcome(
        status=statuses[0] if len(statuses) == 1 else ("Failed" if errors else "Completed"),
        total=sum(state.total for state in states),
        completed=sum(state.completed for state in states),
        failed=sum(state.failed for state in states),
        skipped=sum(state.skipped for state in states),
        bytes=size,
        seconds=seconds,
        gbps=size * 8 / 1e9 / seconds if seconds else 0.0,
        failed_files=failed_files,
        rc=max((job.rc for job in copied.jobs), key=abs, default=-1),
        warnings=warnings,
        error=error,
        job_ids=[state.job_id for state in states if state.job_id],
        planned=[entry for state in states for entry in state.planned],
        log_tail=[redact(line, *secrets) for line in tail] if errors else [],
    )


def _stuck(job: Job) -> ClusterError:
    return ClusterError(
        "stuck",
        f"AzCopy (process {job.process.pid}) does not end, not even when it is killed: it waits for a disk or a mount.",
        f"Look at the file system of {job.request.local} on this node (`dmesg`); it may need a reboot. Then run again.",
    )


def _verdict(job: Job) -> ClusterError | None:
    if job.stuck:
        return _stuck(job)
    error = classify(
        job.state,
        job.rc,
        stopped=job.stopped,
        log_text="" if job.rc == 0 and not job.stopped else job.log_text(),
        local=job.request.local,
        sas=job.request.token,
        now=time.time(),
    )
    if error is not None and error.kind == "stalled":
        try:
            check_reachable(job.request.remote, timeout_s=3)
        except ClusterError as unreachable:
            return unreachable
    return error


def _errors(copied: Supervisor, originals: t.Sequence[CopyRequest]) -> list[ClusterError]:
    """What the processes failed with, or else what is missing although none did; what ends everything comes first."""
    errors = [error for error in map(_verdict, copied.jobs) if error is not None]
    if not errors:
        count = _count_planned if any(request.dry_run for request in originals) else _count
        errors = [error for owner, request in enumerate(originals) if (error := count(copied, owner, request))]
    return sorted(errors, key=lambda error: error.kind not in FATAL_KINDS)


def _refusal(copied: Supervisor, owner: int) -> ClusterError | None:
    """Why listed files were passed over, when that was a refusal: AzCopy takes those for files that are not there."""
    for job in copied.jobs:
        if job.owner == owner:
            said = "\n".join(job.state.complaints)
            cause = find_cause(said, paths=[job.request.local], sas=job.request.token, now=time.time())
            if cause is not None and cause.kind in ("auth_failed", "sas_expired"):
                return cause
    return None


def _count_planned(copied: Supervisor, owner: int, request: CopyRequest) -> ClusterError | None:
    found = sum(len(job.state.planned) for job in copied.jobs if job.owner == owner)
    return _refusal(copied, owner) if request.file_list is not None and found < len(request.file_list) else None


def _count(copied: Supervisor, owner: int, request: CopyRequest) -> ClusterError | None:
    ours = [job.state for job in copied.jobs if job.owner == owner]
    expected = request.expected_files
    if expected is None and request.file_list is not None:
        expected = len(request.file_list)
    error = check_counts(
        completed=sum(state.completed for state in ours),
        skipped=sum(state.skipped for state in ours),
        size=sum(state.bytes_expected for state in ours),
        expected_files=expected,
        expected_bytes=request.expected_bytes,
    )
    if error is None or error.kind == "changed_at_source" or not request.is_download or request.file_list is None:
        return error
    missing = _not_arrived(request.destination, request.file_list, copied.marks.get(request.destination, 0.0))
    if not missing:
        return error
    refused = _refusal(copied, owner)
    if refused is not None:
        return refused
    return passed_over(missing, len(request.file_list))


def passed_over(missing: list[str], listed: int) -> ClusterError:
    """The error for listed files that AzCopy has not copied and says nothing of."""
    return ClusterError(
        "not_found",
        f"{len(missing)} of {listed} listed files do not exist at the source: {', '.join(missing[:5])}"
        f"{', …' if len(missing) > 5 else ''}.",
        "List the source again; AzCopy itself passes over such names without a word.",
        missing_files=missing[:1000],
    )


def _not_arrived(destination: str, names: t.Iterable[str], since: float) -> list[str]:
    """Listed files that this copy did not write: absent, or unchanged since before it began."""
    missing = []
    for name in names:
        try:
            changed = os.stat(os.path.join(destination, name)).st_ctime
        except OSError:
            changed = -1.0
        if changed < since:
            missing.append(name)
    return missing


__all__ = ["CopyOutcome", "judge", "passed_over"]
