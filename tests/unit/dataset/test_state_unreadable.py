# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the modules say where the operating system refuses the state, the logs or the data: a kind and a next step."""

from __future__ import annotations

import base64
import pathlib
import typing as t
import zlib

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob, Manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.receipts import Receipt, ReceiptLog
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import write_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.shares import plan_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import StatePaths
from ansible_collections.hpcai.gpu_cluster.plugins.modules import (
    dataset_plan,
    dataset_remove,
    dataset_stage,
    dataset_verify,
)
from module_run import run_main

SOURCE = {"url": "https://account.blob.core.windows.net/data", "prefix": ""}


@pytest.fixture
def data(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "data/.staging/runs").mkdir(parents=True)
    return tmp_path / "data"


def manifest() -> Manifest:
    return Manifest([SOURCE], [Blob("a", 8, etag="e")])


def check(result: dict[str, t.Any], path: pathlib.Path) -> None:
    assert (result["failed"], result.get("error_kind")) == (True, "bad_input"), result["msg"]
    assert str(path) in result["msg"]
    assert result["remedy"]


def stage(data: pathlib.Path, run: str, azcopy: str = "/bin/true", **options: t.Any) -> dict[str, t.Any]:
    where = {"destination": str(data), "sources": [SOURCE], "run": run, "rank": 0, "host": "gpu-1", "azcopy": azcopy}
    return run_main(dataset_stage.main, {**where, **options})


def test_verify_where_the_state_cannot_be_read(data: pathlib.Path) -> None:
    (data / ".staging/dataset.json").mkdir()
    check(run_main(dataset_verify.main, {"destination": str(data)}), data)
    lenient = run_main(dataset_verify.main, {"destination": str(data), "fail": False})
    assert (lenient["failed"], lenient["verdict"]) == (True, "incomplete"), "nobody has looked: that is no verdict"


def test_stage_where_the_run_cannot_be_read(data: pathlib.Path) -> None:
    (data / ".staging/runs/x/run.json").mkdir(parents=True)
    check(stage(data, "x"), data)


def test_stage_where_the_directory_of_logs_cannot_be_made(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    run, blobs_of = plan_run(
        manifest(), range(1), destination=str(data), hosts=["gpu-1"], decompress=False, bytes_per_second=1.0
    )
    write_run(run, blobs_of)
    azcopy = tmp_path / "azcopy"
    azcopy.write_text("#!/bin/sh\necho azcopy version 10.32.2\n")
    azcopy.chmod(0o755)
    (tmp_path / "file").write_text("")
    log_path = tmp_path / "file/log"
    check(stage(data, run.id, str(azcopy), log_path=str(log_path)), log_path)


def test_plan_where_the_receipts_cannot_be_read(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (data / ".staging/receipts").write_text("no directory")
    manifest().write(str(tmp_path / "manifest.jsonl"))
    packed = base64.b85encode(zlib.compress((tmp_path / "manifest.jsonl").read_bytes())).decode()
    options = {"destination": str(data), "sources": [SOURCE], "hosts": ["gpu-1"], "manifest": packed}
    check(run_main(dataset_plan.main, options), data)


def test_remove_where_a_file_cannot_be_deleted(data: pathlib.Path) -> None:
    (data / "a").mkdir()
    ReceiptLog(StatePaths(str(data)).receipts, "all").append([Receipt("a", "e", "", 8, 8, 0, 0)])
    result = run_main(dataset_remove.main, {"destination": str(data), "allow_data_loss": True})
    assert (result["failed"], result.get("error_kind")) == (True, "os_error"), result["msg"]
    assert str(data / "a") in result["msg"]
    assert (data / ".staging").is_dir(), "what says what is ours is still there"


def test_remove_where_the_receipts_cannot_be_read(data: pathlib.Path) -> None:
    (data / ".staging/receipts").write_text("no directory")
    result = run_main(dataset_remove.main, {"destination": str(data), "allow_data_loss": True})
    assert (result["failed"], result.get("error_kind")) == (True, "bad_input"), result["msg"]
    assert f"{data}/.staging/receipts` is no directory" in result["msg"]
