# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One batch, copied by a stand-in for AzCopy, where the shared file system fails beside it."""

from __future__ import annotations

import http.server
import pathlib
import sys
import threading
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob, Manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.batch import BatchCopier, CopySettings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import write_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.shares import plan_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import StatePaths
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.worker import Hooks

#: Delivers the first two files, the second one late enough for receipts to be written, and never the third.
AZCOPY = """#!{python}
import os, pathlib, sys, time
if sys.argv[1:] == ["--version"]:
    print("azcopy version 10.32.2")
    sys.exit()
pathlib.Path({pid!r}).write_text(str(os.getpid()))
for name in ("a", "b"):
    pathlib.Path(sys.argv[3], name).write_bytes(bytes(8))
    time.sleep(1.2)
time.sleep(240)
"""


@pytest.fixture
def endpoint() -> t.Iterator[str]:
    """A server that answers, so that it can be reached."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/account/data"
        server.shutdown()


def test_a_batch_whose_receipts_cannot_be_written_ends_its_azcopy(tmp_path: pathlib.Path, endpoint: str) -> None:
    """Else the next batch, or another attempt at this one, copies beside it into the same directory."""
    data, pid, azcopy = tmp_path / "data", tmp_path / "pid", tmp_path / "azcopy"
    azcopy.write_text(AZCOPY.format(python=sys.executable, pid=str(pid)))
    azcopy.chmod(0o755)
    manifest = Manifest([{"url": endpoint, "prefix": ""}], [Blob(name, 8, etag="e") for name in "abc"])
    run, blobs_of = plan_run(
        manifest, range(3), destination=str(data), hosts=["gpu-1"], decompress=False, bytes_per_second=1.0, batch_s=240
    )
    pathlib.Path(StatePaths(str(data)).runs).mkdir(parents=True)
    write_run(run, blobs_of)
    landing = tmp_path / "landing"
    landing.mkdir()
    settings = CopySettings(str(azcopy), str(landing), ["sv=1&sig=c2lnbmF0dXJl"], log_dir=str(tmp_path / "log"))
    copier = BatchCopier(run, settings, "gpu-1")
    pathlib.Path(StatePaths(str(data)).receipts, "gpu-1.jsonl").mkdir()  # where the receipts would go

    outcome = copier(run.batches[0], 0, Hooks(lambda *_sizes: None, lambda: None, lambda: False))
    assert outcome.error is not None
    assert outcome.error.kind == "io", outcome.error
    assert not pathlib.Path("/proc", pid.read_text()).exists()
    assert list(landing.iterdir()) == []
