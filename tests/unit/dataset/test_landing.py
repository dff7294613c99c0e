"""The landing path may be a whole disk that others use too: nothing is deleted there but batches of the staging."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.landing import (
    landing_directories,
    landing_directory,
    sweep_landing,
)

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
