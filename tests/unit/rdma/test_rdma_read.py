# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a node's system, stack and modules are told from what it says."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import read, unfinished
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.model import Software, System

OFED = "24.10-3.2.5.0"


@pytest.mark.parametrize(
    ("text", "debian", "tag"),
    [
        ('ID=ubuntu\nVERSION_ID="24.04"\n', "bookworm/sid", "ubuntu24.04"),
        ('ID=debian\nVERSION_ID="12"\n', "12.9", "debian12.9"),
        ("ID=debian\nVERSION_ID=12\n", "trixie/sid", "debian12"),
        ('ID="rocky"\nVERSION_ID="9.4"\nID_LIKE="rhel centos fedora"\n', "", "rhel9.4"),
        ('ID="almalinux"\nVERSION_ID="8.10"\n', "", "rhel8.10"),
    ],
)
def test_distributions_are_spelled_as_in_file_names(text: str, debian: str, tag: str) -> None:
    assert read.os_tag(text, debian) == tag


@pytest.mark.parametrize("name", ["rhel", "almalinux", "rocky", "centos", "ol"])
def test_rebuilds_of_rhel_use_its_files(name: str) -> None:
    assert read.os_tag(f'ID="{name}"\nVERSION_ID="9.4"\n') == "rhel9.4"


@pytest.mark.parametrize(
    ("path", "vendor"),
    [
        ("/lib/modules/5.15.0-25-generic/updates/dkms/mlx5_core.ko", True),
        ("/lib/modules/5.14.0-427.el9.x86_64/extra/mlnx-ofa_kernel/drivers/infiniband/core/ib_core.ko", True),
        ("/lib/modules/5.14.0-427.el9.x86_64/weak-updates/mlnx-ofa_kernel/ib_core.ko", True),
        ("/lib/modules/5.15.0-25-generic/kernel/drivers/infiniband/core/ib_core.ko", False),
        ("/lib/modules/5.15.0-25-extra/kernel/drivers/infiniband/core/ib_core.ko", False),
    ],
)
def test_the_vendor_s_modules_lie_beside_those_of_the_kernel(path: str, vendor: bool) -> None:
    assert read.is_vendor_module(path) is vendor


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        (f"MLNX_OFED_LINUX-{OFED}:\n", f"MLNX_OFED_LINUX-{OFED}"),
        ("OFED-internal-25.10-2.4.1:\n", "OFED-internal-25.10-2.4.1"),
        ("sh: 1: ofed_info: not found\n", ""),
        ("", ""),
    ],
)
def test_ofed_info_is_read(answer: str, name: str) -> None:
    assert read.parse_ofed_info(answer) == name


class Answers:
    """Answers the queries of packages, and notes for which names."""

    def __init__(self, out: str) -> None:
        self.out, self.asked = out, list[list[str]]()

    def run_command(self, args: list[str], **_kwargs: t.Any) -> tuple[int, str, str]:
        self.asked.append(args)
        return 1, self.out, ""


@pytest.mark.parametrize(
    ("manager", "out"),
    [
        (
            "dpkg",
            "doca-host|3.2.1-044000|install|installed|ok\nrdma-core|44.0-2|deinstall|config-files|ok\n"
            "perftest|4.5+0.17-1|hold|installed|ok\ndoca-ofed|3.2.1|install|half-configured|ok\n",
        ),
        ("rpm", "doca-host|0:3.2.1-044000\npackage rdma-core is not installed\nperftest|2:4.5+0.17-1\n"),
    ],
)
def test_installed_packages_count_without_their_epochs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: t.Any, manager: str, out: str
) -> None:
    monkeypatch.setattr(read.shutil, "which", lambda _name: None)
    monkeypatch.setattr(unfinished, "PATH", tmp_path / "unfinished")
    host = Answers(out)
    found = read.read_software(host, System("x", "x86_64", manager, "5.15"))
    assert found == Software("", {"doca-host": "3.2.1-044000", "perftest": "4.5+0.17-1"})
    assert {"rdma-core", "doca-ofed", "mofed-provides-openmpi"} <= set(host.asked[0])
