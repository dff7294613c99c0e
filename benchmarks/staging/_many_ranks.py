# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many ranks of one run on a local file system that copy nothing, and how often they ask it for something.

The workers and their claims are the real ones; a batch is time that passes. Each process runs many ranks as threads. Counted are calls
of Python's functions for files and directories, each of which is a system call or a few, and the entries that listings returned.
"""

from __future__ import annotations

import builtins
import functools
import itertools
import os
import tempfile
import threading
import time
import typing as t
from pathlib import Path

from _ranks import inside_processes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.blobs import Blobs
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.claims import Claims
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.model import BatchOutcome, Hooks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import (
    BatchInfo,
    RankShare,
    Run,
    new_run_id,
    write_run,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.worker import Worker
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

_PROCESSES = 8
_BATCHES_PER_RANK = 4
_BATCH_BYTES = 1_000_000
_STEPS = 10
#: One rank of so many is so many times slower: for the others there is a long time with nothing to do but to look.
_SLOW_ONE_OF = 50
_SLOWER = 8
_COUNTED = ("listdir", "scandir", "open", "stat", "lstat", "replace", "rename", "mkdir", "unlink", "link", "utime")
_STACK_BYTES = 256 << 10


class Counters:
    """Calls by name, and entries of listings. All ranks of a process count here: a call in one atomic step."""

    def __init__(self) -> None:
        self._counts = {name: itertools.count() for name in _COUNTED}
        self._entries = 0
        self._lock = threading.Lock()

    def install(self) -> None:
        """From now on all of this process's calls are counted."""
        for name in _COUNTED:
            setattr(os, name, self._counted(name, getattr(os, name)))
        builtins.open = self._counted("open", builtins.open)

    def _counted(self, name: str, function: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
        @functools.wraps(function)
        def call(*arguments: t.Any, **options: t.Any) -> t.Any:
            next(self._counts[name])
            answer = function(*arguments, **options)
            if name == "listdir":
                self._add_entries(len(answer))
            return _Scan(answer, self._add_entries) if name == "scandir" else answer

        return call

    def _add_entries(self, number: int) -> None:
        with self._lock:
            self._entries += number

    def totals(self) -> dict[str, int]:
        return {**{name: next(count) for name, count in self._counts.items()}, "entries": self._entries}


class _Scan:
    """What os.scandir returns, with its entries counted."""

    def __init__(self, scan: t.Any, count: t.Callable[[int], None]) -> None:
        self._scan, self._count = scan, count

    def __iter__(self) -> t.Iterator[t.Any]:
        for entry in self._scan:
            self._count(1)
            yield entry

    def __enter__(self) -> _Scan:
        return self

    def __exit__(self, *_error: object) -> None:
        self._scan.close()


def _make_run(destination: Path, ranks: int) -> Run:
    batches = [
        BatchInfo(f"r{rank:04d}b{number:02d}", rank, _STEPS, _BATCH_BYTES)
        for rank in range(ranks)
        for number in range(_BATCHES_PER_RANK)
    ]
    shares = [
        RankShare(rank, f"node-{rank}", _BATCHES_PER_RANK * _STEPS, _BATCHES_PER_RANK * _BATCH_BYTES)
        for rank in range(ranks)
    ]
    run = Run(
        id=new_run_id(),
        destination=str(destination),
        manifest_digest="",
        decompress=False,
        sources=[],
        shares=shares,
        batches=batches,
        imbalance=1.0,
    )
    write_run(run, {batch.id: Blobs.of([]) for batch in batches})
    return run


def _copy(rank: int, batch_s: float, batch: BatchInfo, _attempt: int, hooks: Hooks) -> BatchOutcome:
    step_s = batch_s / _STEPS * (_SLOWER if rank % _SLOW_ONE_OF == 0 else 1)
    for _step in range(_STEPS):
        time.sleep(step_s)
        if hooks.should_stop():
            return BatchOutcome(error=ClusterError("cancelled", "The copy was stopped.", ""))
        hooks.on_file(batch.bytes // _STEPS, batch.bytes // _STEPS)
    hooks.landed()
    return BatchOutcome()


def _work(run: Run, batch_s: float, ranks: t.Sequence[int]) -> dict[str, int]:
    """Some of the ranks, until all batches are done. Counts from when they begin."""
    threading.stack_size(_STACK_BYTES)
    counters = Counters()
    finished: list[int] = []

    def one(rank: int) -> None:
        host = f"node-{rank}"
        worker = Worker(run, rank, host, Claims(run.claims, host), functools.partial(_copy, rank, batch_s))
        finished.append(worker.run().batches)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in ranks]
    counters.install()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {**counters.totals(), "batches": sum(finished)}


def simulate(ranks: int, work: str, batch_s: float) -> dict[str, t.Any]:
    """A run of so many ranks below ``work``, whose batches take so long: seconds, and calls and entries for each rank."""
    with tempfile.TemporaryDirectory(dir=work, prefix="claims-") as place:
        run = _make_run(Path(place) / "data", ranks)
        began = time.monotonic()
        parts = inside_processes(
            functools.partial(_work, run, batch_s, range(number, ranks, _PROCESSES))
            for number in range(min(_PROCESSES, ranks))
        )
        seconds = time.monotonic() - began
    total = {name: sum(part[name] for part in parts) for name in parts[0]}
    calls = sum(total[name] for name in _COUNTED)
    return {
        "ranks": ranks,
        "batches": len(run.batches),
        "done twice": total["batches"] - len(run.batches),
        "seconds": seconds,
        "ideal s": _BATCHES_PER_RANK * batch_s,
        "calls per rank": calls / ranks,
        "listings per rank": (total["listdir"] + total["scandir"]) / ranks,
        "entries per rank": total["entries"] / ranks,
        "calls per s": calls / seconds,
    }


__all__ = ["Counters", "simulate"]
