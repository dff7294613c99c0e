# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""One node's part in a staging run, from its options to its result."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
import time
import typing as t
from dataclasses import dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.probe import probe
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.batch import BatchCopier, CopySettings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.claims import Claims
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.followed import show_start
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.landing import (
    landing_of,
    leave_landing,
    sweep_landing,
    words_for,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.log_files import prune_logs
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.model import TROUBLE_KINDS
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import RankProgress, Run, read_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import check_state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.worker import Worker
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.writable import check_writable
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.part_file import disk_errors
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.node_name import node_digest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.own import make_own_directory
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.ownership import Ownership

_STOP_OLD_WORKER_S = 20.0
#: ``struct flock``: l_type, l_whence, l_start, l_len, l_pid (fcntl(2)).
_FLOCK = struct.Struct("hhqqi4x")


@dataclass(frozen=True)
class StageRequest:
    """One node's part in a run. ``urls`` and ``sas`` have one entry per source; ``landing_path`` is "" for the destination's own.

    Times are in seconds, ``cap_mbps`` in Mbit/s; 0 of ``cap_mbps``, ``landing_limit_gib``, ``concurrency`` and ``threads`` is no
    limit, what the disk has, AzCopy's choice, and one per CPU.
    """

    destination: str
    run: str
    rank: int
    host: str
    urls: list[str]
    sas: list[str] = field(repr=False)
    azcopy: str
    cap_mbps: float
    processes: int
    concurrency: int
    threads: int
    decompress_engine: str
    landing_path: str
    landing_limit_gib: float
    log_path: str
    claim_expiry_s: float
    stall_timeout_s: float
    timeout_s: float
    identity: str
    identity_client_id: str


def run_rank(wanted: StageRequest) -> dict[str, t.Any]:
    """Work on a run until it is over. Raises ClusterError when this rank had to stop before."""
    check_state(wanted.destination)
    run = read_run(wanted.destination, wanted.run)
    if run is None:
        raise ClusterError(
            "not_shared",
            f"{wanted.host} does not see the run {wanted.run} at {wanted.destination}.",
            "Check that the destination is mounted here and is the same file system as on the first node, "
            "or plan a run of its own for every node (`rank` of dataset_plan).",
        )
    _check_sources(run, wanted.urls)
    show_start(run.destination, run.id)
    Ownership(**run.ownership).check_here(wanted.host)
    try:
        probe(wanted.azcopy)
    except ClusterError as error:
        if error.kind not in TROUBLE_KINDS:
            raise
        # The first batch probes it again.
    if wanted.landing_path:
        check_writable("landing_path", wanted.landing_path)
    landing = landing_of(wanted.landing_path, run.destination, wanted.host)
    with _only_worker(wanted.log_path, run.destination, wanted.rank):
        # What lands there is renamed to its final name: whoever could write there could put a file of his in its place.
        with disk_errors(landing, words_for(landing, run.destination)):
            make_own_directory(landing)
        sweep_landing(landing, run.id)
        prune_logs(wanted.log_path, run.id)
        try:
            progress = _work(run, wanted, landing)
        finally:
            leave_landing(landing)
    if progress.state == "failed" and progress.error is not None:
        raise ClusterError(**progress.error, **_totals(progress), sees_destination=os.path.isdir(run.directory))
    return {"changed": progress.files > 0, **_totals(progress)}


def _check_sources(run: Run, urls: t.Sequence[str]) -> None:
    """Nobody but the accounts that the user named is sent a signature, whatever the plan says."""
    planned = [source["url"] for source in run.sources]
    if planned != [url.rstrip("/") for url in urls]:
        raise ClusterError(
            "bad_input",
            f"The run {run.id} was planned for other sources ({', '.join(planned)}) than this node is to copy from.",
            "Run again, which plans anew. If it happens again, look who writes to the destination.",
        )


def _work(run: Run, wanted: StageRequest, landing: str) -> RankProgress:
    settings = CopySettings(
        azcopy=wanted.azcopy,
        landing=landing,
        sas=wanted.sas,
        cap_mbps=wanted.cap_mbps,
        concurrency=wanted.concurrency,
        processes=wanted.processes,
        threads=wanted.threads,
        decompress_engine=wanted.decompress_engine,
        stall_timeout_s=wanted.stall_timeout_s,
        landing_limit_bytes=int(wanted.landing_limit_gib * (1 << 30)),
        log_dir=os.path.join(wanted.log_path, run.id),
        identity=wanted.identity,
        identity_client_id=wanted.identity_client_id,
    )
    claims = Claims(run.claims, f"{wanted.host}:{os.getpid()}", expiry_s=wanted.claim_expiry_s)
    deadline = time.monotonic() + wanted.timeout_s
    worker = Worker(run, wanted.rank, wanted.host, claims, BatchCopier(run, settings), deadline=deadline)
    with _stop_on_signal(worker):
        return worker.run()


def _totals(progress: RankProgress) -> dict[str, t.Any]:
    return {
        "files": progress.files,
        "raw_bytes": progress.raw_bytes,
        "bytes": progress.bytes,
        "seconds": progress.seconds,
        "gbps": round(progress.raw_bytes * 8 / progress.seconds / 1e9, 4) if progress.seconds else 0.0,
        "batches": progress.batches,
        "stolen_batches": progress.stolen_batches,
        "retried_batches": progress.retried_batches,
        "failed_files": progress.failed,  # `failed` is what Ansible itself says
        "failed_count": progress.failed_count,
    }


@contextlib.contextmanager
def _stop_on_signal(worker: Worker) -> t.Iterator[None]:
    """SIGTERM ends the worker in order: AzCopy is stopped, claims are given back."""
    before = signal.signal(
        signal.SIGTERM, lambda _number, _frame: worker.stop("The worker was told to stop (SIGTERM).")
    )
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _only_worker(directory: str, destination: str, rank: int) -> t.Iterator[None]:
    """Hold this node's lock for one rank of one destination; the holder from an earlier run is told to stop.

    The lock is a file in ``directory``: it is free when its holder is dead, however it died. Where nodes share the directory they
    have one each, as the number of a process means nothing on another node, and with shares of their own all have rank 0.
    """
    path = os.path.join(directory, f"rank-{node_digest(f'{destination}:{rank}')}.lock")
    with disk_errors(path):
        os.makedirs(directory, mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "r+") as lock:  # to be opened nowhere else here: closing it once gives the lock back
        deadline = time.monotonic() + _STOP_OLD_WORKER_S
        while not _try_lock(lock):
            _terminate(lock)
            if time.monotonic() > deadline:
                raise ClusterError(
                    "busy",
                    f"A worker of an earlier run (process {_holder(lock)}) does not stop.",
                    "Look at that process on this node, end it, then run again.",
                )
            time.sleep(0.5)
        yield


def _try_lock(lock: t.TextIO) -> bool:
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _holder(lock: t.TextIO) -> int:
    """The process that holds the lock, 0 for none. The kernel knows; a number in the file could be another process by now."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _whence, _start, _length, pid = _FLOCK.unpack(fcntl.fcntl(lock, fcntl.F_GETLK, asked))
    return 0 if kind == fcntl.F_UNLCK else int(pid)


def _terminate(lock: t.TextIO) -> None:
    pid = _holder(lock)
    if pid > 1:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGCONT)  # one that is stopped (SIGSTOP) would never see the other


__all__ = ["StageRequest", "run_rank"]
