# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages belong to the driver, which are wanted, and how a node's differ."""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.distribution import Distribution
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import (
    Installed,
    Root,
    parse_dpkg,
    parse_rpm,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import packages
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.settings import cuda_directory
from hypothesis import given
from hypothesis import strategies as st

RECORDED = pathlib.Path(__file__).parents[1] / "host/fixtures"
DEBIAN = Distribution("debian", "12", "Debian 12")
UBUNTU = Distribution("ubuntu", "24.04", "Ubuntu 24.04")
ROCKY = Distribution("rocky", "9.5", "Rocky 9.5")
STACK = ("nvidia-open", "nvidia-kernel-open-dkms", "libcuda1", "libnvidia-ml1", "nvidia-fabricmanager")


def node(version: str, *names: str, **others: str) -> dict[str, Installed]:
    found = {name: Installed(name, f"{version}-1") for name in names}
    return {
        **found,
        **{name.replace("_", "-"): Installed(name.replace("_", "-"), have) for name, have in others.items()},
    }


@pytest.mark.parametrize(
    ("name", "version", "belongs"),
    [
        ("nvidia-driver-580-open", "580.95.05-0ubuntu1", True),
        ("libnvidia-compute-580", "580.95.05-0ubuntu1", True),
        ("kmod-nvidia-open-dkms", "3:580.95.05-1.el9", True),
        ("nvidia-firmware-580-580.95.05", "580.95.05-0ubuntu1", True),
        ("libcuda1", "535.261.03-1", True),
        ("nvidia-fabricmanager-570", "570.124.06-1", True),
        ("nvidia-container-toolkit", "1.18.0-1", False),
        ("libnvidia-container1", "1.18.0-1", False),
        ("libnvidia-egl-wayland1", "1.1.10-1", False),
        ("nvidia-kernel-common", "20220217+3~deb12u1", False),
        ("nvidia-persistenced", "535.171.04-1~deb12u1", False),
        ("nvidia-settings", "535.216.01-1~deb12u1", False),
        ("nvidia-driver-pinning-580.95.05", "580.95.05-1", False),
        ("cuda-toolkit-12-9", "12.9.1-1", False),
        ("linux-image-amd64", "6.1.176-1", False),
    ],
)
def test_what_must_have_the_drivers_version(name: str, version: str, belongs: bool) -> None:
    assert packages.in_stack(name, version) is belongs


@pytest.mark.parametrize(
    ("name", "flavor"),
    [
        *(("nvidia-dkms-580-open", "open"), ("nvidia-dkms-open", "open"), ("nvidia-dkms-580", "proprietary")),
        *(
            ("nvidia-kernel-open-dkms", "open"),
            ("nvidia-open-kernel-dkms", "open"),
            ("nvidia-kernel-dkms", "proprietary"),
        ),
        *(("kmod-nvidia-open-dkms", "open"), ("kmod-nvidia-latest-dkms", "proprietary"), ("nvidia-open", "")),
    ],
)
def test_flavor_by_package(name: str, flavor: str) -> None:
    assert packages.flavor_of([name, "libcuda1"]) == flavor


@pytest.mark.parametrize("version", ["", "580", "580.95.05-1", "latest", "3:580.95.05"])
def test_only_whole_versions_are_accepted(version: str) -> None:
    with pytest.raises(ClusterError, match="`version`"):
        packages.check_version(version)


OS_RELEASES = {
    'ID=ubuntu\nVERSION_ID="22.04"\n': ("ubuntu2204", "dpkg"),
    'ID=ubuntu\nVERSION_ID="24.04"\n': ("ubuntu2404", "dpkg"),
    'ID=debian\nVERSION_ID="12"\n': ("debian12", "dpkg"),
    'ID="rhel"\nVERSION_ID="8.10"\n': ("rhel8", "rpm"),
    'ID="almalinux"\nVERSION_ID="9.8"\n': ("rhel9", "rpm"),
    'ID="rocky"\nVERSION_ID="9.5"\n': ("rhel9", "rpm"),
    'ID="rocky"\nVERSION_ID="10.0"\n': ("rhel10", "rpm"),
}


@pytest.mark.parametrize(("text", "expected"), OS_RELEASES.items())
def test_supported_distributions(text: str, expected: tuple[str, str]) -> None:
    dist = packages.supported_distribution(text)
    assert (cuda_directory(dist), dist.manager) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ID=fedora\nVERSION_ID=42\n",
        'ID=ubuntu\nVERSION_ID="20.04"\n',
        "ID=debian\nVERSION_ID=11\n",
        # Newer than what is known.
        'ID=debian\nVERSION_ID="13"\nPRETTY_NAME="Debian GNU/Linux 13 (trixie)"\n',
        'ID="rocky"\nVERSION_ID="11.0"\nPRETTY_NAME="Rocky Linux 11.0"\n',
        'ID=azurelinux\nVERSION_ID="3.0"\nPRETTY_NAME="Microsoft Azure Linux 3.0"\n',
        'ID="sles"\nVERSION_ID="15.6"\n',
    ],
)
def test_other_distributions_are_refused(text: str) -> None:
    with pytest.raises(ClusterError, match="does not install drivers on") as caught:
        packages.supported_distribution(text)
    assert "preinstalled" in caught.value.remedy
    assert (re.findall('PRETTY_NAME="(.*)"', text) or [""])[0] in caught.value.message


