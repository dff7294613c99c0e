# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What dpkg, rpm, apt and dnf say, as recorded, and what is made of it."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import packages
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Action, Installed

FIXTURES = pathlib.Path(__file__).parent / "fixtures"


def recorded(name: str) -> str:
    return (FIXTURES / name).read_text()


@pytest.mark.parametrize(
    ("version", "bare"),
    [
        ("580.95.05-0ubuntu1", "580.95.05"),
        ("3:580.95.05-1.el9", "580.95.05"),
        ("550.54-1", "550.54"),
        ("1:4.4.1-1", "4.4.1"),
    ],
)
def test_upstream_version(version: str, bare: str) -> None:
    assert packages.upstream(version) == bare


def test_recorded_packages() -> None:
    found = packages.parse_dpkg(recorded("dpkg-570.txt"))
    assert len(found) > 200
    assert found["libcuda1"] == Installed("libcuda1", "570.124.06-1", "installed", held=True)
    assert not found["libnvidia-ml1"].held
    assert not any(one.broken for one in found.values())


def test_recorded_versions() -> None:
    found = packages.parse_madison(recorded("madison.txt"))
    assert found["nvidia-open"] == ["580.126.16-1", "580.95.05-1", "570.124.06-1"]
    assert "no-such-package" not in found


def test_recorded_change_of_the_kernel_module_with_dnf() -> None:
    actions = packages.parse_dnf_simulation(recorded("dnf-flavor.txt"))
    assert [action.text() for action in actions] == [
        "install cuda-drivers 3:570.124.06-1.el9",
        "install kmod-nvidia-latest-dkms 3:570.124.06-1.el9",
        "remove kmod-nvidia-open-dkms 3:570.124.06-1.el9",
        "remove nvidia-open 3:570.124.06-1.el9",
    ]


def test_recorded_package_that_takes_the_place_of_another_with_dnf() -> None:
    actions = packages.parse_dnf_simulation(recorded("dnf-obsoletes.txt"))
    assert [action.text() for action in actions][:3] == [
        "install nvidia-fabricmanager 580.95.05-1",
        "remove nvidia-fabric-manager 570.124.06-1",
        "upgrade kmod-nvidia-open-dkms 3:580.95.05-1.el9",
    ]
    assert len(actions) == 10


def test_recorded_removal_of_what_came_along_with_dnf() -> None:
    actions = packages.parse_dnf_simulation(recorded("dnf-unused.txt"))
    assert {action.verb for action in actions} == {"remove"}
    assert "dkms" in {action.name for action in actions}


def test_recorded_packages_of_el() -> None:
    found = packages.parse_rpm(recorded("rpm-570-fabric.txt"))
    assert not any(one.broken for one in found.values())
    assert found["nvidia-open"].version == "3:570.124.06-1.el9"
    assert len(found["kernel-devel"].instances) == len(found["kernel-core"].instances) == 2


def test_recorded_nothing_to_do_with_dnf() -> None:
    assert packages.parse_dnf_simulation(recorded("dnf-nothing.txt")) == []


def test_a_name_that_dnf_folds() -> None:
    # The layout of dnf's dnf/cli/output.py for names that are wider than their column.
    text = "Upgrading:\n a-package-with-a-very-long-name\n        x86_64  1-1.el9  repo  10 k\n     replacing  old.x86_64 0-1\n\n"
    assert packages.parse_dnf_simulation(text) == [
        Action("upgrade", "a-package-with-a-very-long-name", "1-1.el9"),
        Action("remove", "old", "", "0-1"),
    ]


def test_locked_rpms() -> None:
    found = packages.parse_rpm("nvidia-open|3:580.95.05-1.el9|x86_64\nbash|0:5.1.8-9.el9|x86_64\n", {"nvidia-open"})
    assert [(one.version, one.held) for one in found.values()] == [
        ("3:580.95.05-1.el9", True),
        ("0:5.1.8-9.el9", False),
    ]


def test_recorded_kernels_beside_each_other() -> None:
    found = packages.parse_rpm(recorded("rpm-kernels.txt"))
    assert sorted(found["kernel-devel"].instances) == ["5.14.0-427.13.1.el9_4.x86_64", "5.14.0-503.14.1.el9_5.x86_64"]
    for kernel, missing in (
        ("5.14.0-427.13.1.el9_4.x86_64", False),
        ("5.14.0-503.14.1.el9_5.x86_64", False),
        ("5.14.0-503.14.1.el9_5.aarch64", True),
        ("5.14.0-570.12.1.el9_6.x86_64", True),
        ("", False),
    ):
        assert packages.Root("kernel-devel", instance=kernel).is_missing(found) is missing
    assert packages.Root("kernel-rt-devel").is_missing(found)


def test_recorded_packages_of_a_transaction_that_was_cut_off() -> None:
    found = packages.parse_rpm(recorded("rpm-cut-off.txt"))
    assert sorted(name for name, one in found.items() if one.broken) == [
        "kmod-nvidia-open-dkms",
        "libnvidia-ml",
        "nvidia-driver-cuda-libs",
        "nvidia-kmod-common",
        "nvidia-persistenced",
        "nvidia-settings",
    ]
    assert set(found["libnvidia-ml"].instances) == {"580.126.16-1.el9.x86_64", "580.95.05-1.el9.x86_64"}


def test_one_package_for_two_architectures_and_several_keys_are_whole() -> None:
    text = "glibc|0:2.34-1|x86_64\nglibc|0:2.34-1|i686\ngpg-pubkey|0:1-1|(none)\ngpg-pubkey|0:2-2|(none)\n"
    assert not any(one.broken for one in packages.parse_rpm(text).values())


@pytest.mark.parametrize(
    ("wanted", "version", "fits"),
    [
        (packages.Root("x"), "1-1", True),
        (packages.Root("x", "4.4"), "1:4.4-2", True),
        (packages.Root("x", "4.4"), "1:4.4.1-2", False),
        (packages.Root("x", "4.4", prefix=True), "1:4.4.1-2", True),
        (packages.Root("x", "4.4", prefix=True), "1:4.5.1-2", False),
    ],
)
def test_a_version_is_what_is_wanted(wanted: packages.Root, version: str, fits: bool) -> None:
    assert packages.matches(wanted, version) is fits


def test_packages_that_left_only_their_settings_are_gone_and_those_to_install_again_are_broken() -> None:
    out = "a|1|deinstall|config-files|ok\nb|1|install|installed|reinstreq\nc|1|hold|installed|ok\nnonsense\n"
    found = packages.parse_dpkg(out)
    assert list(found) == ["b", "c"]
    assert found["b"].broken
    assert found["c"].present


def test_what_is_installed_counts_and_what_it_provides() -> None:
    output = "ii |bash|\nrc |nginx|\nii |mawk|awk, posix-awk (= 1)\nun |gone|\nhi |held|\niU |halfway|\n"
    assert packages.installed_debs(output) == {"bash", "mawk", "awk", "posix-awk", "held"}
