# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Symbolic links below the destination of a download, which others may own: nothing is written through them."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.argv import CopyRequest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.compare import make_plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.copy import copy
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.model import Settings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from lab.blob.service import Azurite, azcopy_path

pytestmark = pytest.mark.blob

RunModule = t.Callable[..., dict[str, t.Any]]
WAYS: list[dict[str, t.Any]] = [{}, {"decompress": True}, {"decompress": True, "decompress_engine": "azcopy"}]


@pytest.fixture
def elsewhere(tmp_path: pathlib.Path) -> pathlib.Path:
    """A directory that only root may write to, and that a user's link below the destination leads to."""
    (tmp_path / "out/users").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    return tmp_path / "elsewhere"


@pytest.mark.parametrize("way", WAYS, ids=["as it is", "collection", "azcopy"])
def test_a_link_below_the_destination_is_refused_before_anything_is_copied(
    blobs: Azurite,
    container: str,
    run_module: RunModule,
    tmp_path: pathlib.Path,
    elsewhere: pathlib.Path,
    way: dict[str, t.Any],
) -> None:
    for name in ("a", "users/b", "users/deep/c"):
        blobs.put(container, name, b"data")
    (tmp_path / "out/users/deep").symlink_to(elsewhere)
    for check in (True, False):
        result = run_module(check=check, source=blobs.url(container), destination=str(tmp_path / "out"), **way)
        assert (result["failed"], result["error_kind"]) == (True, "bad_input")
        assert f"`{tmp_path}/out/users/deep` is a symbolic link" in result["msg"]
    assert not list(elsewhere.iterdir())
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["users"]


@pytest.mark.parametrize("way", WAYS, ids=["as it is", "collection", "azcopy"])
def test_a_link_that_comes_after_the_plan_is_not_written_through(
    blobs: Azurite, container: str, tmp_path: pathlib.Path, elsewhere: pathlib.Path, way: dict[str, t.Any]
) -> None:
    for name in ("a", "users/b", "users/deep/c"):
        blobs.put(container, name, b"data")
    request = CopyRequest(azcopy_path(), blobs.url(container), str(tmp_path / "out"), sas=blobs.sas("rl"))
    settings = Settings(**way)
    plan = make_plan(request, settings)
    (tmp_path / "out/users/deep").symlink_to(elsewhere)
    with pytest.raises(ClusterError, match="users/deep` is a symbolic link") as caught:
        copy(request, settings, plan)
    assert caught.value.kind == "bad_input"
    assert not list(elsewhere.iterdir())
    assert not list((tmp_path / "out").glob("*.landing"))


def test_a_link_at_a_final_name_is_replaced_and_its_target_stays(
    blobs: Azurite, container: str, run_module: RunModule, tmp_path: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    blobs.put(container, "users/b", b"data")
    (elsewhere / "b").write_text("theirs")
    (tmp_path / "out/users/b").symlink_to(elsewhere / "b")
    options = {"source": blobs.url(container), "destination": str(tmp_path / "out")}
    assert "users/b" in run_module(overwrite=False, **options)["msg"]
    assert run_module(**options)["changed"]
    assert not (tmp_path / "out/users/b").is_symlink()
    assert ((tmp_path / "out/users/b").read_text(), (elsewhere / "b").read_text()) == ("data", "theirs")


def test_only_what_is_gone_at_the_source_is_named(blobs: Azurite, container: str, tmp_path: pathlib.Path) -> None:
    """Whole files have left the landing place when AzCopy says that names of its list do not exist."""
    names = [f"f{number}" for number in range(5)]
    for name in names:
        blobs.put(container, name, b"data")
    request = CopyRequest(
        azcopy_path(), blobs.url(container), str(tmp_path / "out"), sas=blobs.sas("rl"), file_list=names
    )
    for settings in (Settings(), Settings(decompress=True)):
        there = dataclasses.replace(request, destination=f"{request.destination}{settings.decompress}")
        plan = make_plan(there, settings)
        blobs.delete(container, "f3")
        with pytest.raises(ClusterError, match="1 of 5 listed files do not exist at the source: f3") as caught:
            copy(there, settings, plan)
        assert (caught.value.kind, caught.value.details["missing_files"]) == ("not_found", ["f3"])
        found = sorted(path.name for path in pathlib.Path(there.destination).iterdir() if path.name[0] != ".")
        assert found == ["f0", "f1", "f2", "f4"]
        blobs.put(container, "f3", b"data")