def roots(dist: Distribution, **parts: t.Any) -> list[tuple[str, str]]:
    defaults: dict[str, t.Any] = {
        "source": "cuda_repo",
        "flavor": "open",
        "version": "580.95.05",
        "fabric_manager": False,
        "nscq": False,
        "nvlink5": False,
        "kernels": (),
        "headers": True,
        "dcgm_cudas": (),
        "dcgm_version": "",
        "cuda": "",
        "override": (),
    }
    return [(root.name, root.upstream) for root in packages.wanted_roots(dist, **{**defaults, **parts})]


def test_what_is_wanted_from_nvidias_repository() -> None:
    assert roots(UBUNTU) == [("nvidia-open", "580.95.05")]
    assert roots(UBUNTU, flavor="proprietary") == [("cuda-drivers", "580.95.05")]
    everything = roots(UBUNTU, fabric_manager=True, kernels=("6.8.0-1",), dcgm_cudas=(13,), cuda="13.0.2")
    assert everything[1:] == [
        ("nvidia-fabricmanager", "580.95.05"),
        ("linux-headers-6.8.0-1", ""),
        ("datacenter-gpu-manager-4-proprietary", ""),
        ("datacenter-gpu-manager-4-cuda13", ""),
        ("datacenter-gpu-manager-4-proprietary-cuda13", ""),
        ("cuda-toolkit-13-0", ""),
    ]


def test_volta_gets_both_builds_of_dcgm_at_one_version() -> None:
    found = roots(UBUNTU, flavor="proprietary", dcgm_cudas=(12, 13), dcgm_version="4.4")
    assert [(name, version) for name, version in found if name.startswith("datacenter")] == [
        (f"datacenter-gpu-manager-4-{part}", "4.4")
        for part in ("proprietary", "cuda12", "proprietary-cuda12", "cuda13", "proprietary-cuda13")
    ]


@pytest.mark.parametrize(("version", "library"), [("580.95.05", "libnvsdm"), ("570.124.06", "libnvsdm-570")])
@pytest.mark.parametrize("dist", [UBUNTU, ROCKY], ids=["apt", "dnf"])
def test_nvswitches_behind_connectx_need_a_subnet_manager(dist: Distribution, version: str, library: str) -> None:
    found = roots(dist, version=version, fabric_manager=True, nvlink5=True)
    assert found[-3:] == [("nvlsm", ""), (library, version), ("infiniband-diags", "")]
    # What the switches' telemetry needs has the driver's version, and is held with it.
    assert packages.in_stack(library, f"{version}-1")


