"""Ranks working on one run in threads: nothing is lost when one is slow, dies, or fails."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import threading
import time
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob, Manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset import worker as dataset_worker
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.claims import Claims
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import (
    BatchInfo,
    Run,
    read_progress,
    write_run,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.shares import plan_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.worker import BatchOutcome, Worker
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError


class Fleet:
    """Ranks of one run whose copying is a function of (rank, batch)."""

    def __init__(self, tmp_path, ranks: int, copy: t.Callable[[int, BatchInfo], BatchOutcome], files: int = 64) -> None:
        blobs = [Blob(f"f{number:04d}", 1000 + number, "", f"e{number}", "", 0) for number in range(files)]
        manifest = Manifest([{"url": "http://x/c", "prefix": ""}], blobs)
        self.run, blobs_of = plan_run(
            manifest,
            range(files),
            destination=str(tmp_path),
            hosts=[f"gpu-{rank}" for rank in range(ranks)],
            decompress=False,
            bytes_per_second=1000.0,
            batch_s=files * 1.2 / ranks / 8,
        )
        (tmp_path / ".staging" / "runs").mkdir(parents=True)
        write_run(self.run, blobs_of)
        self.copied: list[tuple[int, str]] = []
        self._lock = threading.Lock()
        self.workers = [self._worker(rank, copy) for rank in range(ranks)]

    def _worker(self, rank: int, copy: t.Callable[[int, BatchInfo], BatchOutcome]) -> Worker:
        def copy_batch(batch: BatchInfo, attempt: int, *, on_file, landed, should_stop) -> BatchOutcome:
            outcome = copy(rank, batch)
            landed()
            if outcome.error is None:
                with self._lock:
                    self.copied.append((rank, batch.id))
                for blob in self.run.batch_blobs(batch.id):
                    on_file(blob.size, blob.size)
            return outcome

        claims = Claims(self.run.claims, f"rank{rank}", expiry_s=0.4)
        return Worker(self.run, rank, f"gpu-{rank}", claims, copy_batch, heartbeat_s=0.05, poll_s=0.02)

    def go(self, ranks: t.Iterable[int] | None = None) -> None:
        ranks = ranks or range(len(self.workers))
        threads = [threading.Thread(target=self.workers[rank].run, daemon=True) for rank in ranks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=20)
            assert not thread.is_alive(), "a rank did not end"

    def copied_batches(self) -> list[str]:
        return sorted(batch for _rank, batch in self.copied)


def all_batches(run: Run) -> list[str]:
    return sorted(batch.id for batch in run.batches)


def test_every_batch_is_copied_once(tmp_path) -> None:
    fleet = Fleet(tmp_path, 4, lambda _rank, _batch: BatchOutcome())
    fleet.go()
    assert fleet.copied_batches() == all_batches(fleet.run)
    assert sum(rank.files for rank in read_progress(fleet.run)) == 64
    assert {rank.state for rank in read_progress(fleet.run)} == {"finished"}


def test_others_take_the_batches_of_a_slow_rank(tmp_path) -> None:
    fleet = Fleet(tmp_path, 4, lambda rank, _batch: time.sleep(0.4 if rank == 0 else 0.02) or BatchOutcome())
    fleet.go()
    assert fleet.copied_batches() == all_batches(fleet.run)
    by_slow = sum(rank == 0 for rank, _batch in fleet.copied)
    assert by_slow <= 3, f"the slow rank still copied {by_slow} of its 8 batches"


def test_the_share_of_a_rank_that_never_comes_is_copied(tmp_path) -> None:
    fleet = Fleet(tmp_path, 4, lambda _rank, _batch: BatchOutcome())
    fleet.go(ranks=[1, 2, 3])
    assert fleet.copied_batches() == all_batches(fleet.run)


def test_the_batch_of_a_rank_that_died_is_copied(tmp_path) -> None:
    fleet = Fleet(tmp_path, 3, lambda _rank, _batch: BatchOutcome())
    dead = Claims(fleet.run.claims, "dead")
    assert dead.claim("r0000b00", 0)
    assert dead.claim("r0000b01", 0)
    fleet.go(ranks=[1, 2])
    assert fleet.copied_batches() == all_batches(fleet.run)
    assert sum(worker.progress.retried_batches for worker in fleet.workers) == 2


def test_a_batch_that_fails_once_is_tried_again(tmp_path) -> None:
    failed: set[str] = set()

    def copy(_rank: int, batch: BatchInfo) -> BatchOutcome:
        if batch.id not in failed:
            failed.add(batch.id)
            return BatchOutcome(error=ClusterError("partial", "One transfer failed.", "Try again."))
        return BatchOutcome()

    fleet = Fleet(tmp_path, 2, copy)
    fleet.go()
    assert fleet.copied_batches() == all_batches(fleet.run)


def test_a_batch_that_always_fails_is_given_up(tmp_path) -> None:
    def copy(_rank: int, batch: BatchInfo) -> BatchOutcome:
        error = ClusterError("partial", "No.", "No.") if batch.id == "r0001b03" else None
        return BatchOutcome(error=error)

    fleet = Fleet(tmp_path, 2, copy)
    fleet.go()
    assert fleet.copied_batches() == [batch for batch in all_batches(fleet.run) if batch != "r0001b03"]


@pytest.mark.parametrize("kind", ["auth_failed", "disk_full"])
def test_an_error_that_trying_again_cannot_mend_stops_the_rank(tmp_path, kind: str) -> None:
    def copy(rank: int, _batch: BatchInfo) -> BatchOutcome:
        return BatchOutcome(error=ClusterError(kind, "Refused.", "Do this.") if rank == 0 else None)

    fleet = Fleet(tmp_path, 3, copy)
    fleet.go()
    assert fleet.copied_batches() == all_batches(fleet.run), "the others must take over"
    progress = read_progress(fleet.run)[0]
    assert progress.state == "failed"
    assert progress.error == {"kind": kind, "message": "Refused.", "remedy": "Do this."}


def test_an_error_that_ends_the_rank_is_told_although_the_claim_cannot_be_given_back(tmp_path) -> None:
    refused: set[str] = set()

    def copy(_rank: int, batch: BatchInfo) -> BatchOutcome:
        if batch.id == "r0000b00" and batch.id not in refused:
            refused.add(batch.id)
            return BatchOutcome(error=ClusterError("auth_failed", "Refused.", "Do this."))
        return BatchOutcome()

    fleet = Fleet(tmp_path, 1, copy)
    pathlib.Path(fleet.run.claims, "r0000b00.0.released").mkdir()  # where the word that it is given back would go
    fleet.go()
    assert fleet.workers[0].progress.state == "failed"
    assert fleet.workers[0].progress.error == {"kind": "auth_failed", "message": "Refused.", "remedy": "Do this."}


def test_a_batch_whose_copy_breaks_off_with_an_os_error_is_tried_again(tmp_path) -> None:
    broken: set[str] = set()

    def copy(_rank: int, batch: BatchInfo) -> BatchOutcome:
        if batch.id == "r0000b03" and batch.id not in broken:
            broken.add(batch.id)
            raise OSError(5, "Input/output error")
        return BatchOutcome()

    fleet = Fleet(tmp_path, 1, copy)
    fleet.go()
    assert fleet.copied_batches() == all_batches(fleet.run)
    assert fleet.workers[0].progress.retried_batches == 1


def test_a_file_system_that_can_be_read_but_not_written_ends_the_rank(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(dataset_worker, "_TROUBLE_S", 0.3)
    fleet = Fleet(tmp_path, 1, lambda _rank, _batch: time.sleep(0.2) or BatchOutcome())
    shutil.rmtree(fleet.run.progress)
    pathlib.Path(fleet.run.progress).write_text("no directory any more")
    fleet.go()
    assert fleet.workers[0].progress.error is not None
    assert fleet.workers[0].progress.error["kind"] == "io"
    assert len(fleet.copied) < len(fleet.run.batches)


@contextlib.contextmanager
def coming_and_going(path: pathlib.Path, *, times: int, away_s: float, there_s: float) -> t.Iterator[None]:
    """A file or directory that is not found for a while, and found again, several times."""

    def work() -> None:
        for _time in range(times):
            path.rename(path.with_name("away"))
            time.sleep(away_s)
            path.with_name("away").rename(path)
            time.sleep(there_s)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join()


def test_a_short_trouble_is_forgiven(tmp_path, monkeypatch) -> None:
    """Each of these lasts shorter than what is forgiven, and both together longer."""
    monkeypatch.setattr(dataset_worker, "_TROUBLE_S", 0.6)
    fleet = Fleet(tmp_path, 1, lambda _rank, _batch: time.sleep(0.25) or BatchOutcome())
    with coming_and_going(pathlib.Path(fleet.run.progress), times=2, away_s=0.4, there_s=0.3):
        fleet.go()
    assert fleet.workers[0].progress.state == "finished"
    assert fleet.copied_batches() == all_batches(fleet.run)


def test_failed_files_are_kept_with_the_batch(tmp_path) -> None:
    failure = {"name": "f0001", "kind": "corrupt", "message": "The checksum differs."}
    fleet = Fleet(tmp_path, 1, lambda _rank, batch: BatchOutcome(failed=[failure] if batch.id == "r0000b00" else []))
    fleet.go()
    result = Claims(fleet.run.claims, "reader").result("r0000b00")
    assert result is not None
    assert result["failed"] == [failure]


def test_a_newer_run_stops_the_workers(tmp_path) -> None:
    fleet = Fleet(tmp_path, 1, lambda _rank, _batch: time.sleep(0.1) or BatchOutcome())
    (tmp_path / ".staging" / "current").write_text('{"run": "another"}')
    fleet.go()
    assert fleet.workers[0].progress.error is not None
    assert fleet.workers[0].progress.error["kind"] == "superseded"


def test_a_removed_dataset_stops_the_workers(tmp_path) -> None:
    fleet = Fleet(tmp_path, 1, lambda _rank, _batch: time.sleep(0.5) or BatchOutcome())
    threading.Timer(0.2, shutil.rmtree, [tmp_path / ".staging"]).start()
    began = time.monotonic()
    fleet.go()
    assert time.monotonic() - began < 5
    assert fleet.workers[0].progress.error is not None
    assert fleet.workers[0].progress.error["kind"] == "superseded"


def test_state_that_is_hidden_for_a_moment_stops_nobody(tmp_path) -> None:
    fleet = Fleet(tmp_path, 1, lambda _rank, _batch: time.sleep(0.2) or BatchOutcome())
    # Away for four heartbeats.
    with coming_and_going(tmp_path / ".staging/current", times=3, away_s=0.2, there_s=0.15):
        fleet.go()
    assert fleet.workers[0].progress.state == "finished"
    assert fleet.copied_batches() == all_batches(fleet.run)


def test_the_deadline_ends_the_rank(tmp_path) -> None:
    fleet = Fleet(tmp_path, 1, lambda _rank, _batch: time.sleep(0.2) or BatchOutcome())
    fleet.workers[0]._deadline = time.monotonic() + 0.3
    fleet.go()
    assert fleet.workers[0].progress.error is not None
    assert fleet.workers[0].progress.error["kind"] == "timeout"


def test_the_network_is_used_while_the_last_files_are_inflated(tmp_path) -> None:
    """Two batches overlap when the first says that its bytes are here."""
    running = 0
    most = 0
    lock = threading.Lock()

    def copy_batch(batch: BatchInfo, attempt: int, *, on_file, landed, should_stop) -> BatchOutcome:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        landed()
        time.sleep(0.1)
        with lock:
            running -= 1
        return BatchOutcome()

    fleet = Fleet(tmp_path, 1, lambda _rank, _batch: BatchOutcome())
    worker = Worker(fleet.run, 0, "gpu-0", Claims(fleet.run.claims, "x"), copy_batch, heartbeat_s=0.05, poll_s=0.02)
    worker.run()
    assert 2 <= most <= 3


def test_the_last_batch_of_a_slow_rank_is_taken_over(tmp_path, monkeypatch) -> None:
    """An idle rank that would be quicker copies the batch too, and the slow one stops when it is done."""
    monkeypatch.setattr(dataset_worker, "_START_S", 0.0)
    fleet = Fleet(tmp_path, 2, lambda _rank, _batch: BatchOutcome())
    began = time.monotonic()

    def copier(slow: bool):
        return lambda *args, **hooks: copy_batch(slow, *args, **hooks)

    def copy_batch(slow: bool, batch: BatchInfo, attempt: int, *, on_file, landed, should_stop) -> BatchOutcome:
        blobs = fleet.run.batch_blobs(batch.id)
        for number, blob in enumerate(blobs):
            for _wait in range(400 if slow and number else 1):
                time.sleep(0.01)
                if should_stop():
                    return BatchOutcome(error=ClusterError("cancelled", "Stopped.", "Again."))
            on_file(blob.size, blob.size)
        return BatchOutcome()

    workers = []
    for rank, slow in enumerate((True, False)):
        claims = Claims(fleet.run.claims, f"rank{rank}", expiry_s=3600)
        workers.append(Worker(fleet.run, rank, f"gpu-{rank}", claims, copier(slow), heartbeat_s=0.05, poll_s=0.02))
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert time.monotonic() - began < 12, "a batch of the slow rank takes sixteen seconds"
    assert workers[1].progress.retried_batches >= 1
    reader = Claims(fleet.run.claims, "reader")
    assert all(state.done for state in reader.survey(all_batches(fleet.run)).values())


def test_a_rank_with_nothing_left_does_not_wait_for_its_next_regular_look(tmp_path) -> None:
    """The own last batch is noticed when it ends, those of the others soon after; long looks are for long waits."""

    def copy_batch(batch: BatchInfo, attempt: int, *, on_file, landed, should_stop) -> BatchOutcome:
        landed()
        time.sleep(0.2)
        return BatchOutcome()

    fleet = Fleet(tmp_path, 2, lambda _rank, _batch: BatchOutcome(), files=2)
    fleet.workers = [
        Worker(
            fleet.run, rank, f"gpu-{rank}", Claims(fleet.run.claims, str(rank)), copy_batch, heartbeat_s=0.05, poll_s=15
        )
        for rank in range(2)
    ]
    began = time.monotonic()
    fleet.go()
    assert time.monotonic() - began < 10
    assert sum(worker.progress.batches for worker in fleet.workers) == len(fleet.run.batches)
