"""dataset_remove deletes what the staging made, and nothing beside it."""

from __future__ import annotations

import contextlib
import pathlib
import threading
import time
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob, Manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset import run as dataset_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.claims import Claims
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.landing import landing_directory
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.model import BatchOutcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.receipts import Receipt, ReceiptLog
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import RankProgress, Run, write_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.shares import plan_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import StatePaths
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.worker import Worker
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.part_file import part_file
from ansible_collections.hpcai.gpu_cluster.plugins.modules import dataset_remove
from module_run import run_main


def run(*, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
    return run_main(dataset_remove.main, {**options, "_ansible_check_mode": check})


@pytest.fixture
def destination(tmp_path: pathlib.Path) -> str:
    data = tmp_path / "data"
    (data / "train").mkdir(parents=True)
    for name in ("train/a", "train/b", "mine"):
        (data / name).write_text(name)
    receipts = [Receipt(name, "e", "", 1, 1, 0, 0) for name in ("train/a", "train/b", "train/gone")]
    ReceiptLog(StatePaths(str(data)).receipts, "all").append(receipts)
    return str(data)


def files(directory: pathlib.Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def test_consent_is_needed_and_nothing_is_lost_without_it(tmp_path, destination) -> None:
    before = files(tmp_path)
    result = run(destination=destination)
    assert result["failed"]
    assert "`allow_data_loss: true`" in result["msg"]
    assert files(tmp_path) == before


def test_check_mode_tells_the_truth(tmp_path, destination) -> None:
    before = files(tmp_path)
    planned = run(check=True, destination=destination, allow_data_loss=True)
    assert (planned["changed"], planned["files"]) == (True, 2)
    assert files(tmp_path) == before
    done = run(destination=destination, allow_data_loss=True)
    assert (done["changed"], done["files"], done["diff"]) == (True, 2, planned["diff"])


def test_files_of_others_stay(tmp_path, destination) -> None:
    run(destination=destination, allow_data_loss=True)
    assert files(tmp_path) == ["data/mine"]
    assert not (tmp_path / "data/train").exists()
    assert run(destination=destination, allow_data_loss=True)["changed"] is False


@pytest.mark.parametrize("check", [False, True])
def test_a_receipt_that_somebody_forged_deletes_nothing_elsewhere(tmp_path, destination, check: bool) -> None:
    (tmp_path / "passwd").write_text("root")
    absolute = str(tmp_path / "passwd")
    forged = [Receipt(name, "e", "", 1, 1, 0, 0) for name in ("../passwd", "train/../../passwd", absolute, "", ".")]
    ReceiptLog(StatePaths(destination).receipts, "forged").append(forged)
    assert run(check=check, destination=destination, allow_data_loss=True)["files"] == 2
    assert (tmp_path / "passwd").read_text() == "root"


@pytest.mark.parametrize("depth", ["train", "train/deep"])
def test_nothing_is_deleted_through_a_link(tmp_path, destination, depth: str) -> None:
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "passwd").write_text("root")
    data = pathlib.Path(destination)
    if depth == "train":
        (data / "train").rename(data / "moved")
    (data / depth).symlink_to(etc)
    ReceiptLog(StatePaths(destination).receipts, "more").append([Receipt(f"{depth}/passwd", "e", "", 1, 4, 0, 0)])
    before = files(tmp_path)
    result = run(destination=destination, allow_data_loss=True)
    assert result["failed"]
    assert f"`{data / depth}` is a symbolic link" in result["msg"]
    assert files(tmp_path) == before
    # A link at a file's own place is deleted itself.
    (data / depth).unlink()
    (data / "moved").rename(data / "train") if depth == "train" else None
    (data / "train/a").unlink()
    (data / "train/a").symlink_to(etc / "passwd")
    assert run(destination=destination, allow_data_loss=True)["files"] == 2
    assert files(tmp_path) == ["data/mine", "etc/passwd"]


def test_what_a_killed_worker_had_not_finished_goes_too(tmp_path, destination) -> None:
    data = pathlib.Path(destination)
    with contextlib.suppress(InterruptedError), part_file(str(data / "val/c")):
        (left,) = (data / "val").iterdir()
        raise InterruptedError
    left.write_bytes(b"half")  # a kill leaves it there
    (data / "val/.0123456789ab.theirs.part").write_text("a name that is not one of ours")
    assert run(destination=destination, allow_data_loss=True)["files"] == 2
    assert files(tmp_path) == ["data/mine", "data/val/.0123456789ab.theirs.part"]


def test_logs_of_others_stay(tmp_path) -> None:
    logs = tmp_path / "log"
    for name in ("20261120T120000-0a1b2c/job.log", "rank-0123456789abcdef.lock", "messages"):
        (logs / name).parent.mkdir(parents=True, exist_ok=True)
        (logs / name).write_text("")
    assert run(log_path=str(logs))["changed"]
    assert files(logs) == ["messages"]
    assert run(log_path=str(logs))["changed"] is False


def test_logs_that_another_node_deletes_meanwhile_are_no_error(tmp_path) -> None:
    """Where nodes share the directory, all of them delete at once."""
    logs = tmp_path / "log"
    logs.mkdir()
    (logs / "rank-0123456789abcdef.lock").write_text("")
    gone = [str(logs / "20261120T120000-0a1b2c"), str(logs / "rank-fedcba9876543210.lock")]
    dataset_remove.delete_logs(str(logs), [*gone, *dataset_remove.our_logs(str(logs))])
    assert not logs.exists()


def test_a_destination_that_never_was_is_no_error(tmp_path) -> None:
    assert run(destination=str(tmp_path / "nowhere"), log_path=str(tmp_path / "nowhere"))["changed"] is False


def test_what_a_killed_worker_landed_goes_and_the_rest_of_the_disk_stays(tmp_path, destination) -> None:
    disk = tmp_path / "nvme"
    ours = pathlib.Path(landing_directory(str(disk), destination, "gpu-1"))
    theirs = pathlib.Path(landing_directory(str(disk), "/mnt/scratch/other", "gpu-1"))
    for path in (ours / "20260101T000000-abcdef-r0000b00/0/a", theirs / "a", disk / "checkpoints/a"):
        path.parent.mkdir(parents=True)
        path.write_text("raw")
    options = {"destination": f"{destination}/", "landing_path": str(disk), "keep_data": True}
    planned = run(check=True, **options)
    assert planned["changed"]
    assert ours.exists()
    done = run(**options)
    assert (done["changed"], done["files"], done["diff"]) == (True, 0, planned["diff"])
    assert files(disk) == ["checkpoints/a", f"{theirs.name}/a"]
    assert len(files(tmp_path / "data")) == 4, "another node of those that share it deletes the data"
    assert run(**options)["changed"] is False


def begin(destination: pathlib.Path) -> Run:
    blobs = [Blob(f"f{number}", 1000, etag="e") for number in range(8)]
    manifest = Manifest([{"url": "http://x/c", "prefix": ""}], blobs)
    planned, blobs_of = plan_run(
        manifest, range(8), destination=str(destination), hosts=["gpu-1"], decompress=False, bytes_per_second=1000.0
    )
    pathlib.Path(StatePaths(str(destination)).runs).mkdir(parents=True)
    write_run(planned, blobs_of)
    return planned


def test_a_worker_that_still_copies_is_stopped_and_leaves_nothing(tmp_path) -> None:
    data = tmp_path / "data"
    planned = begin(data)
    receipts = ReceiptLog(StatePaths(str(data)).receipts, "gpu-1")
    began = threading.Event()

    def copy(batch, attempt, hooks) -> BatchOutcome:
        def finish(name: str) -> None:
            (data / "train").mkdir(exist_ok=True)
            (data / name).write_text("content")
            receipts.append([Receipt(name, "e", "", 1, 7, 0, 0)])

        number = 0
        while not hooks.should_stop():
            finish(f"train/{batch.id}-{(number := number + 1)}")
            began.set()
            time.sleep(0.02)
        time.sleep(0.5)
        finish(f"train/{batch.id}-last")  # was being inflated when the word came
        return BatchOutcome()

    worker = Worker(planned, 0, "gpu-1", Claims(planned.claims, "w"), copy, heartbeat_s=0.05, poll_s=0.02)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    assert began.wait(120)
    result = run(destination=str(data), allow_data_loss=True)
    assert result["changed"]
    assert list(tmp_path.iterdir()) == []
    thread.join(timeout=240)
    assert not thread.is_alive()
    assert list(tmp_path.iterdir()) == []
    assert worker.progress.error is not None
    assert worker.progress.error["kind"] == "superseded"


def test_only_workers_that_may_be_alive_are_waited_for(tmp_path, monkeypatch) -> None:
    data = tmp_path / "data"
    planned = begin(data)
    RankProgress(0, "gpu-1", state="finished").write(planned)
    monkeypatch.setattr(dataset_run, "_STOP_S", 0.0)  # who waits for a rank fails
    run(check=True, destination=str(data))
    assert dataset_run.current_run_id(str(data)) == planned.id, "check mode stops nobody"
    assert run(destination=str(data))["changed"]
    assert not data.exists()

    monkeypatch.setattr(dataset_run, "_STOP_S", 240.0)
    monkeypatch.setattr(dataset_run, "_DEAD_AFTER_S", 0.5)
    RankProgress(0, "gpu-1", beat=7).write(begin(data))  # killed
    start = time.monotonic()
    assert run(destination=str(data))["changed"]
    assert time.monotonic() - start >= 0.5
    assert not data.exists()


def test_nothing_is_deleted_below_a_worker_that_does_not_stop(tmp_path, destination, monkeypatch) -> None:
    monkeypatch.setattr(dataset_run, "_STOP_S", 0.5)
    RankProgress(0, "gpu-7", beat=7).write(begin(pathlib.Path(destination)))
    result = run(destination=destination, allow_data_loss=True)
    assert (result["failed"], result["error_kind"]) == (True, "busy")
    assert "gpu-7" in result["msg"]
    assert (tmp_path / "data/train/a").exists()