def test_what_is_wanted_from_the_distribution() -> None:
    names = [name for name, _version in roots(UBUNTU, source="distro", fabric_manager=True)]
    assert names == ["nvidia-headless-580-server-open", "nvidia-utils-580-server", "nvidia-fabricmanager-580"]
    assert ("nvidia-kernel-dkms", "535.261.03") in roots(
        DEBIAN, source="distro", flavor="proprietary", version="535.261.03"
    )
    with pytest.raises(ClusterError, match="cuda_repo or runfile"):
        roots(ROCKY, source="distro")
    with pytest.raises(ClusterError, match="NVSwitches"):
        roots(DEBIAN, source="distro", fabric_manager=True)


@pytest.mark.parametrize(
    ("dist", "version", "name"),
    [
        (UBUNTU, "570.124.06", "nvidia-fabricmanager-570"),
        (UBUNTU, "580.95.05", "nvidia-fabricmanager"),
        (ROCKY, "570.124.06", "nvidia-fabric-manager"),
        (ROCKY, "590.48.01", "nvidia-fabricmanager"),
    ],
)
def test_fabric_manager_has_the_name_of_its_branch(dist: Distribution, version: str, name: str) -> None:
    assert (name, version) in roots(dist, version=version, fabric_manager=True)


@pytest.mark.parametrize(
    ("dist", "source", "version", "name"),
    [
        (UBUNTU, "cuda_repo", "570.124.06", "libnvidia-nscq-570"),
        (UBUNTU, "cuda_repo", "580.95.05", "libnvidia-nscq"),
        (UBUNTU, "distro", "580.95.05", "libnvidia-nscq-580"),
        # NVIDIA's installer brings neither: they come from the repository.
        (UBUNTU, "runfile", "580.95.05", "libnvidia-nscq"),
        (ROCKY, "cuda_repo", "570.124.06", "libnvidia-nscq-570"),
        (ROCKY, "cuda_repo", "590.48.01", "libnvidia-nscq"),
    ],
)
def test_the_library_for_nvswitches_has_the_name_of_its_branch_and_the_driver_s_version(
    dist: Distribution, source: str, version: str, name: str
) -> None:
    assert (name, version) in roots(dist, source=source, version=version, fabric_manager=True, nscq=True)
    assert name not in dict(roots(dist, source=source, version=version, fabric_manager=True))
    assert packages.is_nscq(name)
    # So an upgrade moves it, and it is held.
    assert packages.in_stack(name, f"{version}-1")


@pytest.mark.parametrize(
    ("kernel", "label"),
    [
        ("5.14.0-503.14.1.el9_5.x86_64", "kernel-devel-5.14.0-503.14.1.el9_5.x86_64"),
        ("5.14.0-503.14.1.el9_5.aarch64+64k", "kernel-64k-devel-5.14.0-503.14.1.el9_5.aarch64"),
        ("5.14.0-503.14.1.el9_5.x86_64+rt-debug", "kernel-rt-debug-devel-5.14.0-503.14.1.el9_5.x86_64"),
        ("4.18.0-553.rt7.342.el8_10.x86_64", "kernel-rt-devel-4.18.0-553.rt7.342.el8_10.x86_64"),
        ("5.15.0-300.163.18.el9uek.x86_64", "kernel-uek-devel-5.15.0-300.163.18.el9uek.x86_64"),
    ],
)
def test_the_headers_of_a_kernel_of_el(kernel: str, label: str) -> None:
    assert packages.kernel_headers(ROCKY, kernel).label == label


def test_headers_beside_those_of_other_kernels_are_found() -> None:
    found = parse_rpm((RECORDED / "rpm-kernels.txt").read_text())
    for kernel, missing in (
        ("5.14.0-427.13.1.el9_4.x86_64", ()),
        ("5.14.0-503.14.1.el9_5.x86_64", ()),
        ("5.14.0-570.12.1.el9_6.x86_64", ("kernel-devel-5.14.0-570.12.1.el9_6.x86_64",)),
    ):
        assert packages.compare(found, [packages.kernel_headers(ROCKY, kernel)], "", "").missing == missing


