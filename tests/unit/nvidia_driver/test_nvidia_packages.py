# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What belongs to the driver, what is wanted, and what dpkg, apt and dnf say."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import packages
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.packages import Action, Installed, Root
from hypothesis import given
from hypothesis import strategies as st

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
DEBIAN = packages.Distribution("debian", "12", "dpkg", "Debian 12")
UBUNTU = packages.Distribution("ubuntu", "24.04", "dpkg", "Ubuntu 24.04")
ROCKY = packages.Distribution("rocky", "9.5", "rpm", "Rocky 9.5")
STACK = ("nvidia-open", "nvidia-kernel-open-dkms", "libcuda1", "libnvidia-ml1", "nvidia-fabricmanager")


def recorded(name: str) -> str:
    return (FIXTURES / name).read_text()


def newer(one: str, two: str) -> bool:
    if not shutil.which("dpkg"):
        pytest.skip("needs dpkg")
    return subprocess.run(["dpkg", "--compare-versions", one, "gt", two], check=False).returncode == 0


def node(version: str, *names: str, **others: str) -> dict[str, Installed]:
    found = {name: Installed(name, f"{version}-1") for name in names}
    return {
        **found,
        **{name.replace("_", "-"): Installed(name.replace("_", "-"), have) for name, have in others.items()},
    }


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
    with pytest.raises(ClusterError, match="nvidia_driver_version"):
        packages.check_version(version)


OS_RELEASES = {
    'ID=ubuntu\nVERSION_ID="22.04"\n': ("ubuntu2204", "dpkg"),
    'ID=ubuntu\nVERSION_ID="24.04"\n': ("ubuntu2404", "dpkg"),
    'ID=debian\nVERSION_ID="12"\n': ("debian12", "dpkg"),
    'ID="rhel"\nVERSION_ID="8.10"\n': ("rhel8", "rpm"),
    'ID="almalinux"\nVERSION_ID="9.8"\n': ("rhel9", "rpm"),
    'ID="rocky"\nVERSION_ID="9.5"\n': ("rhel9", "rpm"),
}


@pytest.mark.parametrize(("text", "expected"), OS_RELEASES.items())
def test_supported_distributions(text: str, expected: tuple[str, str]) -> None:
    dist = packages.parse_os_release(text)
    assert (dist.repository, dist.manager) == expected


@pytest.mark.parametrize(
    "text", ["", "ID=fedora\nVERSION_ID=42\n", 'ID=ubuntu\nVERSION_ID="20.04"\n', "ID=debian\nVERSION_ID=11\n"]
)
def test_other_distributions_are_refused(text: str) -> None:
    with pytest.raises(ClusterError, match="preinstalled"):
        packages.parse_os_release(text)


def roots(dist: packages.Distribution, **parts: t.Any) -> list[tuple[str, str]]:
    defaults: dict[str, t.Any] = {
        "source": "cuda_repo",
        "flavor": "open",
        "version": "580.95.05",
        "fabric_manager": False,
        "kernel": "",
        "dcgm_cuda": 0,
        "dcgm_version": "",
        "cuda": "",
        "override": (),
    }
    return [(root.name, root.upstream) for root in packages.wanted_roots(dist, **{**defaults, **parts})]


def test_what_is_wanted_from_nvidias_repository() -> None:
    assert roots(UBUNTU) == [("nvidia-open", "580.95.05")]
    assert roots(UBUNTU, flavor="proprietary") == [("cuda-drivers", "580.95.05")]
    everything = roots(UBUNTU, fabric_manager=True, kernel="6.8.0-1", dcgm_cuda=13, cuda="13.0.2")
    assert everything[1:] == [
        ("nvidia-fabricmanager", "580.95.05"),
        ("linux-headers-6.8.0-1", ""),
        ("datacenter-gpu-manager-4-cuda13", ""),
        ("cuda-toolkit-13-0", ""),
    ]


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
def test_fabric_manager_has_the_name_of_its_branch(dist: packages.Distribution, version: str, name: str) -> None:
    assert (name, version) in roots(dist, version=version, fabric_manager=True)


# -- recorded ----------------------------------------------------------------------------------------------------------


