"""dataset_remove deletes what the staging made, and nothing beside it."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._staging_landing import landing_directory
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._staging_state import Receipt, ReceiptLog, StatePaths
from ansible_collections.hpcai.gpu_cluster.plugins.modules import dataset_remove


def run(capsys: pytest.CaptureFixture[str], *, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
    with patch_module_args({**options, "_ansible_check_mode": check}), pytest.raises(SystemExit):
        dataset_remove.main()
    return t.cast("dict[str, t.Any]", json.loads(capsys.readouterr().out))


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


def test_consent_is_needed_and_nothing_is_lost_without_it(tmp_path, destination, capsys) -> None:
    before = files(tmp_path)
    result = run(capsys, destination=destination)
    assert result["failed"]
    assert "dataset_staging_allow_data_loss" in result["msg"]
    assert files(tmp_path) == before


def test_check_mode_tells_the_truth(tmp_path, destination, capsys) -> None:
    before = files(tmp_path)
    planned = run(capsys, check=True, destination=destination, allow_data_loss=True)
    assert (planned["changed"], planned["files"]) == (True, 2)
    assert files(tmp_path) == before
    done = run(capsys, destination=destination, allow_data_loss=True)
    assert (done["changed"], done["files"], done["diff"]) == (True, 2, planned["diff"])


def test_files_of_others_stay(tmp_path, destination, capsys) -> None:
    run(capsys, destination=destination, allow_data_loss=True)
    assert files(tmp_path) == ["data/mine"]
    assert not (tmp_path / "data/train").exists()
    assert run(capsys, destination=destination, allow_data_loss=True)["changed"] is False


def test_logs_of_others_stay(tmp_path, capsys) -> None:
    logs = tmp_path / "log"
    for name in ("20261120T120000-0a1b2c/job.log", "rank-0123456789abcdef.lock", "messages"):
        (logs / name).parent.mkdir(parents=True, exist_ok=True)
        (logs / name).write_text("")
    assert run(capsys, log_path=str(logs))["changed"]
    assert files(logs) == ["messages"]
    assert run(capsys, log_path=str(logs))["changed"] is False


def test_a_destination_that_never_was_is_no_error(tmp_path, capsys) -> None:
    assert run(capsys, destination=str(tmp_path / "nowhere"), log_path=str(tmp_path / "nowhere"))["changed"] is False


def test_what_a_killed_worker_landed_goes_and_the_rest_of_the_disk_stays(tmp_path, destination, capsys) -> None:
    disk = tmp_path / "nvme"
    ours = pathlib.Path(landing_directory(str(disk), destination, "gpu-1"))
    theirs = pathlib.Path(landing_directory(str(disk), "/mnt/scratch/other", "gpu-1"))
    for path in (ours / "20260101T000000-abcdef-r0000b00/0/a", theirs / "a", disk / "checkpoints/a"):
        path.parent.mkdir(parents=True)
        path.write_text("raw")
    options = {"destination": f"{destination}/", "landing_path": str(disk), "keep_data": True}
    planned = run(capsys, check=True, **options)
    assert planned["changed"]
    assert ours.exists()
    done = run(capsys, **options)
    assert (done["changed"], done["files"], done["diff"]) == (True, 0, planned["diff"])
    assert files(disk) == ["checkpoints/a", f"{theirs.name}/a"]
    assert len(files(tmp_path / "data")) == 4, "another node of those that share it deletes the data"
    assert run(capsys, **options)["changed"] is False