def test_recorded_interrupted_upgrade() -> None:
    found = parse_dpkg((RECORDED / "dpkg-broken.txt").read_text())
    difference = packages.compare(found, [Root("nvidia-open", "580.126.16")], "580.126.16", "open")
    assert difference.broken == ("libcuda1", "libnvidia-ml1", "nvidia-driver-cuda", "nvidia-open")
    # Fabric Manager of the old branch is still there; the plan has to take it along.
    assert difference.other_version == ("nvidia-fabricmanager-570",)
    assert "libnvidia-ml1 580.126.16-1 is half-configured" in difference.text(found)


# -- comparing ---------------------------------------------------------------------------------------------------------


def wanted(version: str) -> list[Root]:
    return [Root("nvidia-open", version), Root("nvidia-fabricmanager", version)]


def test_a_node_that_is_right_has_no_difference() -> None:
    have = node("580.95.05", *STACK, nvidia_persistenced="535.1.2-1", nvidia_container_toolkit="1.18.0-1")
    assert not packages.compare(have, wanted("580.95.05"), "580.95.05", "open")


def test_a_fresh_node_lacks_everything() -> None:
    difference = packages.compare({}, wanted("580.95.05"), "580.95.05", "open")
    assert difference.missing == ("nvidia-open", "nvidia-fabricmanager")


def test_a_single_part_of_another_version_is_seen() -> None:
    have = node("580.95.05", *STACK, libnvidia_cfg1="580.82.07-1")
    assert packages.compare(have, wanted("580.95.05"), "580.95.05", "open").other_version == ("libnvidia-cfg1",)


def test_the_other_kernel_module_is_seen() -> None:
    difference = packages.compare(
        node("580.95.05", *STACK), [Root("cuda-drivers", "580.95.05")], "580.95.05", "proprietary"
    )
    assert difference.other_flavor == "open"


def test_modules_built_here_make_way_for_signed_ones() -> None:
    names = ("nvidia-dkms-580-server-open", "linux-modules-nvidia-580-server-open-azure")
    have = {name: Installed(name, "580.95.05-1") for name in names}
    # dkms lays its module where the kernel looks first.
    difference = packages.compare(have, [Root(names[1])], "580.95.05", "open")
    assert difference.superseded == (names[0],)
    assert "nvidia-dkms-580-server-open takes precedence of the signed modules" in difference.text(have)
    for roots in ([Root(name) for name in names], []):
        assert not packages.compare(have, roots, "580.95.05", "open").superseded


def test_a_foreign_broken_package_is_not_ours() -> None:
    have = {"vim": Installed("vim", "9", "half-installed"), **node("580.95.05", *STACK)}
    assert not packages.compare(have, wanted("580.95.05"), "580.95.05", "open")


@given(
    st.dictionaries(
        st.sampled_from([*STACK, "libnvidia-cfg1", "bash"]), st.sampled_from(["570.1.1", "580.95.05", "580.126.16"])
    ),
    st.sampled_from(["570.1.1", "580.95.05", "580.126.16"]),
)
def test_no_difference_means_one_version_and_everything_there(state: dict[str, str], version: str) -> None:
    have = {name: Installed(name, f"{held}-1") for name, held in state.items()}
    difference = packages.compare(have, wanted(version), version, "open")
    right = all(held == version for name, held in state.items() if name != "bash")
    whole = {"nvidia-open", "nvidia-fabricmanager"} <= set(state)
    assert bool(difference) is not (right and whole)


def test_what_is_held() -> None:
    have = node("580.95.05", *STACK, nvidia_persistenced="580.95.05-1", nvidia_settings="535.1.1-1", bash="5")
    assert packages.to_hold(have, "580.95.05", gdrcopy=False) == sorted([*STACK, "nvidia-persistenced"])


def test_gdrcopy_is_held_where_it_was_asked_for() -> None:
    have = node("580.95.05", "nvidia-open", gdrdrv_dkms="2.5.1-1", libgdrapi="2.5.1-1", gdrcopy_tests="2.5.1-1")
    assert packages.to_hold(have, "580.95.05", gdrcopy=False) == ["nvidia-open"]
    assert packages.to_hold(have, "580.95.05", gdrcopy=True) == sorted(have)