def test_recorded_packages() -> None:
    found = packages.parse_dpkg(recorded("dpkg-570.txt"))
    assert len(found) > 200
    assert found["libcuda1"] == Installed("libcuda1", "570.124.06-1", "installed", held=True)
    assert not found["libnvidia-ml1"].held
    assert not any(one.broken for one in found.values())


def test_recorded_interrupted_upgrade() -> None:
    found = packages.parse_dpkg(recorded("dpkg-broken.txt"))
    difference = packages.compare(found, [Root("nvidia-open", "580.126.16")], "580.126.16", "open")
    assert difference.broken == ("libcuda1", "libnvidia-ml1", "nvidia-driver-cuda", "nvidia-open")
    # Fabric Manager of the old branch is still there; the plan has to take it along.
    assert difference.other_version == ("nvidia-fabricmanager-570",)
    assert "libnvidia-ml1 580.126.16-1 is half-configured" in difference.text(found)


def test_recorded_versions() -> None:
    found = packages.parse_madison(recorded("madison.txt"))
    assert found["nvidia-open"] == ["580.126.16-1", "580.95.05-1", "570.124.06-1"]
    assert "no-such-package" not in found


def test_recorded_upgrade_is_whole() -> None:
    have = packages.parse_dpkg(recorded("dpkg-570.txt"))
    actions = packages.parse_apt_simulation(recorded("apt-upgrade.txt"), newer)
    assert [action.text() for action in actions][:2] == [
        "remove nvidia-fabricmanager-570 570.124.06-1",
        "upgrade nvidia-kernel-open-dkms 570.124.06-1 to 580.95.05-1",
    ]
    assert {action.verb for action in actions} == {"remove", "upgrade", "install"}
    packages.check_plan(actions, have, "580.95.05")
    # Debian's own build, which hwloc brings along: it may stay as it is.
    assert packages.stragglers_of(actions, have, "580.95.05") == ["libxnvctrl0"]


def test_recorded_upgrade_without_a_pin_is_refused_because_apt_mixes_versions() -> None:
    have = packages.parse_dpkg(recorded("dpkg-570.txt"))
    actions = packages.parse_apt_simulation(recorded("apt-unpinned.txt"), newer)
    with pytest.raises(ClusterError, match=r"580\.126\.16") as caught:
        packages.check_plan(actions, have, "580.95.05")
    assert caught.value.kind == "mixed_versions"
    assert packages.stragglers_of(actions, have, "580.95.05") == ["libxnvctrl0", "nvidia-fabricmanager-570"]


def test_recorded_change_of_the_kernel_module() -> None:
    actions = packages.parse_apt_simulation(recorded("apt-flavor.txt"), newer)
    assert Action("remove", "nvidia-kernel-open-dkms", "", "570.124.06-1") in actions
    # Without a pin apt takes the newest module, which nothing of the old version forbids.
    assert Action("install", "nvidia-kernel-dkms", "580.126.16-1") in actions
    with pytest.raises(ClusterError, match="nvidia-kernel-dkms"):
        packages.check_plan(actions, packages.parse_dpkg(recorded("dpkg-570.txt")), "570.124.06")


def test_recorded_debian_driver_is_one_version_besides_its_helpers() -> None:
    actions = packages.parse_apt_simulation(recorded("apt-debian.txt"), newer)
    assert {action.verb for action in actions} == {"install"}
    packages.check_plan(actions, {}, "535.261.03")
    assert packages.flavor_of(action.name for action in actions) == "proprietary"


def test_recorded_upgrade_with_dnf() -> None:
    have = packages.parse_rpm(recorded("rpm-570.txt"))
    assert have["nvidia-open"] == Installed("nvidia-open", "3:570.124.06-1.el9")
    actions = packages.parse_dnf_simulation(recorded("dnf-upgrade.txt"))
    assert actions[0] == Action("install", "nvidia-fabricmanager", "580.95.05-1.el9")
    assert actions[1] == Action("upgrade", "kmod-nvidia-open-dkms", "3:580.95.05-1.el9")
    assert actions[-1] == Action("remove", "nvidia-fabric-manager", "", "570.124.06-1.el9")
    packages.check_plan(actions, have, "580.95.05")


