# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Raw bytes that wait on a node: as many as there is room for, whatever a batch holds."""

from __future__ import annotations

import base64
import hashlib
import http.server
import pathlib
import sys
import threading
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob, Manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.batch import BatchCopier, CopySettings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.landing_room import LandingRoom
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.model import Hooks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import write_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.shares import plan_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import StatePaths
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

PATIENCE_S = 240
MD5 = base64.b64encode(hashlib.md5(bytes(8), usedforsecurity=False).digest()).decode()
GIB = 1 << 30


def room_of(limit: int = 0, free: int = 10**18) -> LandingRoom:
    return LandingRoom("/landing", limit, lambda _directory: free, look_s=0.02)


def files(*sizes: int) -> list[Blob]:
    return [Blob(f"f{number}", size) for number, size in enumerate(sizes)]


def never() -> bool:
    return False


@pytest.mark.parametrize(
    ("limit", "free", "sizes", "count"),
    [
        (0, 100, (50, 50), 2),
        (0, 99, (50, 50), 1),
        (60, 1000, (20, 20, 20, 1), 3),
        (60, 30, (20, 20), 1),
        (60, 1000, (0, 0, 60, 0, 1), 4),
        (60, 1000, (1,), 1),
    ],
)
def test_as_many_files_land_as_fit(limit: int, free: int, sizes: tuple[int, ...], count: int) -> None:
    assert room_of(limit, free).take(files(*sizes), never).count == count


@pytest.mark.parametrize(
    ("limit", "free", "kind", "remedy"),
    [(0, 5 * GIB - 1, "disk_full", "landing_path"), (4 * GIB, 9 * GIB, "bad_input", "5.00")],
)
def test_a_file_that_never_fits_is_named(limit: int, free: int, kind: str, remedy: str) -> None:
    with pytest.raises(ClusterError, match="'f0' has 5368709120 bytes") as caught:
        room_of(limit, free).take(files(5 * GIB, 1), never)
    assert caught.value.kind == kind
    assert remedy in caught.value.remedy


def taken_meanwhile(room: LandingRoom, blobs: list[Blob], stop: threading.Event) -> tuple[threading.Thread, list[int]]:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(room.take(blobs, stop.is_set).count), daemon=True)
    thread.start()
    return thread, found


def test_the_next_download_waits_for_room_and_goes_on_file_by_file() -> None:
    room = room_of(100)
    first = room.take(files(40, 40), never)
    thread, found = taken_meanwhile(room, files(30, 30), threading.Event())
    thread.join(0.3)
    assert found == []
    first.give(40)
    thread.join(PATIENCE_S)
    assert found == [2]


def test_what_a_portion_still_holds_is_given_back_at_its_end() -> None:
    room = room_of(100)
    with room.take(files(40, 60), never) as portion:
        portion.give(40)
    assert room.take(files(100), never).count == 1


def test_a_little_room_beside_others_is_not_worth_a_start() -> None:
    """AzCopy needs two seconds for the smallest job."""
    room = room_of(100)
    first = room.take(files(90), never)
    thread, found = taken_meanwhile(room, files(*[5] * 40), threading.Event())
    thread.join(0.3)
    assert found == []
    first.give(50)
    thread.join(PATIENCE_S)
    assert found == [12]


def test_who_waits_for_room_can_be_stopped() -> None:
    room = room_of(100)
    room.take(files(90), never)
    stop = threading.Event()
    thread, found = taken_meanwhile(room, files(20), stop)
    stop.set()
    thread.join(PATIENCE_S)
    assert found == [0]


#: Delivers what is listed, and notes how much was listed and how much lies there already.
AZCOPY = """#!{python}
import pathlib, sys
if sys.argv[1:] == ["--version"]:
    print("azcopy version 10.32.2")
    sys.exit()
there = pathlib.Path(sys.argv[3])
names = pathlib.Path(sys.argv[sys.argv.index("--list-of-files") + 1]).read_text().split()
with open({log!r}, "a") as log:
    log.write(f"{{len(names)}} {{len(list(there.iterdir()))}}\\n")
for name in names:
    (there / ("." + name)).write_bytes(bytes(8))
    (there / ("." + name)).rename(there / name)
"""


@pytest.fixture
def endpoint() -> t.Iterator[str]:
    """A server that answers, so that it can be reached."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/account/data"
        server.shutdown()


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.parametrize(("limit", "downloads"), [(0, ["5 0"]), (16, ["2 0", "2 0", "1 0"])])
def test_a_batch_that_does_not_fit_lands_in_portions(
    tmp_path: pathlib.Path, endpoint: str, limit: int, downloads: list[str]
) -> None:
    data, log, azcopy = tmp_path / "data", tmp_path / "log.txt", tmp_path / "azcopy"
    azcopy.write_text(AZCOPY.format(python=sys.executable, log=str(log)))
    azcopy.chmod(0o755)
    manifest = Manifest([{"url": endpoint, "prefix": ""}], [Blob(name, 8, MD5, etag="e") for name in "abcde"])
    run, blobs_of = plan_run(manifest, range(5), destination=str(data), hosts=["gpu-1"], decompress=False)
    pathlib.Path(StatePaths(str(data)).runs).mkdir(parents=True)
    write_run(run, blobs_of)
    settings = CopySettings(
        str(azcopy),
        str(tmp_path / "landing"),
        ["sv=1&sig=c2lnbmF0dXJl"],
        log_dir=str(tmp_path / "log"),
        landing_limit_bytes=limit,
    )
    copied: list[int] = []
    landed: list[int] = []
    outcome = BatchCopier(run, settings)(
        run.batches[0], 0, Hooks(lambda raw, _bytes: copied.append(raw), lambda: landed.append(len(copied)), never)
    )
    assert (outcome.error, outcome.failed) == (None, [])
    assert log.read_text().splitlines() == downloads
    assert copied == [8] * 5
    assert len(landed) == 1
    assert landed[0] >= (4 if limit else 0), "the network is given to the next batch while this one still needs it"
    assert sorted(path.name for path in data.glob("?")) == list("abcde")
