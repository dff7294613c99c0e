# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Symbolic links in an upload: none is left out in silence."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from lab.blob.service import Azurite

pytestmark = pytest.mark.blob

RunModule = t.Callable[..., dict[str, t.Any]]


@pytest.fixture
def checkpoint(tmp_path: pathlib.Path) -> pathlib.Path:
    """A checkpoint whose optimizer lies elsewhere."""
    saved = tmp_path / "saved"
    (saved / "sub").mkdir(parents=True)
    (saved / "meta.json").write_text("{}")
    (saved / "sub/rank-0.pt").write_text("weights")
    (tmp_path / "real").mkdir()
    (tmp_path / "real/a.pt").write_text("a")
    (saved / "optim").symlink_to(tmp_path / "real")
    (saved / "sub/last.pt").symlink_to("rank-0.pt")
    return saved


def test_links_of_an_upload_are_refused_followed_or_left_out_by_name(
    blobs: Azurite,
    container: str,
    run_module: RunModule,
    checkpoint: pathlib.Path,
    warned: list[str],
) -> None:
    options = {"source": str(checkpoint), "destination": blobs.url(container, "run")}
    refused = run_module(**options)
    assert (refused["failed"], refused["error_kind"]) == (True, "bad_input")
    assert "are symbolic links: optim, sub/last.pt." in refused["msg"]
    assert "`links`" in refused["remedy"]

    skipped = run_module(links="skip", **options)
    assert (skipped["changed"], skipped["files_copied"]) == (True, 2)
    assert warned == ["2 symbolic links are not uploaded: optim, sub/last.pt."]

    planned = run_module(check=True, links="follow", **options)
    followed = run_module(links="follow", **options)
    assert planned["files_copied"] == followed["files_copied"] == 2
    assert followed["diff"]["after"] == planned["diff"]["after"] == "optim/a.pt\nsub/last.pt\n"
    assert blobs.get(container, "run/optim/a.pt") == b"a"
    assert blobs.get(container, "run/sub/last.pt") == b"weights"
    assert not run_module(links="follow", **options)["changed"]


def test_only_links_that_an_upload_is_about_count(
    blobs: Azurite, container: str, run_module: RunModule, checkpoint: pathlib.Path
) -> None:
    options = {"source": str(checkpoint), "destination": blobs.url(container, "run")}
    (checkpoint / "optim").unlink()
    assert run_module(include_pattern="*.json", **options)["files_copied"] == 1
    assert "sub/last.pt" in run_module(include_pattern="*.pt", **options)["msg"]

    assert run_module(file_list=["sub/rank-0.pt"], **options)["files_copied"] == 1
    listed = {**options, "file_list": ["meta.json", "sub/last.pt"]}
    assert "1 files of file_list are symbolic links: sub/last.pt." in run_module(**listed)["msg"]
    assert run_module(links="skip", **listed)["files_total"] == 1
    assert run_module(links="follow", **listed)["files_copied"] == 1
    assert blobs.get(container, "run/sub/last.pt") == b"weights"
