# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Run AzCopy under supervision: it ends in time, tells the truth, and leaves nothing half-done behind.

What is done against which habit of AzCopy 10.32.2 (all measured):

* stdin is a pipe that stays open: at end of file AzCopy spins on a whole core;
* success is what EndOfJob and the expected counts say, never the exit code;
* a watchdog on progress: a gzip blob that is none hangs AzCopy for ever, a dead endpoint for half an hour;
* SIGTERM, its prompt answered, 10 s, SIGKILL to the whole process group: while it scans it ignores SIGTERM;
* ``.azDownload-*`` files of killed jobs are swept, names of missing list entries are found, the SAS is cut from all texts.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.argv import CopyRequest, check_request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.judge import CopyOutcome, judge
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.probe import check_reachable, probe
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.supervisor import Supervisor
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.identity import check_identity
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.url import with_address
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.part_file import disk_errors


def run_copy(
    request: CopyRequest,
    *,
    timeout_s: float = 0,
    stall_timeout_s: float = 45,
    should_stop: t.Callable[[], bool] | None = None,
    preflight: bool = True,
) -> CopyOutcome:
    """Copy, and return what happened: a failed copy is an outcome with an ``error``, not an exception.

    ``timeout_s`` bounds the whole copy (0: no bound), ``stall_timeout_s`` the time without any progress (0: no watchdog;
    the 10 s until SIGKILL come on top). ``should_stop`` is asked about four times a second.
    """
    return run_copies(
        [request],
        timeout_s=timeout_s,
        stall_timeout_s=stall_timeout_s,
        should_stop=should_stop,
        preflight=preflight,
    )


def run_copies(
    requests: t.Sequence[CopyRequest],
    *,
    timeout_s: float = 0,
    stall_timeout_s: float = 45,
    should_stop: t.Callable[[], bool] | None = None,
    is_complete: t.Callable[[], bool] | None = None,
    preflight: bool = True,
) -> CopyOutcome:
    """Run several shares of one job side by side (for example one prefix pattern each) as one outcome.

    ``is_complete`` is for a caller that checks the landed files itself. Once it is true, AzCopy is ended (it would run for two
    more seconds), and the outcome is a success whatever AzCopy has not said yet.
    """
    started = time.monotonic()
    warnings: list[str] = []
    try:
        for request in requests:
            check_request(request)
            _check_local(request)
        for azcopy in {request.azcopy for request in requests}:
            warnings += probe(azcopy).warnings
        if preflight:
            for remote in {request.remote for request in requests}:
                check_reachable(remote)
            for client_id in {request.identity_client_id for request in requests if request.logs_in_here}:
                check_identity(client_id)
        with disk_errors(requests[0].local), _scratch_directory() as scratch:
            supervisor = Supervisor([_prepare(request, scratch) for request in requests], scratch)
            try:
                supervisor.run(timeout_s, stall_timeout_s, should_stop, is_complete)
            finally:
                supervisor.close()
            return judge(supervisor, requests, warnings, time.monotonic() - started)
    except ClusterError as exc:
        return _failed_early(exc, warnings, time.monotonic() - started)


def _scratch_directory() -> tempfile.TemporaryDirectory[str]:
    """For lists of files, and for what AzCopy writes where the request names no directory."""
    with disk_errors(tempfile.tempdir or os.environ.get("TMPDIR") or "the temporary directory"):
        return tempfile.TemporaryDirectory(prefix="azcopy-")


def _failed_early(error: ClusterError, warnings: list[str], seconds: float) -> CopyOutcome:
    return CopyOutcome("NotStarted", 0, 0, 0, 0, 0, seconds, 0.0, [], -1, warnings, error, [])


def _check_local(request: CopyRequest) -> None:
    """Look at the local side before AzCopy does: it drops files of a list that do not exist without a word."""
    if request.is_download:
        return
    if not os.path.exists(request.source):
        raise ClusterError(
            "not_found", f"The source `{request.source}` does not exist.", "Check the path on this node."
        )
    missing = [name for name in request.file_list or () if not os.path.lexists(os.path.join(request.source, name))]
    if missing:
        raise ClusterError(
            "not_found",
            f"{len(missing)} files of file_list do not exist under `{request.source}`: {', '.join(missing[:5])}.",
            "Correct the list.",
            missing_files=missing[:1000],
        )


def _prepare(request: CopyRequest, scratch: str) -> CopyRequest:
    """Give the request its directories and an address that AzCopy understands."""
    resolved = str(with_address(request.remote))
    prepared = dataclasses.replace(
        request,
        source=resolved if request.is_download else request.source,
        destination=request.destination if request.is_download else resolved,
        sas=request.token,
        log_dir=request.log_dir or os.path.join(scratch, "log"),
        plan_dir=request.plan_dir or os.path.join(scratch, "plan"),
    )
    wanted = [prepared.log_dir, prepared.plan_dir]
    if request.is_download and not request.dry_run:
        wanted.append(request.destination)
    for directory in wanted:
        with disk_errors(directory):
            os.makedirs(directory, exist_ok=True)
    return prepared


__all__ = ["CopyOutcome", "CopyRequest", "run_copies", "run_copy"]
