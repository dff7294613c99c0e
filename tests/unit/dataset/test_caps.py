# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bandwidth caps, from the limit of the storage account to what AzCopy was really started with, and to bytes per second."""

from __future__ import annotations

import json
import pathlib
import random
import time
import typing as t

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.hpcai.gpu_cluster.plugins.modules import dataset_stage, dataset_upload
from lab.blob.service import azcopy_path

pytestmark = [pytest.mark.blob, pytest.mark.slow]

#: What the tests of bytes per second send: at 8 Mb/s it takes 8 s, without a cap AzCopy is done in about two.
MANY_BYTES = 8_000_000
SLOW_MBPS = 8


class Recorder:
    """The real AzCopy behind a script that writes down what it is started with and then becomes AzCopy."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._calls = directory / "calls"
        self._calls.mkdir()
        self.path = directory / "azcopy"
        record = f"""{{ printf '%s\\0' "$@"; printf '%s' "$AZCOPY_CONCURRENCY_VALUE"; }} > '{self._calls}'/$$"""
        self.path.write_text(f"""#!/bin/sh\n{record}\nexec '{azcopy_path()}' "$@"\n""")
        self.path.chmod(0o755)

    def copies(self) -> list[dict[str, str]]:
        """The options of each process that copied: an option and what follows it; the environment as ``concurrency``."""
        calls = [path.read_text().split("\0") for path in self._calls.iterdir()]
        return [
            {**dict(zip(argv, argv[1:])), "concurrency": concurrency}
            for *argv, concurrency in calls
            if argv[0] == "copy" and "--dry-run" not in argv
        ]

    def values(self, option: str) -> list[str]:
        """What each process that copied got for an option, '' for nothing."""
        return sorted(copy.get(option, "") for copy in self.copies())


@pytest.fixture
def recorder(tmp_path: pathlib.Path) -> Recorder:
    directory = tmp_path / "recorder"
    directory.mkdir()
    return Recorder(directory)


@pytest.fixture
def run_module(capsys: pytest.CaptureFixture[str]) -> t.Callable[..., dict[str, t.Any]]:
    def run(main: t.Callable[[], None], options: dict[str, t.Any]) -> dict[str, t.Any]:
        with patch_module_args(options), pytest.raises(SystemExit):
            main()
        return t.cast("dict[str, t.Any]", json.loads(capsys.readouterr().out))

    return run


@pytest.fixture
def stage(staging, run_module, recorder: Recorder, tmp_path: pathlib.Path) -> t.Callable[..., dict[str, t.Any]]:
    """Plan with these options, and let the first node copy it all with the cap of the plan, as the role does."""

    def stage(**options: t.Any) -> dict[str, t.Any]:
        params = staging.params(**options)
        plan = staging.plan(**options)
        rank = run_module(
            dataset_stage.main,
            {
                "destination": params["destination"],
                "sources": params["sources"],
                "run": plan["run"],
                "rank": 0,
                "host": "gpu-1",
                "cap_mbps": plan["cap_mbps"],
                "azcopy": str(recorder.path),
                "log_path": str(tmp_path / "log"),
            },
        )
        return {"plan": plan, "rank": rank}

    return stage


@pytest.fixture
def upload(staging, run_module, recorder: Recorder, tmp_path: pathlib.Path) -> t.Callable[..., dict[str, t.Any]]:
    source = tmp_path / "checkpoint"
    source.mkdir()

    def upload(*sizes: int, **options: t.Any) -> dict[str, t.Any]:
        for number, size in enumerate(sizes):
            (source / f"shard-{number}.pt").write_bytes(random.Random(number).randbytes(size))
        where = {"source": str(source), "url": staging.service.url(staging.container), "sas": staging.service.sas()}
        log_path = str(tmp_path / "log")
        return run_module(dataset_upload.main, {**where, "azcopy": str(recorder.path), "log_path": log_path, **options})

    return upload


@pytest.mark.parametrize(
    ("egress_mbps", "cap", "block_mib"),
    [
        (600, "200", ""),
        (60, "20", "2"),  # a block of AzCopy's 8 MiB would never pass
        (6000, "", ""),  # more than three nodes of 1,000 Mb/s can take
        (0, "", ""),
    ],
)
def test_each_node_downloads_with_its_part_of_the_account(
    staging, stage, recorder: Recorder, egress_mbps: float, cap: str, block_mib: str
) -> None:
    staging.fill(3)
    result = stage(nic_mbps=1000, egress_mbps=egress_mbps)
    assert staging.files() == staging.content
    assert result["plan"]["cap_mbps"] == float(cap or 0)
    assert recorder.values("--cap-mbps") == [cap] * result["rank"]["batches"]
    assert recorder.values("--block-size-mb") == [block_mib] * result["rank"]["batches"]


def test_sources_of_one_batch_share_the_cap_by_their_bytes(staging, stage, recorder: Recorder) -> None:
    service, second = staging.service, f"{staging.container}b"
    service.create_container(second)
    service.put(staging.container, "large.bin", bytes(30_000))
    service.put(second, "small.bin", bytes(10_000))
    sources = [
        {"url": service.url(name), "prefix": "", "sas": service.sas("rl")} for name in (staging.container, second)
    ]
    stage(sources=sources, hosts=["gpu-1"], batch_s=60, nic_mbps=1000, egress_mbps=200)
    assert {name: len(data) for name, data in staging.files().items()} == {"large.bin": 30_000, "small.bin": 10_000}
    assert recorder.values("--cap-mbps") == ["150", "50"]


@pytest.mark.parametrize(
    ("ingress_mbps", "cap", "block_mib", "concurrency"),
    [(1000, "460", "", "10"), (50, "23", "2", "10"), (0, "", "", "")],
)
def test_each_process_uploads_with_its_part_of_the_account(
    staging, upload, recorder: Recorder, ingress_mbps: float, cap: str, block_mib: str, concurrency: str
) -> None:
    result = upload(1000, 2000, 3000, 4000, processes=2, ingress_mbps=ingress_mbps)
    assert (result["files_copied"], result["cap_mbps"]) == (4, float(cap or 0))
    assert recorder.values("--cap-mbps") == [cap] * 2
    assert recorder.values("--block-size-mb") == [block_mib] * 2
    assert recorder.values("concurrency") == [concurrency] * 2


def test_a_capped_download_is_no_faster_than_its_cap(staging, stage) -> None:
    for number in range(8):
        staging.put(f"part-{number}.bin", random.Random(number).randbytes(MANY_BYTES // 8), compress=False)
    rank = stage(hosts=["gpu-1"], batch_s=60, nic_mbps=1000, egress_mbps=SLOW_MBPS)["rank"]
    assert staging.files() == staging.content
    check_rate(rank["seconds"])


def test_a_capped_upload_is_no_faster_than_its_cap(staging, upload) -> None:
    began = time.monotonic()
    result = upload(*[MANY_BYTES // 8] * 8, processes=1, ingress_mbps=SLOW_MBPS)
    check_rate(time.monotonic() - began)
    assert result["bytes_copied"] == MANY_BYTES
    assert 0 < result["gbps"] <= 2 * SLOW_MBPS / 1000
    assert len(staging.service.get(staging.container, "shard-7.pt")) == MANY_BYTES // 8


def check_rate(seconds: float) -> None:
    """A busy machine only makes a copy slower; a fast start of AzCopy is allowed for."""
    assert seconds >= 0.5 * MANY_BYTES * 8 / (SLOW_MBPS * 1e6)
