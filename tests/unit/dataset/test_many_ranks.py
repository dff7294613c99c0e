# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a thousand ranks ask of the shared file system: the system calls of real workers on a local one, counted."""

from __future__ import annotations

import collections
import contextlib
import pathlib
import sys
import types
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob, Manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset import worker as dataset_worker
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.batch import BatchCopier, CopySettings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.claims import Claims
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.model import BatchOutcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.receipts import Receipt, ReceiptLog
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import Run, write_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.shares import plan_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import StatePaths
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.worker import Worker

_watched: list[tuple[str, str]] | None = None


def _note(event: str, values: tuple[t.Any, ...]) -> None:
    if _watched is not None and event in ("open", "os.listdir", "os.scandir"):
        _watched.append((event, str(values[0])))


sys.addaudithook(_note)


@contextlib.contextmanager
def calls_below(directory: str) -> t.Iterator[collections.Counter[str]]:
    """How often each path below a directory is opened or listed in the block; counted when it ends."""
    global _watched
    found: collections.Counter[str] = collections.Counter()
    noted: list[tuple[str, str]] = []
    _watched = noted
    try:
        yield found
    finally:
        _watched = None
    found.update(path for _event, path in noted if path.startswith(directory))


def planned(tmp_path: pathlib.Path, ranks: int, batches: int, files_each: int = 1) -> Run:
    """A run whose first ranks have a batch each, and the others none."""
    blobs = [Blob(f"f{number:04d}", 1000, "", f"e{number}") for number in range(batches * files_each)]
    run, blobs_of = plan_run(
        Manifest([{"url": "http://x/c", "prefix": ""}], blobs),
        range(len(blobs)),
        destination=str(tmp_path),
        hosts=[f"gpu-{rank}" for rank in range(ranks)],
        decompress=False,
        bytes_per_second=1000.0,
    )
    assert len(run.batches) == batches
    pathlib.Path(StatePaths(str(tmp_path)).runs).mkdir(parents=True)
    write_run(run, blobs_of)
    return run


def worker_of(run: Run, rank: int) -> Worker:
    return Worker(run, rank, f"gpu-{rank}", Claims(run.claims, str(rank)), lambda *_batch: BatchOutcome())


@pytest.mark.slow
@pytest.mark.newest
def test_a_thousand_ranks_that_wait_for_one_batch_read_the_claims_seldom(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 seconds of it: each looked twice a second, which is 80,000 times."""
    now = 1000.0
    monkeypatch.setattr(dataset_worker, "time", types.SimpleNamespace(monotonic=lambda: now))
    run = planned(tmp_path, 1000, 20)
    busy = Claims(run.claims, "busy")
    *others, last = (batch.id for batch in run.batches)
    for batch in others:
        assert busy.claim(batch, 0)
        busy.finish(batch, {"failed": []})
    assert busy.claim(last, 0)
    workers = [worker_of(run, rank) for rank in range(1000)]

    def wait(seconds: int) -> int:
        nonlocal now
        with calls_below(run.claims) as found:
            for _second in range(seconds):
                now += 1
                busy.heartbeat({last: 0.5})
                for worker in workers:
                    assert worker._look(now) is None
                    assert not worker._over()
        assert found.total() <= 3 * found[run.claims] + 3 * seconds + 20, "few claims are read at each look"
        return found[run.claims]

    assert wait(20) <= 11_000
    assert wait(20) <= 3_000

    busy.finish(last, {"failed": []})
    now += 20
    assert workers[7]._look(now) is None
    with calls_below(run.claims) as found:
        assert all(worker._over() for worker in workers)
    assert found.total() == 0, "what one has seen, the others need not read the directory for"


def test_ranks_that_look_at_the_same_time_do_not_meet_at_every_batch(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other through one list, the last of 80 would find 79 batches taken."""
    run = planned(tmp_path, 160, 80)
    idle = [worker_of(run, rank) for rank in range(80, 160)]
    states = Claims(run.claims, "reader").survey([batch.id for batch in run.batches])
    for worker in idle:
        monkeypatch.setattr(worker._claims, "survey", lambda _batches: states)
    with calls_below(run.claims) as found:
        picked = [worker._pick() for worker in idle]
    assert sorted(t.cast("tuple[str, int]", one)[0] for one in picked) == sorted(batch.id for batch in run.batches)
    assert found.total() <= 1000


def test_a_batch_that_is_tried_again_reads_the_receipts_of_its_earlier_tries_only(tmp_path: pathlib.Path) -> None:
    run = planned(tmp_path, 3, 3, files_each=4)
    batch = run.batches[1]
    blobs = run.batch_blobs(batch.id)
    receipts = StatePaths(str(tmp_path)).receipts
    for number in range(50):
        ReceiptLog(receipts, f"{run.id}-r0099b{number:02d}.0").append([Receipt("x", "", "", 1, 1, 0, 0)])
    for attempt, blob in enumerate(blobs[:2]):
        path = tmp_path / blob.name
        path.write_bytes(bytes(blob.size))
        receipt = Receipt(blob.name, blob.etag, "", blob.size, blob.size, 0, path.stat().st_mtime_ns, False)
        ReceiptLog(receipts, f"{run.id}-{batch.id}.{attempt}").append([receipt])
    copier = BatchCopier(run, CopySettings("/azcopy", str(tmp_path / "landing"), [""]))
    with calls_below(receipts) as found:
        assert copier._left(batch, 3) == blobs[2:]
    assert sorted(pathlib.Path(path).name for path in found) == [
        f"{run.id}-{batch.id}.{attempt}.jsonl" for attempt in range(3)
    ]
