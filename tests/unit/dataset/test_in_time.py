# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node whose file system hangs fails by name within a deadline, whichever phase looks there."""

from __future__ import annotations

import functools
import multiprocessing
import os
import pathlib
import signal
import socket
import typing as t
import zlib

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob, Manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset import dataset as datasets
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset import in_time, prepare, state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.dataset import Dataset
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.receipts import Receipt, ReceiptLog
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import StatePaths
from ansible_collections.hpcai.gpu_cluster.plugins.modules import dataset_plan, dataset_stage, dataset_verify
from module_run import run_main

_FORK = multiprocessing.get_context("fork")
FILES, BYTES = 30, 40
SOURCE = {"url": "https://a.blob.core.windows.net/data", "prefix": ""}
PLAN = {"sources": [SOURCE], "hosts": ["gpu-1"], "identity": "none"}
STAGE = {"sources": [], "rank": 0, "host": "gpu-1"}

Run = t.Callable[..., dict[str, t.Any]]


@pytest.fixture
def destination(tmp_path: pathlib.Path) -> str:
    data = tmp_path / "data"
    manifest = Manifest([SOURCE], [Blob(f"f{number}", BYTES, "", "etag") for number in range(FILES)])
    Dataset(str(data), manifest, decompress=False).save()
    content = bytes(BYTES)
    receipts = []
    for blob in manifest.blobs:
        (data / blob.name).write_bytes(content)
        written = (data / blob.name).stat().st_mtime_ns
        receipts.append(Receipt(blob.name, "etag", "", BYTES, BYTES, zlib.crc32(content), written, False))
    ReceiptLog(StatePaths(str(data)).receipts, "gpu-1").append(receipts)
    return str(data)


@pytest.fixture
def run(destination: str) -> Run:
    """Run a module in a process group of its own: what hangs must not be this one."""

    def work(main: t.Callable[[], None], options: dict[str, t.Any], results: t.Any) -> None:
        os.setsid()
        results.send(run_main(main, {"destination": destination, **options}))

    def start(module: t.Any, **options: t.Any) -> dict[str, t.Any]:
        ours, theirs = _FORK.Pipe(duplex=False)
        process = _FORK.Process(target=work, args=(module.main, options, theirs))
        process.start()
        try:
            assert ours.poll(20), "the module hangs"
            return t.cast("dict[str, t.Any]", ours.recv())
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.join()

    return start


def hang(*_arguments: t.Any, **_options: t.Any) -> t.Any:
    """As a look at a dead disk does, whose process no signal wakes."""
    signal.raise_signal(signal.SIGSTOP)


@pytest.mark.parametrize(
    ("module", "options", "place"),
    [
        (dataset_plan, PLAN, (prepare, "check_state")),
        (dataset_plan, {**PLAN, "return_manifest": True}, (prepare, "name_room")),
        (dataset_verify, {}, (datasets, "check_state")),
        (dataset_verify, {"content": True, "mark_damaged": True, "fail": False}, (state, "file_crc32")),
        (dataset_verify, {"report": True}, (datasets, "sweep_state")),
        (dataset_stage, {**STAGE, "run": ""}, (dataset_stage, "sweep_killed")),
        (dataset_stage, {**STAGE, "run": "x", "only_check": True}, (dataset_stage, "check_state")),
    ],
    ids=["plan", "list", "verify", "read", "compare", "sweep", "owners"],
)
def test_a_node_that_hangs_fails_by_name(
    run: Run,
    destination: str,
    monkeypatch: pytest.MonkeyPatch,
    module: t.Any,
    options: dict[str, t.Any],
    place: tuple[t.Any, str],
) -> None:
    monkeypatch.setattr(in_time, "_START_S", 0.2, raising=False)
    monkeypatch.setattr(prepare, "build_manifest", lambda *_, **__: Manifest([SOURCE], [Blob("f0", BYTES, "", "etag")]))
    monkeypatch.setattr(*place, hang)
    result = run(module, **options)
    assert (result["failed"], result["error_kind"]) == (True, "timeout"), result
    assert socket.gethostname() in result["msg"]
    assert destination in result["msg"]


@pytest.mark.parametrize(
    ("options", "found_s"),
    [
        ({}, 2 * FILES * 0.001),  # what is in the manifest, and what there are receipts of
        ({"content": True}, 2 * FILES * 0.001 + BYTES * 0.002),  # and the bytes of the first file, at which it hangs
    ],
    ids=["look", "read"],
)
def test_the_time_follows_from_files_and_bytes(
    destination: str, monkeypatch: pytest.MonkeyPatch, options: dict[str, t.Any], found_s: float
) -> None:
    limits = {"_START_S": 0.5, "_FILE_S": 0.001, "_BYTES_PER_SECOND": 500.0}
    for name, value in limits.items():
        monkeypatch.setattr(in_time, name, value)
    place = (state.zlib, "crc32") if options else (state, "_look_at")
    monkeypatch.setattr(*place, hang)
    dataset = functools.partial(Dataset.open, destination)
    with pytest.raises(in_time.ClusterError) as raised:
        in_time.look_within(destination, 0.0, lambda: dataset().verify(content=bool(options), part=(0, 1), threads=1))
    assert isinstance(raised.value.__cause__, in_time.OverdueError)
    assert raised.value.__cause__.limit_s == pytest.approx(0.5 + found_s)


@pytest.mark.slow
def test_a_given_time_holds_whatever_there_is_to_do(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_look_at", hang)
    result = run(dataset_verify, timeout_s=1)
    assert (result["error_kind"], "within 1 s" in result["msg"], "`timeout_s`" in result["remedy"]) == (
        "timeout", True, True,
    )  # fmt: skip


def test_a_node_that_is_well_is_not_late(run: Run) -> None:
    assert run(dataset_verify, content=True)["verdict"] == "ok"
