# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a package carries is known without installing it. tests/scenarios/dnf does the same with rpm."""

from __future__ import annotations

import pathlib
import shutil

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import payload
from lab.package_repository.repository import File, Package, build

pytestmark = pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="needs dpkg-deb")


def test_all_but_the_packages_in_a_package_is_written(tmp_path: pathlib.Path) -> None:
    index = "Package: doca-ofed\n" * 10_000
    files = {
        "/etc/apt/sources.list.d/doca.list": File("deb file:/usr/share/doca-host/repo ./\n"),
        "/usr/share/doca-host/repo/Packages": File(index),
        "/usr/share/doca-host/repo/pool/doca-ofed_3.2.1_amd64.deb": File(bytes(3_000_000)),
    }
    file = build(Package("doca-host", "3.2.1-1", files=files), tmp_path)
    target = tmp_path / "tree"
    assert payload.extract(str(file), "dpkg", str(target))
    assert {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()} == {
        "etc/apt/sources.list.d/doca.list",
        "usr/share/doca-host/repo/Packages",
    }
    assert (target / "usr/share/doca-host/repo/Packages").read_text() == index


@pytest.mark.parametrize("manager", ["dpkg", "rpm"])
def test_what_is_no_package_is_told(tmp_path: pathlib.Path, manager: str) -> None:
    (tmp_path / "file").write_text("package")
    assert not payload.extract(str(tmp_path / "file"), manager, str(tmp_path / "tree"))


def test_a_package_that_was_cut_off_is_told(tmp_path: pathlib.Path) -> None:
    file = build(Package("x", "1", files={"/usr/share/x": File("x" * 100_000)}), tmp_path)
    file.write_bytes(file.read_bytes()[:50_000])
    assert not payload.extract(str(file), "dpkg", str(tmp_path / "tree"))
