# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What dataset_verify looks at: a part that exists, with as many threads as were asked for."""

from __future__ import annotations

import base64
import hashlib
import pathlib
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob, Manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.dataset import Dataset
from ansible_collections.hpcai.gpu_cluster.plugins.modules import dataset_verify
from module_run import run_main


@pytest.fixture
def destination(tmp_path: pathlib.Path) -> pathlib.Path:
    """A dataset of one file, of which two may look at a part each."""
    md5 = base64.b64encode(hashlib.md5(b"data").digest()).decode()
    manifest = Manifest([{"url": "https://a.blob.core.windows.net/c", "prefix": ""}], [Blob("x", 4, md5, "e")])
    Dataset(str(tmp_path / "data"), manifest, decompress=False).save()
    (tmp_path / "data/x").write_bytes(b"data")
    return tmp_path / "data"


def verify(destination: pathlib.Path, **options: t.Any) -> dict[str, t.Any]:
    return run_main(dataset_verify.main, {"destination": str(destination), **options})


@pytest.mark.parametrize(("rank", "world_size"), [(2, 2), (-1, 2), (0, 0)])
def test_a_part_that_does_not_exist_is_refused(destination: pathlib.Path, rank: int, world_size: int) -> None:
    result = verify(destination, rank=rank, world_size=world_size)
    assert (result["failed"], result["error_kind"], result["verdict"]) == (True, "bad_input", "incomplete")
    assert f"no rank {rank} among {world_size}" in result["msg"]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_part_that_exists_is_looked_at(destination: pathlib.Path, rank: int) -> None:
    result = verify(destination, rank=rank, world_size=2)
    assert (result["verdict"], result["verified_files"]) == ("ok", 1 - rank)


def test_no_number_of_threads_is_that_of_the_module(destination: pathlib.Path) -> None:
    assert verify(destination, threads=0)["verified_files"] == 1
    dataset = Dataset.open(str(destination))
    assert list(dataset.inspect(dataset.indexes, content=True, threads=0)[1].verified) == [0]


def test_a_number_of_threads_below_0_is_refused(destination: pathlib.Path) -> None:
    result = verify(destination, threads=-1)
    assert (result["error_kind"], "`threads` is -1" in result["msg"]) == ("bad_input", True)
