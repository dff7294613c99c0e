"""Ranks working on one run in threads: nothing is lost when one is slow, dies, or fails."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import threading
import time
import types
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob, Manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset import pace
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset import worker as dataset_worker
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.claims import Claims
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.model import BatchOutcome, Hooks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import (
    BatchInfo,
    Run,
    read_progress,
    write_run,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.shares import plan_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.worker import Worker
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

#: Longer than any machine is busy: what must not end in the passing case ends then.
PATIENCE_S = 240


class Fleet:
    """Ranks of one run whose copying is a function of (rank, batch)."""

    def __init__(
        self,
        tmp_path,
        ranks: int,
        copy: t.Callable[[int, BatchInfo], BatchOutcome],
        files: int = 64,
        expiry_s: float = PATIENCE_S,
    ) -> None:
        self.expiry_s = expiry_s
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
        def copy_batch(batch: BatchInfo, attempt: int, hooks: Hooks) -> BatchOutcome:
            outcome = copy(rank, batch)
            hooks.landed()
            if outcome.error is None:
                with self._lock:
                    self.copied.append((rank, batch.id))
                for blob in self.run.batch_blobs(batch.id):
                    hooks.on_file(blob.size, blob.size)
            return outcome

        claims = Claims(self.run.claims, f"rank{rank}", expiry_s=self.expiry_s)
        return Worker(self.run, rank, f"gpu-{rank}", claims, copy_batch, heartbeat_s=0.05, poll_s=0.02)

    def go(self, ranks: t.Iterable[int] | None = None) -> None:
        ranks = ranks or range(len(self.workers))
        threads = [threading.Thread(target=self.workers[rank].run, daemon=True) for rank in ranks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=PATIENCE_S)
            assert not thread.is_alive(), "a rank did not end"

    def until_failed(self, _rank: int, _batch: BatchInfo) -> BatchOutcome:
        """Copy no faster than the first rank finds that it cannot go on."""
        deadline = time.monotonic() + PATIENCE_S
        while self.workers[0].progress.state != "failed" and time.monotonic() < deadline:
            time.sleep(0.01)
        return BatchOutcome()

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
    """The slow one is at its first batch until all the others are copied."""

    def copy(rank: int, batch: BatchInfo) -> BatchOutcome:
        deadline = time.monotonic() + PATIENCE_S
        while rank == 0 and {*fleet.copied_batches(), batch.id} != {*all_batches(fleet.run)}:
            assert time.monotonic() < deadline, "the others leave batches to the slow rank"
            time.sleep(0.01)
        return BatchOutcome()

    fleet = Fleet(tmp_path, 4, copy)
    fleet.go()
    assert {*fleet.copied_batches()} == {*all_batches(fleet.run)}
    assert sum(rank == 0 for rank, _batch in fleet.copied) <= 1


def test_the_share_of_a_rank_that_never_comes_is_copied(tmp_path) -> None:
    fleet = Fleet(tmp_path, 4, lambda _rank, _batch: BatchOutcome())
    fleet.go(ranks=[1, 2, 3])
    assert fleet.copied_batches() == all_batches(fleet.run)


@pytest.mark.slow
@pytest.mark.newest
def test_the_batch_of_a_rank_that_died_is_copied(tmp_path) -> None:
    fleet = Fleet(tmp_path, 3, lambda _rank, _batch: BatchOutcome(), expiry_s=3)
    dead = Claims(fleet.run.claims, "dead")
    assert dead.claim("r0000b00", 0)
    assert dead.claim("r0000b01", 0)
    fleet.go(ranks=[1, 2])
    # On a busy machine a rank that lives may be taken for dead, too.
    assert {*fleet.copied_batches()} == {*all_batches(fleet.run)}
    assert sum(worker.progress.retried_batches for worker in fleet.workers) >= 2


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
    refused = threading.Event()

    def copy(rank: int, _batch: BatchInfo) -> BatchOutcome:
        if rank == 0:
            refused.set()
            return BatchOutcome(error=ClusterError(kind, "Refused.", "Do this."))
        assert refused.wait(60), "rank 0 never had a turn"
        return BatchOutcome()

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


def test_a_batch_whose_copy_breaks_off_with_an_error_of_ours_is_tried_again(tmp_path) -> None:
    broken: set[str] = set()

    def copy(_rank: int, batch: BatchInfo) -> BatchOutcome:
        if batch.id == "r0000b03" and batch.id not in broken:
            broken.add(batch.id)
            raise ClusterError("unreachable", "The endpoint does not answer.", "Check it.")
        return BatchOutcome()

    fleet = Fleet(tmp_path, 1, copy)
    fleet.go()
    assert fleet.copied_batches() == all_batches(fleet.run)
    assert fleet.workers[0].progress.state == "finished"


def test_a_rank_that_ends_by_an_error_of_ours_is_recorded_as_failed(tmp_path) -> None:
    """What staging.json and dataset_watch read."""

    def copy(_rank: int, _batch: BatchInfo) -> BatchOutcome:
        raise ClusterError("auth_failed", "Refused.", "Do this.")

    fleet = Fleet(tmp_path, 1, copy)
    fleet.go()
    (progress,) = read_progress(fleet.run)
    assert progress.state == "failed"
    assert progress.error == {"kind": "auth_failed", "message": "Refused.", "remedy": "Do this."}


@pytest.mark.parametrize("kind", ["io", "azcopy_crashed"])
def test_a_rank_in_trouble_of_its_own_leaves_the_batches_to_others(tmp_path, monkeypatch, kind: str) -> None:
    """Its landing disk is gone, or every AzCopy crashes there: trying on would use up the attempts of every batch."""
    monkeypatch.setattr(dataset_worker, "_TROUBLE_S", 0.02)  # its fourth failure, before any batch has failed as often

    def copy(rank: int, _batch: BatchInfo) -> BatchOutcome:
        return BatchOutcome(error=ClusterError(kind, "It is gone.", "Check it.") if rank == 0 else None)

    fleet = Fleet(tmp_path, 2, copy)
    fleet.go(ranks=[0])
    assert fleet.workers[0].progress.state == "failed"
    assert fleet.workers[0].progress.error == {"kind": kind, "message": "It is gone.", "remedy": "Check it."}
    fleet.go(ranks=[1])
    assert fleet.copied_batches() == all_batches(fleet.run)


def test_as_many_io_errors_as_batches_in_flight_end_no_rank(tmp_path) -> None:
    """A shared file system that fails for a moment fails all that use it."""
    broken: set[str] = set()

    def copy(_rank: int, batch: BatchInfo) -> BatchOutcome:
        if len(broken) < 3:
            broken.add(batch.id)
            return BatchOutcome(error=ClusterError("io", "For a moment.", "Wait."))
        return BatchOutcome()

    fleet = Fleet(tmp_path, 1, copy)
    fleet.go()
    assert fleet.workers[0].progress.state == "finished"
    assert fleet.copied_batches() == all_batches(fleet.run)


@pytest.mark.slow
@pytest.mark.newest
def test_no_number_of_io_errors_ends_a_rank_within_the_time_that_is_forgiven(tmp_path) -> None:
    """Trying again at once would fail many times in a moment, and use up the attempts of every batch."""
    tries: list[float] = []

    def copy(_rank: int, _batch: BatchInfo) -> BatchOutcome:
        tries.append(time.monotonic())
        return BatchOutcome(error=ClusterError("io", "For a moment.", "Wait.") if len(tries) <= 8 else None)

    fleet = Fleet(tmp_path, 1, copy)
    fleet.go()
    assert fleet.workers[0].progress.state == "finished"
    assert fleet.copied_batches() == all_batches(fleet.run)
    assert tries[8] - tries[0] >= 0.3, "it pauses, each time longer"


def test_a_file_system_that_can_be_read_but_not_written_ends_the_rank(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(dataset_worker, "_TROUBLE_S", 0.3)
    fleet = Fleet(tmp_path, 1, lambda *batch: fleet.until_failed(*batch))
    shutil.rmtree(fleet.run.progress)
    pathlib.Path(fleet.run.progress).write_text("no directory any more")
    fleet.go()
    assert fleet.workers[0].progress.error is not None
    assert fleet.workers[0].progress.error["kind"] == "io"
    assert len(fleet.copied) < len(fleet.run.batches)


@contextlib.contextmanager
def away(path: pathlib.Path) -> t.Iterator[None]:
    """A file or directory that is not found for a while, and found again."""
    path.rename(path.with_name("away"))
    yield
    path.with_name("away").rename(path)


def test_a_short_trouble_is_forgiven_and_a_long_one_is_not(tmp_path, monkeypatch) -> None:
    """Each of the short ones lasts a minute, which is forgiven, and both together longer."""
    now = 1000.0
    monkeypatch.setattr(dataset_worker, "time", types.SimpleNamespace(monotonic=lambda: now))
    fleet = Fleet(tmp_path, 1, lambda _rank, _batch: BatchOutcome())
    worker = fleet.workers[0]
    for _trouble in range(2):
        with away(pathlib.Path(fleet.run.progress)):
            for _second in range(61):
                worker._tolerate(worker._report)
                now += 1
        worker._tolerate(worker._report)
    assert worker.progress.state == "working"
    with away(pathlib.Path(fleet.run.progress)):
        for _second in range(62):
            worker._tolerate(worker._report)
            now += 1
    assert worker.progress.state == "failed"
    assert worker.progress.error is not None
    assert worker.progress.error["kind"] == "io"


def test_two_troubles_long_apart_are_two(tmp_path, monkeypatch) -> None:
    """What is done seldom may have gone well in between."""
    now = 1000.0
    monkeypatch.setattr(dataset_worker, "time", types.SimpleNamespace(monotonic=lambda: now))
    fleet = Fleet(tmp_path, 1, lambda _rank, _batch: BatchOutcome())
    worker = fleet.workers[0]
    with away(pathlib.Path(fleet.run.progress)):
        for _hour in range(3):
            worker._tolerate(worker._report)
            now += 3600
    assert worker.progress.state == "working"


def test_failed_files_are_kept_with_the_batch(tmp_path) -> None:
    failure = {"name": "f0001", "kind": "corrupt", "message": "The checksum differs."}
    fleet = Fleet(tmp_path, 1, lambda _rank, batch: BatchOutcome(failed=[failure] if batch.id == "r0000b00" else []))
    fleet.go()
    result = Claims(fleet.run.claims, "reader").result("r0000b00")
    assert result is not None
    assert result["failed"] == [failure]


def test_a_newer_run_stops_the_workers(tmp_path) -> None:
    fleet = Fleet(tmp_path, 1, lambda *batch: fleet.until_failed(*batch))
    (tmp_path / ".staging" / "current").write_text('{"run": "another"}')
    fleet.go()
    assert fleet.workers[0].progress.error is not None
    assert fleet.workers[0].progress.error["kind"] == "superseded"


def test_a_removed_dataset_stops_the_workers(tmp_path) -> None:
    began = threading.Event()

    def copy(rank: int, batch: BatchInfo) -> BatchOutcome:
        began.set()
        return fleet.until_failed(rank, batch)

    def remove() -> None:
        assert began.wait(PATIENCE_S)
        while (tmp_path / ".staging").exists():  # a heartbeat may write into it meanwhile
            shutil.rmtree(tmp_path / ".staging", ignore_errors=True)

    fleet = Fleet(tmp_path, 1, copy)
    remover = threading.Thread(target=remove)
    remover.start()
    fleet.go()
    remover.join()
    assert len(fleet.copied) < len(fleet.run.batches)
    assert fleet.workers[0].progress.error is not None
    assert fleet.workers[0].progress.error["kind"] == "superseded"


def test_state_that_is_hidden_for_a_moment_stops_nobody(tmp_path) -> None:
    worker = Fleet(tmp_path, 1, lambda _rank, _batch: BatchOutcome()).workers[0]
    for _time in range(3):
        with away(tmp_path / ".staging/current"):
            assert not any(worker._superseded() for _beat in range(9))
        assert not worker._superseded()
    with away(tmp_path / ".staging/current"):
        assert [worker._superseded() for _beat in range(10)] == [False] * 9 + [True]


def test_the_deadline_ends_the_rank(tmp_path) -> None:
    fleet = Fleet(tmp_path, 1, lambda *batch: fleet.until_failed(*batch))
    fleet.workers[0]._deadline = time.monotonic() + 0.3
    fleet.go()
    assert fleet.workers[0].progress.error is not None
    assert fleet.workers[0].progress.error["kind"] == "timeout"


def test_the_network_is_used_while_the_last_files_are_inflated(tmp_path) -> None:
    """Two batches overlap when the first says that its bytes are here."""
    running = 0
    most = 0
    lock = threading.Lock()
    overlapped = threading.Event()

    def copy_batch(batch: BatchInfo, attempt: int, hooks: Hooks) -> BatchOutcome:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == 2:
                overlapped.set()
        hooks.landed()
        assert overlapped.wait(PATIENCE_S)
        with lock:
            running -= 1
        return BatchOutcome()

    fleet = Fleet(tmp_path, 1, lambda _rank, _batch: BatchOutcome())
    worker = Worker(fleet.run, 0, "gpu-0", Claims(fleet.run.claims, "x"), copy_batch, heartbeat_s=0.05, poll_s=0.02)
    worker.run()
    assert 2 <= most <= 3


def test_the_last_batch_of_a_slow_rank_is_taken_over(tmp_path, monkeypatch) -> None:
    """An idle rank that would be quicker copies the batch too, and the slow one stops when it is done."""
    monkeypatch.setattr(pace, "_START_S", 0.0)
    fleet = Fleet(tmp_path, 2, lambda _rank, _batch: BatchOutcome())
    stopped = threading.Event()

    def copier(slow: bool):
        return lambda *args: copy_batch(slow, *args)

    def copy_batch(slow: bool, batch: BatchInfo, attempt: int, hooks: Hooks) -> BatchOutcome:
        blobs = fleet.run.batch_blobs(batch.id)
        for number, blob in enumerate(blobs):
            for _wait in range(100 * PATIENCE_S if slow and number else 1):
                time.sleep(0.01)
                if hooks.should_stop():
                    stopped.set()
                    return BatchOutcome(error=ClusterError("cancelled", "Stopped.", "Again."))
            hooks.on_file(blob.size, blob.size)
        return BatchOutcome()

    workers = []
    for rank, slow in enumerate((True, False)):
        claims = Claims(fleet.run.claims, f"rank{rank}", expiry_s=3600)
        workers.append(Worker(fleet.run, rank, f"gpu-{rank}", claims, copier(slow), heartbeat_s=0.05, poll_s=0.02))
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=PATIENCE_S)
    assert stopped.is_set(), "the slow rank copied its batch to the end"
    assert workers[1].progress.retried_batches >= 1
    reader = Claims(fleet.run.claims, "reader")
    assert all(state.done for state in reader.survey(all_batches(fleet.run)).values())


def test_a_rank_with_nothing_left_does_not_wait_for_its_next_regular_look(tmp_path) -> None:
    """The own last batch is noticed when it ends, those of the others soon after; long looks are for long waits."""

    def copy_batch(batch: BatchInfo, attempt: int, hooks: Hooks) -> BatchOutcome:
        hooks.landed()
        time.sleep(0.2)  # so that a rank has begun to wait for the end of its batch
        return BatchOutcome()

    fleet = Fleet(tmp_path, 2, lambda _rank, _batch: BatchOutcome(), files=2)
    fleet.workers = [
        Worker(
            fleet.run,
            rank,
            f"gpu-{rank}",
            Claims(fleet.run.claims, str(rank)),
            copy_batch,
            heartbeat_s=0.05,
            poll_s=10 * PATIENCE_S,
        )
        for rank in range(2)
    ]
    fleet.go()
    assert sum(worker.progress.batches for worker in fleet.workers) == len(fleet.run.batches)
