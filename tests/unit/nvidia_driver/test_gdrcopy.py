# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GDRCopy: its packages, its module, which is built anew where the driver's took another one's place, and its device."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Installed
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import gdrcopy
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.packages import (
    gdrcopy_roots,
    is_gdrcopy,
)

KERNEL = "6.8.0-1031-azure"
REFUSED = "modprobe: ERROR: could not insert 'gdrdrv': Invalid argument\n"


class Host:
    """A kernel that takes gdrdrv only after dkms has built it, if dkms has it by this ``status``."""

    def __init__(self, status: str = "", *, fits: bool = False, has_dkms: bool = True) -> None:
        self.status, self.fits, self.has_dkms, self.asked = status, fits, has_dkms, list[str]()

    def get_bin_path(self, name: str) -> str | None:
        return f"/usr/sbin/{name}" if self.has_dkms else None

    def run_command(self, argv: list[str]) -> tuple[int, str, str]:
        self.asked.append(" ".join(argv))
        if argv[0] == "dkms":
            self.fits = self.fits or argv[1] == "install"
            return 0, self.status if argv[1] == "status" else "", ""
        return (0, "", "") if self.fits else (1, "", REFUSED)


@pytest.mark.parametrize(
    ("name", "belongs"),
    [
        *(
            (name, True)
            for name in ("gdrdrv-dkms", "libgdrapi", "gdrcopy", "gdrcopy-tests", "gdrcopy-kmod", "gdrcopy-devel")
        ),
        *((name, False) for name in ("ucx-gdrcopy", "libgdrapi-dev-site", "nvidia-open", "gdrcopyx")),
    ],
)
def test_packages_by_name(name: str, belongs: bool) -> None:
    assert is_gdrcopy(name) is belongs


def test_what_is_wanted_is_the_module_and_the_library_under_the_recipe_s_names() -> None:
    assert [(root.name, root.upstream, root.prefix) for root in gdrcopy_roots("dpkg", "2.5")] == [
        ("gdrdrv-dkms", "2.5", True),
        ("libgdrapi", "2.5", True),
    ]
    assert [root.name for root in gdrcopy_roots("rpm", "")] == ["gdrcopy-kmod", "gdrcopy"]


def test_packages_that_are_missing_or_of_another_version_are_named() -> None:
    have = {"gdrdrv-dkms": Installed("gdrdrv-dkms", "2.4.4-1")}
    found = gdrcopy.package_findings(have, gdrcopy_roots("dpkg", "2.5"))
    assert [one["message"] for one in found] == [
        "gdrdrv-dkms is at 2.4.4-1, wanted is 2.5.",
        "libgdrapi is not installed.",
    ]
    have = {name: Installed(name, "2.5.1-1") for name in ("gdrdrv-dkms", "libgdrapi")}
    for version in ("", "2.5", "2.5.1"):
        assert not list(gdrcopy.package_findings(have, gdrcopy_roots("dpkg", version)))


def test_a_module_that_fits_is_only_loaded() -> None:
    host = Host(fits=True)
    assert gdrcopy.load(host, KERNEL) == ("", False)
    assert host.asked == ["modprobe gdrdrv"]


@pytest.mark.parametrize(
    ("status", "version"),
    [
        ("nvidia/580.95.05, 6.8.0, x86_64: installed\ngdrdrv/2.5.1-1, 6.8.0, x86_64: installed\n", "2.5.1-1"),
        ("gdrdrv/2.5.1: added\n", "2.5.1"),
        ("gdrdrv, 2.3.1, 5.15.0-1025-azure, x86_64: installed\n", "2.3.1"),
    ],
)
def test_a_module_that_the_kernel_refuses_is_built_anew_for_the_driver(status: str, version: str) -> None:
    host = Host(status)
    assert gdrcopy.load(host, KERNEL) == ("", True)
    module = f"-m gdrdrv -v {version} -k {KERNEL} --force"
    assert host.asked[2:] == [f"dkms build {module}", f"dkms install {module}", "modprobe gdrdrv"]


@pytest.mark.parametrize("host", [Host("nvidia/580.95.05: added\n"), Host(has_dkms=False)])
def test_why_it_is_not_loaded_is_what_the_kernel_said(host: Host) -> None:
    assert gdrcopy.load(host, KERNEL) == (REFUSED.strip(), False)


def test_a_module_that_programs_cannot_reach_is_found(tmp_path: pathlib.Path) -> None:
    def said(host: Host) -> list[str]:
        return [one["message"] for one in gdrcopy.module_findings(tmp_path, host, KERNEL, managed=True)]

    assert said(Host()) == [f"GDRCopy's kernel module gdrdrv is not built for kernel {KERNEL}."]
    assert said(Host(fits=True)) == ["GDRCopy's kernel module gdrdrv is not loaded."]
    (tmp_path / "sys/module/gdrdrv").mkdir(parents=True)
    assert said(Host()) == ["gdrdrv is loaded, and /dev/gdrdrv is missing: no program reaches it."]
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/gdrdrv").touch()
    assert said(Host()) == []


@pytest.mark.parametrize(
    ("path", "service"),
    [
        ("usr/lib/systemd/system/gdrcopy.service", "gdrcopy.service"),
        ("etc/init.d/gdrcopy", "gdrcopy.service"),
        ("etc/init.d/gdrdrv", "gdrdrv.service"),
        # Newer packages leave the device to udev and modprobe.
        ("usr/lib/modules-load.d/gdrdrv.conf", ""),
    ],
)
def test_what_makes_the_device(tmp_path: pathlib.Path, path: str, service: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).touch()
    assert gdrcopy.service(tmp_path) == service


def test_where_the_role_installs_nothing_its_run_is_no_remedy(tmp_path: pathlib.Path) -> None:
    for managed in (True, False):
        (found,) = gdrcopy.module_findings(tmp_path, Host(), KERNEL, managed=managed)
        assert found["remedy"].startswith("Run the role; see ") is managed
        assert "`modprobe gdrdrv`" in found["remedy"]
