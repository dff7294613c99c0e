# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Blobs whose names make paths that no file can have are refused by name before anything is copied."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.landing import landing_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.name_room import name_room
from ansible_collections.hpcai.gpu_cluster.plugins.modules import dataset_plan
from lab.list_server import in_process
from module_run import run_main


def plan(destination: str, name: str, **options: t.Any) -> dict[str, t.Any]:
    with in_process(["a", name]) as server:
        told = {"destination": destination, "sources": [{"url": server.url}], "hosts": ["gpu-1"], "identity": "none"}
        return run_main(dataset_plan.main, {**told, **options})


def deep(directory: pathlib.Path, size: int) -> str:
    """A path of so many bytes below a directory, which need not exist."""
    left = size - len(str(directory)) - 1
    parts = ["d" * 200] * (left // 201) + ["d" * (left % 201)] * bool(left % 201)
    return "/".join([str(directory), *parts])


@pytest.mark.parametrize("way", ["destination", "landing_path", "neither"])
@pytest.mark.parametrize("listed", [False, True])
def test_a_path_that_no_file_can_have_is_refused_before_anything_is_made(
    tmp_path: pathlib.Path, way: str, listed: bool
) -> None:
    name = "/".join(["x" * 200] * 5)
    paths = {"destination": str(tmp_path / "data"), "landing_path": str(tmp_path / "landing")}
    if way in paths:
        paths[way] = deep(tmp_path, 3200)
    result = plan(paths["destination"], name, landing_path=paths["landing_path"], return_manifest=listed)
    if way == "neither":
        assert result["missing_files"] == 2
        return
    assert (result["failed"], result["error_kind"], result["names"]) == (True, "bad_input", [name]), result
    assert "has 1004 bytes" in result["msg"]
    assert not os.listdir(tmp_path)


def test_a_name_that_fits_by_one_byte_has_a_path(tmp_path: pathlib.Path) -> None:
    """The kernel is asked: the longest name can be made where AzCopy makes it, one of a byte more cannot."""
    destination = deep(tmp_path, 3000)
    room = name_room(destination, "", ["gpu-1"])
    landing = f"{landing_of('', destination, 'gpu-1')}/20261120T120000-0a1b2c-r000000b0000/000"
    azcopy = f".azDownload-{'0' * 36}-"
    for name_bytes, fits in ((room.name_bytes, True), (room.name_bytes + 1, False)):
        directories = deep(pathlib.Path("d"), name_bytes - 101)
        path = f"{landing}/{directories}/{azcopy}{'x' * 100}"
        assert (len(path) <= 4095) is fits
        if fits:
            with pytest.raises(FileNotFoundError):
                os.lstat(path)
        else:
            with pytest.raises(OSError, match="too long"):
                os.lstat(path)


def test_components_are_those_of_the_file_system(tmp_path: pathlib.Path) -> None:
    assert name_room(str(tmp_path / "data"), "", ["gpu-1"]).component_bytes == os.statvfs(tmp_path).f_namemax == 255
