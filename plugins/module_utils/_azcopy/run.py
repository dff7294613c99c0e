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

import contextlib
import ctypes
import dataclasses
import functools
import itertools
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.argv import (
    CopyRequest,
    build_argv,
    build_environment,
    check_request,
    split_request,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.messages import (
    FATAL_KINDS,
    JobState,
    PlannedFile,
    check_counts,
    classify,
    find_cause,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.probe import check_reachable, probe
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.identity import check_identity
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.url import redact, with_address
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.part_file import disk_errors

TEMPORARY_PREFIX = ".azDownload-"
TERM_GRACE_S = 10.0
_POLL_S = 0.25
_LOG_TAIL_BYTES = 256 * 1024


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

    ``is_complete`` is for a caller who checks what lands by himself: once it is true nothing more is wanted of AzCopy,
    which would go on for two seconds, and the outcome is a success whatever AzCopy was about to say.
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
        with tempfile.TemporaryDirectory(prefix="azcopy-") as scratch:
            supervisor = _Supervisor([_prepare(request, scratch) for request in requests], scratch)
            try:
                supervisor.run(timeout_s, stall_timeout_s, should_stop, is_complete)
            finally:
                supervisor.close()
            return supervisor.outcome(requests, warnings, time.monotonic() - started)
    except ClusterError as exc:
        return _failed_early(exc, warnings, time.monotonic() - started)


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


@functools.lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libc.so.6", use_errno=True)
    except OSError:
        return None


def _die_with_parent() -> None:
    """In the child: have the kernel kill AzCopy when our process ends, however it ends (PR_SET_PDEATHSIG = 1)."""
    library = _libc()
    if library is not None:
        library.prctl(1, signal.SIGKILL, 0, 0, 0)


class _Job:
    """One AzCopy process."""

    def __init__(self, request: CopyRequest, owner: int, list_file: str) -> None:
        self.request = request
        self.owner = owner  # index of the request that this is a share of
        self.state = JobState(secrets=(request.token,))
        self.stopped = ""
        self.rc = -1
        self._term_at = 0.0
        self._activity = (0, 0)
        self._sampled_at = 0.0
        self._rest = b""
        _libc()  # loaded here, so that the child does not have to between fork and exec
        self.process = subprocess.Popen(
            build_argv(request, list_file=list_file),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=build_environment(request, os.environ),
            cwd="/",
            start_new_session=True,
            preexec_fn=_die_with_parent,  # one prctl call on a library that is already loaded
        )
        self._output = t.cast("t.IO[bytes]", self.process.stdout)
        self._input = t.cast("t.IO[bytes]", self.process.stdin)
        os.set_blocking(self._output.fileno(), False)
        self.last_signature: tuple[t.Any, ...] = ()
        self.last_progress = time.monotonic()

    def read(self) -> bool:
        """Take what the process has written; False at its end."""
        try:
            data = os.read(self._output.fileno(), 1 << 18)
        except BlockingIOError:
            return True
        if not data:
            self.state.feed(self._rest)
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self.state.feed(line)
        if self.state.signature != self.last_signature:
            self.last_signature = self.state.signature
            self.last_progress = time.monotonic()
        if self.state.asked and self.stopped:
            self._answer_yes()
        return True

    def _answer_yes(self) -> None:
        """AzCopy asks whether it may really stop while it scans."""
        self.state.asked = False
        with contextlib.suppress(OSError):
            self._input.write(b"y\n")
            self._input.flush()

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def end(self, reason: str, now: float) -> None:
        """Stop the process for this reason, or go on stopping it: SIGTERM first, SIGKILL when that took too long."""
        if self.stopped:
            if now - self._term_at > TERM_GRACE_S:
                self.signal(signal.SIGKILL)
                self._term_at = now
        elif reason:
            self.stopped = reason
            self._term_at = now
            if reason == "stalled" and self.request.is_download:
                # Before AzCopy removes them: what it was working on is what it hangs on.
                prefix = f"{TEMPORARY_PREFIX}{self.state.job_id}-"
                self.state.stuck = sorted(
                    name[len(prefix) :] for _path, name in _find(self.request.destination, (prefix,))
                )
            self.signal(signal.SIGTERM)

    def watch_scan(self, now: float) -> None:
        """AzCopy is silent while it lists or looks up names, for minutes on large containers: see what it reads instead."""
        if not self.state.scanning or now - self._sampled_at < 1:
            return
        self._sampled_at = now
        activity = _activity(self.process.pid)
        if activity != self._activity:
            self._activity = activity
            self.last_progress = now

    def log_text(self) -> str:
        """The end of the job's own logs, where AzCopy hides the reasons of failed transfers."""
        texts = []
        for name in (f"{self.state.job_id}.log", f"{self.state.job_id}-scanning.log"):
            try:
                with open(os.path.join(self.request.log_dir, name), "rb") as stream:
                    stream.seek(max(0, os.fstat(stream.fileno()).st_size - _LOG_TAIL_BYTES))
                    texts.append(stream.read().decode("utf-8", "replace"))
            except OSError:
                continue
        return "\n".join(texts)


def _activity(pid: int) -> tuple[int, int]:
    """What a process has read (in units of 4 KiB, network included) and computed (0.2 s): idling changes neither."""
    try:
        with open(f"/proc/{pid}/io", encoding="ascii") as stream:
            read = int(stream.readline().split()[1])
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stream:
            fields = stream.read().rpartition(")")[2].split()
    except (OSError, ValueError, IndexError):
        return (0, 0)
    ticks = int(fields[11]) + int(fields[12])  # utime and stime, proc(5)
    return (read // 4096, ticks * 5 // os.sysconf("SC_CLK_TCK"))


class _Supervisor:
    """All AzCopy processes of one copy, watched by one thread."""

    def __init__(self, requests: t.Sequence[CopyRequest], scratch: str) -> None:
        self._requests = requests
        self._scratch = scratch
        self._jobs: list[_Job] = []
        self._selector = selectors.DefaultSelector()
        self._marks: dict[str, float] = {}
        self._complete = False

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
                sweep_leftovers(request.destination, _jobs_of(request.plan_dir))
                if request.file_list is not None:
                    self._marks[request.destination] = _file_system_time(request.destination)
        self._start_all()
        while self._selector.get_map():
            for key, _mask in self._selector.select(_POLL_S):
                if not key.data.read():
                    self._selector.unregister(key.fileobj)
            now = time.monotonic()
            if is_complete is not None and is_complete():
                self._complete = True
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
        if not self._complete:
            self._reap()

    def _start_all(self) -> None:
        number = 0
        for owner, request in enumerate(self._requests):
            for share in split_request(request):
                list_file = ""
                if share.file_list is not None:
                    list_file = os.path.join(self._scratch, f"files-{number}.txt")
                    with open(list_file, "w", encoding="utf-8") as stream:
                        stream.write("\n".join(share.file_list) + "\n")
                number += 1
                try:
                    job = _Job(share, owner, list_file)
                except OSError as exc:
                    raise ClusterError(
                        "azcopy_unsuitable",
                        f"`{request.azcopy}` cannot be started: {exc.strerror}.",
                        "Check the path, mode and architecture of the program.",
                    ) from exc
                self._jobs.append(job)
                self._selector.register(t.cast(t.Any, job.process.stdout), selectors.EVENT_READ, job)

    def _reap(self) -> None:
        for job in self._jobs:
            try:
                job.rc = job.process.wait(timeout=TERM_GRACE_S)
            except subprocess.TimeoutExpired:
                job.signal(signal.SIGKILL)
                job.rc = job.process.wait()

    def close(self) -> None:
        """Leave no process and no temporary file behind, also when an exception brought us here."""
        for job in self._jobs:
            if job.process.poll() is None:
                job.signal(signal.SIGKILL)
                job.rc = job.process.wait()
            for stream in (job.process.stdin, job.process.stdout):
                if stream is not None:
                    stream.close()
        self._selector.close()
        for owner, request in enumerate(self._requests):
            dirty = {job.state.job_id for job in self._jobs if job.owner == owner and job.rc != 0} - {""}
            if request.is_download and dirty:
                sweep_leftovers(request.destination, dirty)
        for job in self._jobs:
            _remove_plans(job.request.plan_dir, job.state.job_id)

    def outcome(self, originals: t.Sequence[CopyRequest], warnings: list[str], seconds: float) -> CopyOutcome:
        states = [job.state for job in self._jobs]
        errors = [] if self._complete else self._errors(originals)
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
            rc=max((job.rc for job in self._jobs), key=abs, default=-1),
            warnings=warnings,
            error=error,
            job_ids=[state.job_id for state in states if state.job_id],
            planned=[entry for state in states for entry in state.planned],
            log_tail=[redact(line, *secrets) for line in tail] if errors else [],
        )

    def _verdict(self, job: _Job) -> ClusterError | None:
        error = classify(
            job.state,
            job.rc,
            stopped=job.stopped,
            log_text="" if job.rc == 0 and not job.stopped else job.log_text(),
            sas=job.request.token,
            now=time.time(),
        )
        if error is not None and error.kind == "stalled":
            try:
                check_reachable(job.request.remote, timeout_s=3)
            except ClusterError as unreachable:
                return unreachable
        return error

    def _errors(self, originals: t.Sequence[CopyRequest]) -> list[ClusterError]:
        """What the processes failed with, or else what is missing although none did; what ends everything comes first."""
        errors = [error for error in map(self._verdict, self._jobs) if error is not None]
        if not errors:
            judge = self._count_planned if any(request.dry_run for request in originals) else self._count
            errors = [error for error in itertools.starmap(judge, enumerate(originals)) if error is not None]
        return sorted(errors, key=lambda error: error.kind not in FATAL_KINDS)

    def _refusal(self, owner: int) -> ClusterError | None:
        """Why listed files were passed over, when that was a refusal: AzCopy takes those for files that are not there."""
        for job in self._jobs:
            if job.owner == owner:
                cause = find_cause("\n".join(job.state.complaints), sas=job.request.token, now=time.time())
                if cause is not None and cause.kind in ("auth_failed", "sas_expired"):
                    return cause
        return None

    def _count_planned(self, owner: int, request: CopyRequest) -> ClusterError | None:
        found = sum(len(job.state.planned) for job in self._jobs if job.owner == owner)
        return self._refusal(owner) if request.file_list is not None and found < len(request.file_list) else None

    def _count(self, owner: int, request: CopyRequest) -> ClusterError | None:
        ours = [job.state for job in self._jobs if job.owner == owner]
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
        missing = _not_arrived(request.destination, request.file_list, self._marks.get(request.destination, 0.0))
        if not missing:
            return error
        refused = self._refusal(owner)
        if refused is not None:
            return refused
        return ClusterError(
            "not_found",
            f"{len(missing)} of {len(request.file_list)} listed files do not exist at the source: {', '.join(missing[:5])}"
            f"{', …' if len(missing) > 5 else ''}.",
            "List the source again; AzCopy itself passes over such names without a word.",
            missing_files=missing[:1000],
        )


def _file_system_time(directory: str) -> float:
    """What the clock of the destination says: on a shared filesystem it may differ from ours."""
    with tempfile.NamedTemporaryFile(dir=directory, prefix=TEMPORARY_PREFIX) as mark:
        return os.fstat(mark.fileno()).st_ctime


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


def _jobs_of(plan_dir: str) -> set[str]:
    """Ids of jobs that left a plan in our own plan directory: their process is gone, their leftovers are ours."""
    try:
        return {name.split("--")[0] for name in os.listdir(plan_dir) if ".steV" in name}
    except OSError:
        return set()


def _remove_plans(plan_dir: str, job_id: str) -> None:
    try:
        names = os.listdir(plan_dir) if job_id else []
    except OSError:
        return
    for name in names:
        if name.startswith(job_id):
            path = os.path.join(plan_dir, name)
            shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else _unlink(path)


def _unlink(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


def sweep_leftovers(directory: str, job_ids: t.Collection[str] | None = None) -> int:
    """Remove AzCopy's temporary files under ``directory`` and return how many.

    With ``job_ids`` only those jobs' files; None removes every one, for a directory that nobody else copies into.
    """
    if job_ids is not None and not job_ids:
        return 0
    prefixes = tuple(f"{TEMPORARY_PREFIX}{job}" for job in job_ids) if job_ids is not None else (TEMPORARY_PREFIX,)
    return sum(_unlink(os.path.join(folder, name)) for folder, name in list(_find(directory, prefixes)))


def _find(directory: str, prefixes: tuple[str, ...]) -> t.Iterator[tuple[str, str]]:
    """Folder and name of every file below ``directory`` whose name begins with one of the prefixes."""
    for folder, _folders, names in os.walk(directory):
        yield from ((folder, name) for name in names if name.startswith(prefixes))


__all__ = [
    "CopyOutcome",
    "CopyRequest",
    "PlannedFile",
    "probe",
    "run_copies",
    "run_copy",
    "sweep_leftovers",
]
