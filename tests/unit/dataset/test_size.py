# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plan of many names takes of the first node's memory. Ten million themselves: benchmarks/staging/s10_size.py."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.modules import dataset_plan
from lab.list_server import Entry, dataset, in_process
from module_run import run_main

#: Plans twice in one process, so that what a listing takes whatever its length is there before it counts.
PLAN = """
import json, re, sys
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.prepare import prepare
from ansible_collections.hpcai.gpu_cluster.plugins.modules.dataset_plan import read_options
for line in sys.stdin:
    planned = prepare(read_options(json.loads(line)), write=True)
    peak = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read()).group(1)) * 1024
    print(json.dumps([planned["missing_files"], peak]), flush=True)
"""
#: Both are many enough for every thread of the listing to hold a page.
FEW, MANY = 80_000, 240_000


def options(url: str, destination: pathlib.Path) -> dict[str, t.Any]:
    return {
        **dict.fromkeys(("rank", "manifest", "mount_point", "landing_path")),
        **dict.fromkeys(("content", "allow_overwrite"), False),
        **dict.fromkeys(("nic_mbps", "egress_mbps"), 0),
        "decompress": True,
        "destination": str(destination),
        "sources": [{"url": url, "prefix": "train", "sas": "sv=1&sig=any"}],
        "hosts": [f"gpu-{rank}" for rank in range(100)],
        "batch_s": 60,
        "threads": 4,
        "identity": "none",
        "identity_client_id": "",
    }


@pytest.mark.slow
def test_a_name_takes_less_than_400_bytes_from_the_listing_to_the_batches(tmp_path: pathlib.Path) -> None:
    """As objects of their own they took 700 and more.

    From 240,000 to 720,000 each takes 150 more; so few as here still share what threads and sorting take.
    """
    servers = [in_process(dataset(names, directories=names // 10_000), most_bytes=1000) for names in (FEW, MANY)]
    with servers[0] as few, servers[1] as many:
        told = [json.dumps(options(server.url, tmp_path / str(number))) for number, server in enumerate((few, many))]
        done = subprocess.run(
            [sys.executable, "-c", PLAN],
            input="\n".join(told),
            # One arena: what else threads leave unused in theirs depends on which of them came first.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "MALLOC_ARENA_MAX": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [files for files, _peak in results] == [FEW, MANY]
    assert (results[1][1] - results[0][1]) / (MANY - FEW) < 400, results


@pytest.mark.parametrize("names", [["a.bin", "b.tfrecord.gz"], ["a.bin", "b.bin"]], ids=["gzip", "plain"])
@pytest.mark.parametrize("decompress", [False, True])
def test_inflated_bytes_count_where_the_room_is_judged(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, names: list[str], decompress: bool
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=2500))
    with in_process([Entry(name, 1000) for name in names]) as server:
        told = {"destination": str(tmp_path / "data"), "sources": [{"url": server.url}], "hosts": ["gpu-1"]}
        more = {"decompress": decompress, "identity": "none", "_ansible_check_mode": True}
        result = run_main(dataset_plan.main, {**told, **more})
    inflates = decompress and "b.tfrecord.gz" in names
    assert (result["missing_bytes"], result["needed_bytes"]) == (2000, 3000 if inflates else 2000)
    assert ["3000" in note for note in result["notes"]] == [True] * inflates


def test_the_memory_that_receipts_take_is_not_promised_to_names(tmp_path: pathlib.Path) -> None:
    receipts = tmp_path / ".staging/receipts"
    receipts.mkdir(parents=True)
    with in_process(dataset(10)) as server:
        told = {
            "destination": str(tmp_path),
            "sources": [{"url": server.url}],
            "hosts": ["gpu-1"],
            "identity": "none",
        }
        assert run_main(dataset_plan.main, told)["missing_files"] == 10
        with open(receipts / "all.jsonl", "wb") as stream:
            stream.truncate(10**12)  # more than any node has memory for, and nothing on the disk
        refused = run_main(dataset_plan.main, told)
    assert "more than 0 names" in refused["msg"]
