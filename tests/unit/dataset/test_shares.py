# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a run is cut into batches, whatever its size."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob, Manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.bandwidth import (
    expected_bytes_per_second,
    plan_download,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import Run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.shares import plan_run

GB = 10**9


def planned(files: int, size: int, ranks: int, **options: float) -> Run:
    manifest = Manifest(
        [{"url": "https://a.blob.core.windows.net/c", "prefix": ""}],
        [Blob(f"f{number:06d}", size) for number in range(files)],
    )
    hosts = [f"gpu-{rank}" for rank in range(ranks)]
    run, blobs_of = plan_run(manifest, range(files), destination="/d", hosts=hosts, decompress=False, **options)
    assert sum(len(blobs) for blobs in blobs_of.values()) == files
    return run


@pytest.mark.parametrize(
    ("files", "size", "ranks", "seconds_per_file"),
    [
        pytest.param(20_000, 5 * GB, 4, 5 * GB / 750e6 + 0.005, id="100 TB"),
        pytest.param(50_000, 1000, 1, 0.005, id="small files"),
    ],
)
def test_batches_take_about_as_long_as_wanted_however_much_there_is(
    files: int, size: int, ranks: int, seconds_per_file: float
) -> None:
    """What a dead rank leaves is copied again, and its raw bytes wait on one disk: both are bounded by a batch."""
    run = planned(files, size, ranks)
    longest_s = max(batch.files for batch in run.batches) * seconds_per_file
    shortest_s = min(batch.files for batch in run.batches) * seconds_per_file
    assert 45 <= shortest_s <= longest_s <= 90


def test_a_slow_node_gets_smaller_batches() -> None:
    run = planned(1000, GB, 4, bytes_per_second=25e6)
    assert max(batch.bytes for batch in run.batches) == 2 * GB  # 40 s each: 60 s and a bit are one and a half


@pytest.mark.slow
@pytest.mark.newest
def test_many_ranks_get_few_batches_each() -> None:
    """The directory of claims is read by whoever has nothing to do."""
    run = planned(25_000, 10 * GB, 1000, bytes_per_second=10e6)
    assert len(run.batches) == 20_000


@pytest.mark.parametrize(
    ("limits", "bytes_per_second"),
    [
        ({}, 750e6),
        ({"nic_mbps": 1000}, 125e6),
        ({"egress_mbps": 200_000}, 25e6),
        ({"nic_mbps": 1000, "egress_mbps": 200_000}, 25e6),
        ({"egress_mbps": 50_000_000}, 750e6),
    ],
)
def test_a_node_is_expected_to_take_what_its_cap_lets_it(limits: dict[str, t.Any], bytes_per_second: float) -> None:
    plan = plan_download(nodes=1000, **limits)
    assert expected_bytes_per_second(plan, 1000) == pytest.approx(bytes_per_second)
