"""The landing path may be a whole disk that others use too: nothing is deleted there but batches of the staging."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob, Manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.landing import (
    landing_directories,
    landing_directory,
    sweep_landing,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import write_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.shares import plan_run
from ansible_collections.hpcai.gpu_cluster.plugins.modules import dataset_stage
from module_run import run_main

OLD_BATCH = "20260101T000000-abcdef-r0000b00"
THIS_RUN = "20261121T120000-012345"


def make_file(*parts: object) -> pathlib.Path:
    path = pathlib.Path(*map(str, parts))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("somebody needs this")
    return path


@pytest.mark.blob
@pytest.mark.slow
def test_nothing_of_others_on_the_landing_disk_is_lost_and_nothing_of_ours_stays(staging, tmp_path) -> None:
    disk = tmp_path / "nvme"
    elsewhere = landing_directory(str(disk), "/mnt/scratch/other", "gpu-1")
    theirs = [
        make_file(disk, "checkpoints/step-1200/weights"),
        make_file(disk, OLD_BATCH, "0/a"),
        make_file(elsewhere, OLD_BATCH, "0/a"),
    ]
    ours = landing_directory(str(disk), str(staging.destination / "data"), "gpu-1")
    make_file(ours, OLD_BATCH, "0/a")
    staging.fill(6)
    assert staging.stage(landing_path=str(disk))["verified"]["verdict"] == "ok"
    assert staging.files() == staging.content
    assert sorted(path for path in disk.rglob("*") if path.is_file()) == sorted(theirs)
    assert landing_directories(str(disk), str(staging.destination / "data")) == []


def test_only_batches_of_other_runs_are_swept(tmp_path) -> None:
    for name in (OLD_BATCH, f"{THIS_RUN}-r0001b02", "mine", "20260101T000000-abcdef", f"{OLD_BATCH}.kept"):
        make_file(tmp_path, name, "0/a")
    make_file(tmp_path, "20260101T000000-abcdef-r0000b01")  # a file
    sweep_landing(str(tmp_path), THIS_RUN)
    kept = {f"{THIS_RUN}-r0001b02", "mine", "20260101T000000-abcdef", f"{OLD_BATCH}.kept"}
    assert {path.name for path in tmp_path.iterdir()} == kept | {"20260101T000000-abcdef-r0000b01"}
    sweep_landing(str(tmp_path / "nowhere"), THIS_RUN)


def test_destinations_and_hosts_land_apart(tmp_path) -> None:
    places = {landing_directory(str(tmp_path), *pair) for pair in (("/d", "a"), ("/d", "b"), ("/e", "a"))}
    assert len(places) == 3
    for place in places:
        make_file(place, OLD_BATCH, "0/a")
    make_file(tmp_path, "dataset_staging-mine/a")
    found = landing_directories(str(tmp_path), "/d/")
    assert found == sorted(landing_directory(str(tmp_path), "/d", host) for host in "ab")


SOMEBODY = 65_533
StageOptions = dict[str, t.Any]


@pytest.fixture
def planned(tmp_path: pathlib.Path) -> StageOptions:
    """What dataset_stage is asked for, for a run of one file."""
    source = {"url": "https://account.blob.core.windows.net/data", "prefix": ""}
    run, blobs_of = plan_run(
        Manifest([source], [Blob("a", 8, etag="e")]),
        range(1),
        destination=str(tmp_path / "data"),
        hosts=["gpu-1"],
        decompress=False,
        bytes_per_second=1.0,
    )
    write_run(run, blobs_of)
    azcopy = tmp_path / "azcopy"
    azcopy.write_text("#!/bin/sh\necho azcopy version 10.32.2\n")
    azcopy.chmod(0o755)
    where = {"destination": run.destination, "run": run.id, "rank": 0, "host": "gpu-1"}
    return {**where, "sources": [source], "azcopy": str(azcopy), "log_path": str(tmp_path / "log")}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_nothing_lands_in_a_directory_of_somebody_else(planned: StageOptions, tmp_path: pathlib.Path) -> None:
    """Its name can be known beforehand, and all users may write to the landing path."""
    theirs = pathlib.Path(landing_directory(str(tmp_path / "nvme"), planned["destination"], "gpu-1"))
    theirs.mkdir(parents=True)
    os.chown(theirs, SOMEBODY, -1)
    result = run_main(dataset_stage.main, {**planned, "landing_path": str(tmp_path / "nvme")})
    assert (result["failed"], result["error_kind"]) == (True, "bad_input"), result["msg"]
    assert f"`{theirs}` belongs to user {SOMEBODY}" in result["msg"]


@pytest.mark.parametrize("landing_path", ["nvme", ""])
def test_nothing_lands_or_is_swept_behind_a_link(
    planned: StageOptions, tmp_path: pathlib.Path, landing_path: str
) -> None:
    precious = make_file(tmp_path / "theirs", OLD_BATCH, "0/a")
    if landing_path:
        link = pathlib.Path(landing_directory(str(tmp_path / "nvme"), planned["destination"], "gpu-1"))
    else:
        link = pathlib.Path(planned["destination"], ".staging/landing/gpu-1")
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "theirs")
    options = {"landing_path": str(tmp_path / landing_path)} if landing_path else {}
    result = run_main(dataset_stage.main, {**planned, **options})
    assert (result["failed"], result["error_kind"]) == (True, "bad_input"), result["msg"]
    assert f"`{link}` is a symbolic link" in result["msg"]
    assert precious.exists()
