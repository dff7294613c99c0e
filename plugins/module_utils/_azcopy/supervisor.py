# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Watch the AzCopy processes of a copy until they have ended, or until they have to: no progress, no time, no need."""

from __future__ import annotations

import os
import selectors
import subprocess
import tempfile
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.argv import CopyRequest, split_request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.job import TERM_GRACE_S, Job
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.leftovers import (
    TEMPORARY_PREFIX,
    jobs_of,
    remove_plans,
    sweep_leftovers,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.probe import cannot_start
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.part_file import disk_errors

_POLL_S = 0.25


class Supervisor:
    """All AzCopy processes of one copy, watched by one thread.

    Afterwards ``jobs`` are the processes, ``complete`` says whether the caller had all that he wanted before they ended, and
    ``marks`` has the time at which each destination began to change, by its own clock.
    """

    def __init__(self, requests: t.Sequence[CopyRequest], scratch: str) -> None:
        self._requests = requests
        self._scratch = scratch
        self.jobs: list[Job] = []
        self._selector = selectors.DefaultSelector()
        self.marks: dict[str, float] = {}
        self.complete = False

    def run(
        self,
        timeout_s: float,
        stall_timeout_s: float,
        should_stop: t.Callable[[], bool] | None,
        is_complete: t.Callable[[], bool] | None,
    ) -> None:
        started = time.monotonic()
        for request in self._requests:
            if request.is_download and not request.dry_run:
                sweep_leftovers(request.destination, jobs_of(request.plan_dir))
                if request.file_list is not None:
                    self.marks[request.destination] = _file_system_time(request.destination)
        self._start_all()
        while self._selector.get_map():
            for key, _mask in self._selector.select(_POLL_S):
                if not key.data.read():
                    self._selector.unregister(key.fileobj)
            now = time.monotonic()
            if is_complete is not None and is_complete():
                self.complete = True
                break  # close() ends the processes
            reason = ""
            if should_stop is not None and should_stop():
                reason = "cancelled"
            elif timeout_s and now - started > timeout_s:
                reason = "timeout"
            for key in list(self._selector.get_map().values()):
                key.data.watch_scan(now)
                stalled = stall_timeout_s and now - key.data.last_progress > stall_timeout_s
                key.data.end(reason or ("stalled" if stalled else ""), now)
                if key.data.stuck:
                    self._selector.unregister(key.fileobj)
        if not self.complete:
            self._reap()

    def _start_all(self) -> None:
        number = 0
        for owner, request in enumerate(self._requests):
            for share in split_request(request):
                list_file = ""
                if share.file_list is not None:
                    list_file = os.path.join(self._scratch, f"files-{number}.txt")
                    with disk_errors(list_file), open(list_file, "w", encoding="utf-8") as stream:
                        stream.write("\n".join(share.file_list) + "\n")
                number += 1
                try:
                    job = Job(share, owner, list_file)
                except OSError as exc:
                    raise cannot_start(request.azcopy, exc) from exc
                self.jobs.append(job)
                self._selector.register(t.cast(t.Any, job.process.stdout), selectors.EVENT_READ, job)

    def _reap(self) -> None:
        for job in self.jobs:
            try:
                job.rc = job.process.wait(timeout=0 if job.stuck else TERM_GRACE_S)
            except subprocess.TimeoutExpired:
                job.kill()

    def close(self) -> None:
        """Leave no process and no temporary file behind, also when an exception brought us here."""
        for job in self.jobs:
            if job.process.poll() is None:
                job.kill()
            for stream in (job.process.stdin, job.process.stdout):
                if stream is not None:
                    stream.close()
        self._selector.close()
        # What does not end still holds its files, and the disk may not answer: the next run finds them by the plan.
        ended = [job for job in self.jobs if not job.stuck]
        for owner, request in enumerate(self._requests):
            dirty = {job.state.job_id for job in ended if job.owner == owner and job.rc != 0} - {""}
            if request.is_download and dirty:
                sweep_leftovers(request.destination, dirty)
        for job in ended:
            remove_plans(job.request.plan_dir, job.state.job_id)


def _file_system_time(directory: str) -> float:
    """What the clock of the destination says: on a shared filesystem it may differ from ours."""
    with tempfile.NamedTemporaryFile(dir=directory, prefix=TEMPORARY_PREFIX) as mark:
        return os.fstat(mark.fileno()).st_ctime


__all__ = ["Supervisor"]
