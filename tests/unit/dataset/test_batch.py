# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One batch, copied by a stand-in for AzCopy, where the shared file system fails beside it, or power may."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import os
import pathlib
import sys
import threading
import time
import typing as t
from dataclasses import replace

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob, Manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset import batch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.batch import BatchCopier, CopySettings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.model import FATAL_KINDS, RANK_KINDS, Hooks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.rank import StageRequest, run_rank
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.receipts import (
    Receipt,
    ReceiptLog,
    read_receipts,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import BatchInfo, write_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.shares import plan_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import StatePaths, inspect_destination

CONTENT = bytes(8)
MD5 = base64.b64encode(hashlib.md5(CONTENT).digest()).decode()
AZCOPY = """#!{python}
import os, pathlib, sys, time
if sys.argv[1:] == ["--version"]:
    print("azcopy version 10.32.2")
    sys.exit()
pathlib.Path({pid!r}).write_text(str(os.getpid()))
for name in {names!r}:
    path = pathlib.Path(sys.argv[3], name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".new").write_bytes(bytes(8))
    path.with_suffix(".new").rename(path)
    time.sleep({pause_s})
time.sleep(240)
"""
THROTTLED = """#!{python}
import json, os, pathlib, sys
if sys.argv[1:] == ["--version"]:
    print("azcopy version 10.32.2")
    sys.exit()
with open({seen!r}, "a") as stream:
    print(os.environ.get("AZCOPY_CONCURRENCY_VALUE", "default"), file=stream)
failed = [{{"Src": "https://account.blob.core.windows.net/data/a", "ErrorCode": "503"}}]
counts = {{"JobStatus": "CompletedWithErrors", "TotalTransfers": "3", "TransfersFailed": "3"}}
for kind, more in (("Progress", {{"FailedTransfers": failed}}), ("EndOfJob", {{}})):
    print(json.dumps({{"MessageType": kind, "MessageContent": json.dumps({{**counts, **more}})}}))
sys.exit(1)
"""
HOOKS = Hooks(lambda *_sizes: None, lambda: None, lambda: False)


@pytest.fixture
def endpoint() -> t.Iterator[str]:
    """A server that answers, so that it can be reached."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/account/data"
        server.shutdown()


class Copying:
    """A batch of three files, and AzCopy's stand-in, which delivers ``names`` at its leisure and never ends by itself."""

    def __init__(
        self, place: pathlib.Path, endpoint: str, names: list[str], pause_s: float, concurrency: int = 0
    ) -> None:
        self.data, self.pid, self.landing = place / "data", place / "pid", place / "landing"
        azcopy = place / "azcopy"
        azcopy.write_text(AZCOPY.format(python=sys.executable, pid=str(self.pid), names=names, pause_s=pause_s))
        azcopy.chmod(0o755)
        wanted = ["a", "b", "deep/er/c"]
        manifest = Manifest([{"url": endpoint, "prefix": ""}], [Blob(name, 8, MD5, etag="e") for name in wanted])
        run, blobs_of = plan_run(
            manifest,
            range(3),
            destination=str(self.data),
            hosts=["gpu-1"],
            decompress=False,
            bytes_per_second=1.0,
            batch_s=240,
        )
        pathlib.Path(StatePaths(str(self.data)).runs).mkdir(parents=True)
        write_run(run, blobs_of)
        self.landing.mkdir()
        settings = CopySettings(str(azcopy), str(self.landing), ["sv=1&sig=c2lnbmF0dXJl"], log_dir=str(place / "log"))
        self.copier = BatchCopier(run, replace(settings, concurrency=concurrency))
        self.receipts = pathlib.Path(StatePaths(str(self.data)).receipts, f"{run.id}-r0000b00.0.jsonl")
        self.batch: BatchInfo = run.batches[0]
        self.wanted = StageRequest(
            destination=str(self.data),
            run=run.id,
            rank=0,
            host="gpu-1",
            urls=[endpoint],
            sas=settings.sas,
            azcopy=str(azcopy),
            cap_mbps=0,
            processes=1,
            concurrency=0,
            threads=1,
            decompress_engine="collection",
            landing_path=str(self.landing),
            landing_limit_gib=0,
            log_path=str(place / "log"),
            claim_expiry_s=240,
            stall_timeout_s=240,
            timeout_s=240,
            identity="none",
            identity_client_id="",
        )


@pytest.mark.slow
@pytest.mark.newest
def test_a_batch_whose_receipts_cannot_be_written_ends_its_azcopy(tmp_path: pathlib.Path, endpoint: str) -> None:
    """Else the next batch, or another attempt at this one, copies beside it into the same directory."""
    # The second file comes late enough for receipts to be written, the third never.
    copying = Copying(tmp_path, endpoint, ["a", "b"], pause_s=1.2)
    copying.receipts.mkdir(parents=True)

    began = time.monotonic()
    outcome = copying.copier(copying.batch, 0, HOOKS)
    assert time.monotonic() - began < 30, "AzCopy was waited for"
    assert outcome.error is not None
    assert outcome.error.kind == "io", outcome.error
    assert not pathlib.Path("/proc", copying.pid.read_text()).exists()
    assert list(copying.landing.iterdir()) == []


@pytest.mark.slow
@pytest.mark.newest
def test_a_receipt_stands_for_what_is_on_disk(
    tmp_path: pathlib.Path, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Power may fail at any moment: the file, and every directory that leads to it, come first."""
    copying = Copying(tmp_path, endpoint, ["a", "b", "deep/er/c"], pause_s=0.7)
    on_disk: set[int] = set()
    judged: list[str] = []
    early: list[pathlib.Path] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        if copying.receipts.exists() and os.path.samestat(os.fstat(descriptor), copying.receipts.stat()):
            for line in copying.receipts.read_text().splitlines():
                name = json.loads(line)[0]
                judged.append(name)
                needed = [copying.data / name, *(copying.data / name).parents]
                early.extend(
                    path for path in needed[: needed.index(copying.data) + 1] if path.stat().st_ino not in on_disk
                )
        fsync(descriptor)
        on_disk.add(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", note)
    outcome = copying.copier(copying.batch, 0, HOOKS)
    assert (outcome.error, outcome.failed) == (None, [])
    assert early == []
    assert set(judged) == {"a", "b", "deep/er/c"}
    assert copying.receipts.stat().st_ino in on_disk
    assert copying.receipts.parent.stat().st_ino in on_disk


@pytest.mark.slow
@pytest.mark.parametrize(
    ("concurrency", "seen"),
    [(0, ["default", "16", "8", "4"]), (7, ["7", "3", "1", "1"])],
    ids=["AzCopy's own", "asked for"],
)
def test_an_account_that_throttles_is_asked_again_for_half_as_much_at_a_time(
    tmp_path: pathlib.Path, endpoint: str, monkeypatch: pytest.MonkeyPatch, concurrency: int, seen: list[str]
) -> None:
    monkeypatch.setattr(batch, "available_cpus", lambda: 2)
    copying = Copying(tmp_path, endpoint, [], 0, concurrency)
    azcopy = tmp_path / "azcopy"
    azcopy.write_text(THROTTLED.format(python=sys.executable, seen=str(tmp_path / "seen")))
    for attempt in range(4):
        outcome = copying.copier(copying.batch, attempt, HOOKS)
        assert outcome.error is not None
        assert outcome.error.kind == "throttled"
        assert outcome.error.kind not in FATAL_KINDS | RANK_KINDS
    assert (tmp_path / "seen").read_text().split() == seen


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.parametrize("call", ["--version", "copy"])
def test_azcopy_that_panicked_once_is_tried_again(tmp_path: pathlib.Path, endpoint: str, call: str) -> None:
    copying = Copying(tmp_path, endpoint, ["a", "b", "deep/er/c"], pause_s=0)
    azcopy, real, mark = tmp_path / "azcopy", tmp_path / "real", tmp_path / "panicked"
    azcopy.rename(real)
    panic = f"[ -e {mark} ] || {{ touch {mark}; echo 'panic: runtime error: index out of range' >&2; exit 2; }}"
    azcopy.write_text(f'#!/bin/sh\n[ "$1" != {call} ] || {panic}\nexec {real} "$@"\n')
    azcopy.chmod(0o755)
    assert run_rank(copying.wanted)["files"] == 3
    assert mark.exists()


def test_what_a_killed_try_renamed_gets_its_receipt(tmp_path: pathlib.Path) -> None:
    """Else the receipt of an older version is all that is known of it, and a whole dataset is called outdated."""
    blob = Blob("a", 8, MD5, etag="new")
    manifest = Manifest([{"url": "http://127.0.0.1:9/account/data", "prefix": ""}], [blob])
    run, blobs_of = plan_run(manifest, range(1), destination=str(tmp_path), hosts=["gpu-1"], decompress=False)
    pathlib.Path(StatePaths(str(tmp_path)).runs).mkdir(parents=True)
    write_run(run, blobs_of)
    (tmp_path / "a").write_bytes(CONTENT)
    receipts = StatePaths(str(tmp_path)).receipts
    ReceiptLog(receipts, "all").append([Receipt("a", "old", "old", 8, 8, 1, 7, False)])
    copier = BatchCopier(run, CopySettings("/azcopy", str(tmp_path / "landing"), [""]))
    assert copier(run.batches[0], 1, HOOKS).error is None
    found = inspect_destination([blob], str(tmp_path), read_receipts(receipts), decompress=False)
    assert list(found.verified) == [0]