def test_recorded_change_of_the_kernel_module_with_dnf() -> None:
    actions = packages.parse_dnf_simulation(recorded("dnf-flavor.txt"))
    assert [action.text() for action in actions] == [
        "install cuda-drivers 3:570.124.06-1.el9",
        "install kmod-nvidia-latest-dkms 3:570.124.06-1.el9",
        "remove kmod-nvidia-open-dkms 3:570.124.06-1.el9",
        "remove nvidia-open 3:570.124.06-1.el9",
    ]


def test_recorded_nothing_to_do_with_dnf() -> None:
    assert packages.parse_dnf_simulation(recorded("dnf-nothing.txt")) == []


def test_a_name_that_dnf_folds() -> None:
    # The layout of dnf's dnf/cli/output.py for names that are wider than their column.
    text = "Upgrading:\n a-package-with-a-very-long-name\n        x86_64  1-1.el9  repo  10 k\n     replacing  old.x86_64 0-1\n\n"
    assert packages.parse_dnf_simulation(text) == [Action("upgrade", "a-package-with-a-very-long-name", "1-1.el9")]


def test_locked_rpms() -> None:
    found = packages.parse_rpm("nvidia-open|3:580.95.05-1.el9\nbash|0:5.1.8-9.el9\n", {"nvidia-open"})
    assert found["nvidia-open"] == Installed("nvidia-open", "3:580.95.05-1.el9", held=True)
    assert found["bash"] == Installed("bash", "0:5.1.8-9.el9")


# -- comparing ---------------------------------------------------------------------------------------------------------


def wanted(version: str) -> list[Root]:
    return [Root("nvidia-open", version), Root("nvidia-fabricmanager", version)]


def test_a_node_that_is_right_has_no_difference() -> None:
    have = node("580.95.05", *STACK, nvidia_persistenced="535.1.2-1", nvidia_container_toolkit="1.18.0-1")
    assert not packages.compare(have, wanted("580.95.05"), "580.95.05", "open")


def test_a_fresh_node_lacks_everything_and_replaces_nothing() -> None:
    difference = packages.compare({}, wanted("580.95.05"), "580.95.05", "open")
    assert difference.missing == ("nvidia-open", "nvidia-fabricmanager")
    assert not difference.replaces_driver


def test_a_single_part_of_another_version_is_seen() -> None:
    have = node("580.95.05", *STACK, libnvidia_cfg1="580.82.07-1")
    assert packages.compare(have, wanted("580.95.05"), "580.95.05", "open").other_version == ("libnvidia-cfg1",)


def test_the_other_kernel_module_is_seen() -> None:
    difference = packages.compare(
        node("580.95.05", *STACK), [Root("cuda-drivers", "580.95.05")], "580.95.05", "proprietary"
    )
    assert difference.other_flavor == "open"
    assert difference.replaces_driver


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


@given(
    st.dictionaries(st.sampled_from(STACK), st.sampled_from(["570.1.1", "580.95.05"]), min_size=1),
    st.lists(st.tuples(st.sampled_from(STACK), st.sampled_from(["remove", "570.1.1", "580.95.05"])), max_size=8),
)
def test_an_accepted_plan_never_leaves_two_versions(state: dict[str, str], steps: list[tuple[str, str]]) -> None:
    have = {name: Installed(name, f"{held}-1") for name, held in state.items()}
    actions = [
        Action("remove", name) if what == "remove" else Action("install", name, f"{what}-1") for name, what in steps
    ]
    after = dict(state)
    for name, what in steps:
        if what == "remove":
            after.pop(name, None)
        else:
            after[name] = what
    try:
        packages.check_plan(actions, have, "580.95.05")
    except ClusterError:
        assert set(after.values()) - {"580.95.05"}
    else:
        assert set(after.values()) <= {"580.95.05"}


def test_what_is_held() -> None:
    have = node("580.95.05", *STACK, nvidia_persistenced="580.95.05-1", nvidia_settings="535.1.1-1", bash="5")
    assert packages.to_hold(have, "580.95.05") == sorted([*STACK, "nvidia-persistenced"])
