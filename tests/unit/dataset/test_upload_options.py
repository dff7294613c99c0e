# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compressed files never land within the data that is uploaded."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.hpcai.gpu_cluster.plugins.modules import dataset_upload
from module_run import run_main

ROOT = pathlib.Path(__file__).parents[3]


def upload(source: pathlib.Path, work_path: str, **options: t.Any) -> dict[str, t.Any]:
    # No URL of a container: what gets beyond the check of the paths ends there, before anything is sent.
    where = {"source": str(source), "work_path": work_path, "url": "https://account.blob.core.windows.net/"}
    log_path = str(source.parent / "log")
    return run_main(dataset_upload.main, {**where, "compress": True, "log_path": log_path, **options})


@pytest.fixture
def source(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.bin").write_bytes(b"data")
    (tmp_path / "link").symlink_to("set")
    return tmp_path / "set"


@pytest.mark.parametrize("work_path", ["set", "set/", "set/.gz", "set/deep/er", "other/../set/x", "link/x"])
def test_a_work_path_within_the_source_is_refused(source: pathlib.Path, work_path: str) -> None:
    result = upload(source, f"{source.parent}/{work_path}")
    assert (result["failed"], result["error_kind"]) == (True, "bad_input")
    assert "work_path" in result["remedy"]
    assert sorted(path.name for path in source.rglob("*")) == ["a.bin"]


def test_a_work_path_beside_the_source_is_used(source: pathlib.Path) -> None:
    result = upload(source, f"{source}.gz")
    assert "container" in result["msg"]
    assert [path.name for path in pathlib.Path(f"{source}.gz").iterdir()] == ["a.bin.gz"]


def test_without_compression_the_work_path_is_not_looked_at(source: pathlib.Path) -> None:
    assert "container" in upload(source, f"{source}/.gz", compress=False)["msg"]


@pytest.mark.parametrize("given", ["/data/set", "/data/set/", "/data/set//", "/data/set/.", "/data/x/../set"])
def test_the_role_puts_compressed_files_beside_the_source(given: str) -> None:
    (task,) = yaml.safe_load((ROOT / "roles/dataset_staging/tasks/send.yml").read_text())
    text = trust_as_template(task["hpcai.gpu_cluster.dataset_upload"]["work_path"])
    templar = Templar(loader=DataLoader(), variables={"dataset_staging_upload_source": given})
    assert templar.template(text) == "/data/set.gz"
