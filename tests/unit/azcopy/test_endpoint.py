# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The endpoint goes away in the middle of a copy: for a moment, or for good; and a long silent listing."""

from __future__ import annotations

import pathlib
import signal
import threading
import time

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy import job, supervisor
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.run import CopyRequest, run_copy
from lab.blob.fast_server import Body, FastServer
from lab.blob.faults import noise
from lab.blob.service import azcopy_path, azurite

pytestmark = [pytest.mark.blob, pytest.mark.slow]

FILES = {f"f{number}.bin": noise(1_500_000, number) for number in range(16)}


@pytest.fixture(autouse=True)
def killed_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """AzCopy does not end for SIGTERM here, and SIGKILL comes in any case (test_supervisor.py): not ten seconds later."""
    for module in (job, supervisor):
        monkeypatch.setattr(module, "TERM_GRACE_S", 2.0)


def whole_files(folder: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("back_after_s", [2.0, None], ids=["restarted", "gone for good"])
def test_the_server_goes_away_while_azcopy_copies(tmp_path: pathlib.Path, back_after_s: float | None) -> None:
    with azurite(persistent=True) as server:
        server.create_container("data")
        for name, data in FILES.items():
            server.put("data", name, data)
        request = CopyRequest(
            azcopy_path(), server.url("data"), str(tmp_path), sas=server.sas("rl"), cap_mbps=24, concurrency=2
        )
        went: list[float] = []

        def interfere() -> None:
            time.sleep(2.0)
            went.append(time.monotonic())
            # Killed, Azurite forgets what it has not flushed yet: only an orderly stop can be followed by a start.
            server.stop(signal.SIGKILL if back_after_s is None else signal.SIGTERM)
            if back_after_s is not None:
                time.sleep(back_after_s)
                server.start()

        helper = threading.Thread(target=interfere)
        helper.start()
        outcome = run_copy(request, stall_timeout_s=240 if back_after_s else 6)
        helper.join()
        took = time.monotonic() - went[0]
    found = whole_files(tmp_path)
    assert all(FILES[name] == data for name, data in found.items()), sorted(found)
    if back_after_s is None:
        assert outcome.error is not None
        assert outcome.error.kind == "unreachable"
        assert len(found) < len(FILES)
        assert took < 300, "AzCopy alone tries for half an hour"
    else:
        assert outcome.error is None, outcome.error
        assert found == FILES


def test_a_long_silent_listing_is_no_stall_but_a_hanging_one_is(tmp_path: pathlib.Path) -> None:
    blobs = dict.fromkeys([f"t/f{number:05d}" for number in range(40_000)], Body(b"x"))
    # Eight silent pages of a second each, or one that never comes.
    for delay_s, stall_timeout_s, kind in ((1.0, 6, None), (60.0, 3, "stalled")):
        with FastServer(blobs, list_delay_s=delay_s) as server:
            request = CopyRequest(azcopy_path(), f"{server.url}/t", str(tmp_path), include_pattern="f0000*")
            outcome = run_copy(request, stall_timeout_s=stall_timeout_s)
        assert (outcome.error.kind if outcome.error else None) == kind
        if kind is None:
            assert outcome.completed == 10
            assert outcome.seconds > stall_timeout_s
