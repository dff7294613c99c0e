# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a staging lies in a directory of users: what in it may be theirs decides nothing, and leads nowhere."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import pathlib
import typing as t
import zlib

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.blobs import Blob, Blobs
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.claims import Claims
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.dataset import Dataset
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.receipts import (
    Receipt,
    ReceiptLog,
    consolidate_receipts,
    read_receipts,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import (
    Run,
    current_run_id,
    read_progress,
    read_run,
    write_run,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.shares import plan_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import (
    StatePaths,
    check_state,
    read_json,
    write_json,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.modules import (
    dataset_plan,
    dataset_remove,
    dataset_stage,
    dataset_verify,
)
from module_run import run_main

SOURCE = {"url": "https://account.blob.core.windows.net/data", "prefix": ""}
SAS = "sv=1&sig=c2lnbmF0dXJl"
MANIFEST = Manifest([SOURCE], [Blob("a", 8, etag="e")])


@pytest.fixture
def data(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def run(data: pathlib.Path) -> Run:
    run, blobs_of = plan_run(
        MANIFEST, range(1), destination=str(data), hosts=["gpu-1"], decompress=False, bytes_per_second=1.0
    )
    write_run(run, blobs_of)
    return run


def plan(data: pathlib.Path) -> dict[str, t.Any]:
    packed = data.parent / "manifest.jsonl"
    MANIFEST.write(str(packed))
    manifest = base64.b85encode(zlib.compress(packed.read_bytes())).decode()
    options = {"destination": str(data), "sources": [SOURCE], "hosts": ["gpu-1"], "manifest": manifest}
    return run_main(dataset_plan.main, options)


def stage(data: pathlib.Path, run_id: str = "x") -> dict[str, t.Any]:
    where = {"destination": str(data), "run": run_id, "rank": 0, "host": "gpu-1", "azcopy": "/bin/true"}
    log_path = str(data.parent / "log")
    return run_main(dataset_stage.main, {**where, "sources": [{**SOURCE, "sas": SAS}], "log_path": log_path})


def verify(data: pathlib.Path) -> dict[str, t.Any]:
    return run_main(dataset_verify.main, {"destination": str(data), "report": True})


def remove(data: pathlib.Path) -> dict[str, t.Any]:
    return run_main(dataset_remove.main, {"destination": str(data), "allow_data_loss": True})


MODULES = pytest.mark.parametrize("module", [plan, stage, verify, remove])


def listing(directory: pathlib.Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


@MODULES
@pytest.mark.parametrize("link", [".staging", ".staging/receipts", ".staging/runs"])
def test_a_link_in_place_of_the_state_is_refused(data: pathlib.Path, module: t.Any, link: str) -> None:
    """Receipts there would be deleted, old runs removed, documents written."""
    etc = data.parent / "etc"
    for name in ("all.jsonl", "more.jsonl", "a/x", "b/x", "c/x", "d/x"):
        (etc / name).parent.mkdir(parents=True, exist_ok=True)
        (etc / name).write_text("root")
    (data / link).parent.mkdir(exist_ok=True)
    (data / link).symlink_to(etc)
    before = listing(etc)
    result = module(data)
    assert (result["failed"], result["error_kind"]) == (True, "bad_input"), result["msg"]
    assert f"`{data / link}` is a symbolic link" in result["msg"]
    assert listing(etc) == before


@MODULES
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_state_that_somebody_else_made_is_refused(data: pathlib.Path, module: t.Any) -> None:
    """Prepared before the first staging, with receipts for files of others that `remove` would delete."""
    (data / "theirs").write_text("precious")
    ReceiptLog(StatePaths(str(data)).receipts, "all").append([Receipt("theirs", "e", "", 8, 8, 0, 0)])
    os.chown(data / ".staging", 65_533, -1)
    result = module(data)
    assert (result["failed"], result["error_kind"]) == (True, "bad_input"), result["msg"]
    assert "belongs to user 65533" in result["msg"]
    assert (data / "theirs").exists()


@MODULES
def test_state_that_everybody_may_write_to_is_refused(data: pathlib.Path, module: t.Any) -> None:
    (data / ".staging").mkdir()
    (data / ".staging").chmod(0o777)
    result = module(data)
    assert (result["failed"], result["error_kind"]) == (True, "bad_input"), result["msg"]
    assert "Others may write" in result["msg"]


def change_plan(run: Run, **changes: t.Any) -> None:
    path = pathlib.Path(run.directory, "run.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_plan_does_not_say_where_to_copy_to(run: Run) -> None:
    change_plan(run, destination="/etc")
    read = read_run(run.destination, run.id)
    assert read is not None
    assert read.destination == run.destination


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "../../../etc"},
        {"batches": [{"id": "../../home", "rank": 0, "files": 1, "bytes": 1}]},
        {"batches": [{"id": 7, "rank": 0, "files": 1, "bytes": 1}]},
        {"batches": [{"name": "r0000b00"}]},
        {"batches": None},
        {"shares": "none"},
        {"surprise": 1},
    ],
)
def test_a_plan_that_is_not_ours_is_refused(data: pathlib.Path, run: Run, changes: dict[str, t.Any]) -> None:
    change_plan(run, **changes)
    result = stage(data, run.id)
    assert (result["failed"], result["error_kind"]) == (True, "corrupt"), result["msg"]
    assert run.directory in result["remedy"]


def test_the_signature_goes_only_where_the_user_says(data: pathlib.Path, run: Run) -> None:
    change_plan(run, sources=[{"url": "https://evil.example/data", "prefix": ""}])
    result = stage(data, run.id)
    assert (result["failed"], result["error_kind"]) == (True, "bad_input"), result["msg"]
    assert "https://evil.example/data" in result["msg"]


@pytest.mark.parametrize(
    "row",
    [["../../etc/cron.d/x", 8, "", "e", "", 0], ["/etc/x", 8], ["a", 8, "", "e", "", 7], ["a", 8, "", "e", "", -1], 3],
)
def test_names_of_a_batch_are_looked_at_again(run: Run, row: t.Any) -> None:
    path = pathlib.Path(run.directory, f"batches/{run.batches[0].id}.json")
    path.write_text(json.dumps([row]))
    with pytest.raises(ClusterError, match="no plan of ours") as caught:
        run.batch_blobs(run.batches[0].id)
    assert caught.value.kind == "corrupt"


@pytest.mark.parametrize("document", ["[]", "3", "null", '{"rank": 0}', '{"rank": 0, "host": "a", "more": 1}', "{"])
def test_progress_that_is_not_ours_is_passed_over(run: Run, document: str) -> None:
    pathlib.Path(run.progress, "7.json").write_text(document)
    assert read_progress(run) == []


@pytest.mark.parametrize("document", ["[]", "3", "null", "{}", "{"])
def test_no_current_run_without_its_name(run: Run, document: str) -> None:
    pathlib.Path(StatePaths(run.destination).current).write_text(document)
    assert current_run_id(run.destination) is None


def test_a_pipe_keeps_nobody_waiting(data: pathlib.Path, run: Run) -> None:
    paths = StatePaths(str(data))
    for path in (paths.current, paths.manifest, os.path.join(paths.receipts, "x.jsonl")):
        pathlib.Path(path).parent.mkdir(exist_ok=True)
        pathlib.Path(path).unlink(missing_ok=True)
        os.mkfifo(path)
    for read in (
        lambda: read_json(paths.current),
        lambda: read_receipts(paths.receipts),
        lambda: Manifest.read(paths.manifest),
        lambda: Manifest.read_header(paths.manifest),
    ):
        with pytest.raises(OSError, match="no regular file"):
            read()


def test_nothing_is_written_through_a_link(data: pathlib.Path, run: Run) -> None:
    passwd = data.parent / "passwd"
    passwd.write_text("root")
    claims = Claims(run.claims, "gpu-1")
    batch = run.batches[0].id
    assert claims.claim(batch, 0)
    receipts = ReceiptLog(StatePaths(str(data)).receipts, "gpu-1")
    for path in (f"{run.claims}/{batch}.0", f"{StatePaths(str(data)).receipts}/gpu-1.jsonl"):
        pathlib.Path(path).unlink(missing_ok=True)
        pathlib.Path(path).symlink_to(passwd)
    part = pathlib.Path(f"{StatePaths(str(data)).current}.{os.getpid()}.part")
    part.symlink_to(passwd)
    for write in (
        lambda: claims.heartbeat({batch: 0.5}),
        lambda: receipts.append([Receipt("a", "e", "", 8, 8, 0, 0)]),
        lambda: write_json(StatePaths(str(data)).current, {"run": ""}),
    ):
        with pytest.raises(OSError, match="is a symbolic link"):
            write()
    assert passwd.read_text() == "root"


def test_neither_receipts_nor_runs_elsewhere_are_deleted(data: pathlib.Path, run: Run) -> None:
    """Somebody puts the links there after they were looked for."""
    etc, paths = data.parent / "etc", StatePaths(str(data))
    for name in ("all.jsonl", "more.jsonl", "1/x", "2/x", "3/x", "4/x"):
        (etc / name).parent.mkdir(parents=True, exist_ok=True)
        (etc / name).write_text("root")
    before = listing(etc)
    pathlib.Path(paths.receipts).symlink_to(etc)
    with pytest.raises(ClusterError, match="is a symbolic link"):
        consolidate_receipts(str(data), paths.receipts, read_receipts(paths.receipts), [])
    pathlib.Path(paths.runs).rename(data / "moved")
    pathlib.Path(paths.runs).symlink_to(etc)
    later = dataclasses.replace(run, id="20991122T120000-aaaaaa")
    with pytest.raises(ClusterError, match="is a symbolic link"):
        write_run(later, {batch.id: Blobs.of([]) for batch in later.batches})
    assert listing(etc) == before
    assert {path.read_text() for path in etc.rglob("*") if path.is_file()} == {"root"}


def test_our_own_state_is_believed_whatever_the_umask(data: pathlib.Path) -> None:
    """A default ACL of a project's directory takes the place of the umask."""
    before = os.umask(0)
    try:
        Dataset(str(data), Manifest([], []), False).save()
        write_run(Run("20260101T000000-abcdef", str(data), "", False, [], [], [], 1.0), {})
        ReceiptLog(StatePaths(str(data)).receipts, "x")
    finally:
        os.umask(before)
    check_state(str(data))
