# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an upload can compare with a SAS that allows little, and what it says where it cannot."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from lab.blob.service import Azurite

pytestmark = pytest.mark.blob

RunModule = t.Callable[..., dict[str, t.Any]]


@pytest.fixture
def saved(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "saved/sub").mkdir(parents=True)
    for name in ("a", "ab", "sub/c"):
        (tmp_path / "saved" / name).write_text(f"content of {name}")
    return tmp_path / "saved"


@pytest.mark.parametrize("path", ["", "run 7/900"])
def test_create_write_and_list_are_enough(
    blobs: Azurite,
    container: str,
    run_module: RunModule,
    saved: pathlib.Path,
    path: str,
    warned: list[str],
) -> None:
    options = {"source": str(saved), "destination": blobs.url(container, path), "sas": blobs.sas("cwl")}
    first = run_module(**options)
    assert (first.get("changed"), first.get("files_copied")) == (True, 3), first
    for check in (True, False):
        again = run_module(check=check, **options)
        assert (again.get("changed"), again.get("files_copied")) == (False, 0), again
    assert not warned
    (saved / "ab").write_text("CONTENT of ab")
    assert run_module(**options)["diff"]["after"] == "ab\n"


@pytest.mark.parametrize("path", ["", "run", "run/a.pt"])
def test_one_file_is_compared_without_read_permission(
    blobs: Azurite, container: str, run_module: RunModule, saved: pathlib.Path, path: str
) -> None:
    blobs.put(container, "run/a.pt.old", b"another")
    options = {"source": str(saved / "a"), "destination": blobs.url(container, path), "sas": blobs.sas("cwl")}
    assert run_module(**options)["changed"]
    assert not run_module(**options)["changed"]
    (saved / "a").write_text("other")
    assert run_module(**options)["changed"]


def test_without_list_it_says_that_nothing_can_be_compared(
    blobs: Azurite, container: str, run_module: RunModule, saved: pathlib.Path, warned: list[str]
) -> None:
    options = {"source": str(saved), "destination": blobs.url(container, "run"), "sas": blobs.sas("cw")}
    for _time in range(2):
        result = run_module(**options)
        assert (result["changed"], result["files_copied"]) == (True, 3)
    assert ["may not list the destination. Every file is uploaded again" in text for text in warned] == [True, True]
    (saved / "a").write_text("changed")
    refused = run_module(overwrite=False, **options)
    assert (refused["failed"], refused["error_kind"]) == (True, "auth_failed")
    assert blobs.get(container, "run/a") == b"content of a"


def test_blobs_without_md5_are_named(
    blobs: Azurite, container: str, run_module: RunModule, saved: pathlib.Path, warned: list[str]
) -> None:
    """As other programs upload large ones: their length is all that can be compared."""
    blobs.put_in_blocks(container, "a", b"content of a")
    blobs.put_in_blocks(container, "ab", b"shorter")
    options = {"source": str(saved), "destination": blobs.url(container)}
    result = run_module(**options)
    assert result["files_copied"] == 3
    assert ["1 blobs at the destination have no MD5" in text for text in warned] == [True]
    assert not run_module(**options)["changed"]
    assert len(warned) == 1
