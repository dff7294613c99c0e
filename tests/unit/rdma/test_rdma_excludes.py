# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Excludes in dnf's repository files: read by dnf's rules, and taken back to the byte."""

from __future__ import annotations

import configparser
import os
import pathlib
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.settings import MANAGED as RUNTIME
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.repository import Repository, repository_files
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.settings import MANAGED as DRIVER
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import excludes, files, settings
from hypothesis import given
from hypothesis import strategies as st
from time_limit import within

ROCKY = """# rocky.repo

[baseos]
name=Rocky Linux $releasever - BaseOS
mirrorlist=https://mirrors.rockylinux.org/mirrorlist?arch=$basearch&repo=BaseOS-$releasever
gpgcheck=1
enabled=1

[appstream]
name=Rocky Linux $releasever - AppStream
excludepkgs=kernel*,
  java-*
enabled=1
"""


def exclude(text: str) -> str:
    return excludes.exclude(text, files.WAS, files.ADDED)


def excluded(text: str) -> dict[str, set[str]]:
    """What each repository excludes."""
    read = configparser.ConfigParser(interpolation=None, strict=False)
    read.read_string(text)
    return {
        name: {word for key in ("exclude", "excludepkgs") for word in part.get(key, "").replace(",", " ").split()}
        for name, part in read.items()
        if name != "DEFAULT"
    }


def test_every_repository_excludes_what_the_stack_brings_beside_what_it_did() -> None:
    found = excluded(exclude(ROCKY))
    assert found == {"baseos": set(excludes.PATTERNS), "appstream": {*excludes.PATTERNS, "kernel*", "java-*"}}
    assert {"rdma-core*", "libibverbs*", "perftest", "mft"} <= set(excludes.PATTERNS)


def test_the_main_section_would_hide_the_vendor_s_own() -> None:
    text = "[main]\ngpgcheck=1\n"
    assert exclude(text) == text


@given(
    st.lists(
        st.sampled_from(
            ["[a]", "[b]", "[main]", "name=x", "excludepkgs=y", "exclude = z,rdma-core*", "# text", "", "enabled=1"]
        )
    )
)
def test_it_is_done_once_and_comes_back_to_the_byte(lines: list[str]) -> None:
    before = "".join(f"{line}\n" for line in lines)
    after = exclude(before)
    assert exclude(after) == after
    assert files.restore_keys(after) == before


class Node:
    """Has no label for files."""

    def selinux_default_context(self, _path: str) -> list[t.Any]:
        return []

    def set_context_if_different(self, _path: str, _context: list[t.Any], changed: bool) -> bool:
        return changed


@pytest.mark.parametrize("manager", ["rpm", "dpkg"])
def test_repositories_of_the_stack_stay_as_they_are(tmp_path: pathlib.Path, manager: str) -> None:
    directory = tmp_path / "etc/yum.repos.d"
    directory.mkdir(parents=True)
    for name in ("rocky", "doca", "doca-kernel-5.14.0", "mlnx_ofed"):
        (directory / f"{name}.repo").write_text(ROCKY)
    mine = settings.NodeSettings(t.cast(t.Any, Node()), files.Settings(manager=manager), root=tmp_path)
    mine.edit_repositories(exclude=True, check=True)
    assert (directory / "rocky.repo").read_text() == ROCKY
    mine.edit_repositories(exclude=True, check=False)
    changed = {path.stem for path in directory.iterdir() if path.read_text() != ROCKY}
    assert changed == ({"rocky"} if manager == "rpm" else set())
    mine.edit_repositories(exclude=False, check=False)
    assert {path.read_text() for path in directory.iterdir()} == {ROCKY}


def test_a_pipe_among_the_repositories_is_left_alone(tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "etc/yum.repos.d"
    directory.mkdir(parents=True)
    os.mkfifo(directory / "a.repo")
    (directory / "b.repo").write_text(ROCKY)
    mine = settings.NodeSettings(t.cast(t.Any, Node()), files.Settings(manager="rpm"), root=tmp_path)
    with within(10):
        mine.edit_repositories(exclude=True, check=False)
    assert (directory / "b.repo").read_text() == exclude(ROCKY)


@pytest.mark.parametrize(
    ("mode", "line"),
    [
        (0o600, "username=hpc\npassword=S3cret"),
        (0o644, "password = S3cret"),
        (0o644, "baseurl=https://hpc:S3cret@mirror/x"),
    ],
)
def test_a_repository_s_password_shows_in_no_diff(tmp_path: pathlib.Path, mode: int, line: str) -> None:
    place = tmp_path / "etc/yum.repos.d/site.repo"
    place.parent.mkdir(parents=True)
    place.write_text(f"[site]\n{line}\n")
    place.chmod(mode)
    mine = settings.NodeSettings(t.cast(t.Any, Node()), files.Settings(manager="rpm"), root=tmp_path)
    mine.edit_repositories(exclude=True, check=False)
    assert str(place) in str(mine.changes.result())
    assert "S3cret" not in str(mine.changes.result())
    assert line in place.read_text()
    assert place.stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("head", [DRIVER, RUNTIME])
def test_repositories_of_other_roles_stay_as_these_write_them_and_hide_the_flashing_tools_themselves(head: str) -> None:
    (written,) = repository_files(Repository("https://mirror/x", name="x"), "rpm", "", head)
    assert exclude(written["content"]) == written["content"]
    assert excluded(written["content"]) == {"x": {"mft", "mft-*"}}
    # A file that an earlier release edited offers again what was there.
    edited = f"{head}\n" + excludes.exclude(written["content"].partition("\n")[2], files.WAS, files.ADDED)
    assert exclude(edited) == edited
    assert files.restore_keys(edited) == written["content"]
