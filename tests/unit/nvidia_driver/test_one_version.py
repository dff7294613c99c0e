# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After every accepted transaction all parts of the driver have one version."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import (
    Action,
    Installed,
    parse_apt_simulation,
    parse_dnf_simulation,
    parse_dpkg,
    parse_rpm,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.transaction import Apt, Dnf
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.one_version import (
    check_plan,
    simulate_whole,
    stragglers_of,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.packages import flavor_of
from hypothesis import given
from hypothesis import strategies as st

RECORDED = pathlib.Path(__file__).parents[1] / "host/fixtures"
STACK = ("nvidia-open", "nvidia-kernel-open-dkms", "libcuda1", "libnvidia-ml1", "nvidia-fabricmanager")


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


def newer(one: str, two: str) -> bool:
    if not shutil.which("dpkg"):
        pytest.skip("needs dpkg")
    return subprocess.run(["dpkg", "--compare-versions", one, "gt", two], check=False).returncode == 0


class Recorded:
    """Answers as apt did when it was recorded: the plan changes once Fabric Manager may go."""

    def __init__(self, first: str = "apt-unpinned.txt") -> None:
        self.first = recorded(first) if first else ""
        self.simulated: list[list[str]] = []

    def run_command(self, args: list[str], **_kwargs: t.Any) -> tuple[int, str, str]:
        if args[0] == "apt-cache":
            return 0, recorded("madison.txt"), ""
        if args[0] in ("apt-get", "dnf"):
            words = args[args.index("--") + 1 :] if "--" in args else args[args.index("install") + 1 :]
            self.simulated.append(words)
            return 0, recorded("apt-upgrade.txt") if words[-1].endswith("570-") else self.first, ""
        return 0, "", ""

    def get_bin_path(self, arg: str) -> str | None:
        raise NotImplementedError

    def selinux_default_context(self, path: str) -> list[t.Any]:
        return []

    def set_context_if_different(self, path: str, context: list[t.Any], changed: bool) -> bool:
        raise NotImplementedError


def test_what_would_stay_at_the_old_version_follows_or_leaves() -> None:
    # apt's plan of the recording does not touch the old Fabric Manager, which no repository has at the new version.
    have = parse_dpkg(recorded("dpkg-570.txt"))
    host = Recorded()
    words, actions = simulate_whole(Apt(host), ["nvidia-open=580.95.05-1"], have, "580.95.05", "pin", fix=False)
    assert words == ["nvidia-open=580.95.05-1", "nvidia-fabricmanager-570-"]
    assert actions[0].text() == "remove nvidia-fabricmanager-570 570.124.06-1"
    assert [len(line) for line in host.simulated] == [len(words) - 1, len(words)]


def test_what_may_stay_is_asked_for_once() -> None:
    # Debian's libxnvctrl0 has a driver's version, is no part of it, and is in no repository at another one.
    have = {"libxnvctrl0": Installed("libxnvctrl0", "535.171.04-1~deb12u1")}
    host = Recorded()
    words, _actions = simulate_whole(Apt(host), ["nvidia-open=580.95.05-1"], have, "580.95.05", "pin", fix=False)
    assert words == ["nvidia-open=580.95.05-1"]
    assert len(host.simulated) == 2


class Refusing(Recorded):
    """apt refuses until it is told of what leaves, as it does where all names of a branch make way for those of another."""

    def run_command(self, args: list[str], **kwargs: t.Any) -> tuple[int, str, str]:
        answer = super().run_command(args, **kwargs)
        refused = args[0] == "apt-get" and not self.simulated[-1][-1].endswith("-")
        return (100, "", "E: Error, pkgProblemResolver::Resolve generated breaks") if refused else answer


def test_what_apt_refuses_is_tried_with_what_must_leave() -> None:
    have = parse_dpkg(recorded("dpkg-570.txt"))
    one = {"nvidia-fabricmanager-570": have["nvidia-fabricmanager-570"]}
    host = Refusing()
    words, actions = simulate_whole(Apt(host), ["nvidia-open=580.95.05-1"], one, "580.95.05", "pin", fix=False)
    assert words == ["nvidia-open=580.95.05-1", "nvidia-fabricmanager-570-"]
    assert actions[0].verb == "remove"
    with pytest.raises(ClusterError, match="generated breaks"):
        simulate_whole(Apt(Refusing()), ["nvidia-open=580.95.05-1"], {}, "580.95.05", "pin", fix=False)


def test_what_leaves_is_told_when_it_comes_to_it() -> None:
    # apt finds by itself that Fabric Manager goes; under another pin it might not.
    host = Recorded(first="apt-upgrade.txt")
    words, _actions = simulate_whole(Apt(host), ["nvidia-open=580.95.05-1"], {}, "580.95.05", "pin", fix=False)
    assert words == ["nvidia-open=580.95.05-1", "nvidia-fabricmanager-570-"]


def test_what_is_there_at_the_new_version_follows() -> None:
    have = {"nvidia-open": Installed("nvidia-open", "570.124.06-1"), "vim": Installed("vim", "2:9.0-1")}
    words, _actions = simulate_whole(Apt(Recorded(first="")), ["bash"], have, "580.95.05", "pin", fix=False)
    assert words == ["bash", "nvidia-open=580.95.05-1"]


def test_dnf_is_asked_once_and_with_the_words_as_they_are() -> None:
    have = {"nvidia-open": Installed("nvidia-open", "3:570.124.06-1.el9")}
    host = Recorded()
    words, _actions = simulate_whole(Dnf(host), ["bash"], have, "580.95.05", "", fix=False)
    assert (words, host.simulated) == (["bash"], [["bash"]])


def test_recorded_upgrade_is_whole() -> None:
    have = parse_dpkg(recorded("dpkg-570.txt"))
    actions = parse_apt_simulation(recorded("apt-upgrade.txt"), newer)
    assert [action.text() for action in actions][:2] == [
        "remove nvidia-fabricmanager-570 570.124.06-1",
        "upgrade nvidia-kernel-open-dkms 570.124.06-1 to 580.95.05-1",
    ]
    assert {action.verb for action in actions} == {"remove", "upgrade", "install"}
    check_plan(actions, have, "580.95.05")
    # Debian's own build, which hwloc brings along: it may stay as it is.
    assert stragglers_of(actions, have, "580.95.05") == ["libxnvctrl0"]


def test_recorded_upgrade_without_a_pin_is_refused_because_apt_mixes_versions() -> None:
    have = parse_dpkg(recorded("dpkg-570.txt"))
    actions = parse_apt_simulation(recorded("apt-unpinned.txt"), newer)
    with pytest.raises(ClusterError, match=r"580\.126\.16") as caught:
        check_plan(actions, have, "580.95.05")
    assert caught.value.kind == "mixed_versions"
    assert stragglers_of(actions, have, "580.95.05") == ["libxnvctrl0", "nvidia-fabricmanager-570"]


def test_recorded_change_of_the_kernel_module() -> None:
    actions = parse_apt_simulation(recorded("apt-flavor.txt"), newer)
    assert Action("remove", "nvidia-kernel-open-dkms", "", "570.124.06-1") in actions
    # Without a pin apt takes the newest module, which nothing of the old version forbids.
    assert Action("install", "nvidia-kernel-dkms", "580.126.16-1") in actions
    with pytest.raises(ClusterError, match="nvidia-kernel-dkms"):
        check_plan(actions, parse_dpkg(recorded("dpkg-570.txt")), "570.124.06")


def test_recorded_debian_driver_is_one_version_besides_its_helpers() -> None:
    actions = parse_apt_simulation(recorded("apt-debian.txt"), newer)
    assert {action.verb for action in actions} == {"install"}
    check_plan(actions, {}, "535.261.03")
    assert flavor_of(action.name for action in actions) == "proprietary"


def test_recorded_upgrade_with_dnf() -> None:
    have = parse_rpm(recorded("rpm-570.txt"))
    assert have["nvidia-open"] == Installed("nvidia-open", "3:570.124.06-1.el9")
    actions = parse_dnf_simulation(recorded("dnf-upgrade.txt"))
    assert actions[0] == Action("install", "nvidia-fabricmanager", "580.95.05-1.el9")
    assert actions[1] == Action("upgrade", "kmod-nvidia-open-dkms", "3:580.95.05-1.el9")
    assert actions[-1] == Action("remove", "nvidia-fabric-manager", "", "570.124.06-1.el9")
    check_plan(actions, have, "580.95.05")


def test_a_part_that_another_one_replaces_is_not_left_behind() -> None:
    """Layout of dnf's dnf/cli/output.py for a package that obsoletes another one."""
    have = {"nvidia-fabric-manager": Installed("nvidia-fabric-manager", "570.124.06-1.el9")}
    row = " nvidia-fabricmanager  x86_64  580.95.05-1.el9  cuda  1 M\n"
    replacing = "     replacing  nvidia-fabric-manager.x86_64 570.124.06-1.el9\n"
    check_plan(parse_dnf_simulation(f"Installing:\n{row}{replacing}\n"), have, "580.95.05")
    with pytest.raises(ClusterError, match="nvidia-fabric-manager 570"):
        check_plan(parse_dnf_simulation(f"Installing:\n{row}\n"), have, "580.95.05")


def test_packages_of_others_do_not_leave_with_the_old_driver() -> None:
    own = {
        "libcuda1": "570.124.06-1",
        "nvidia-persistenced": "560.1-1",
        "nvidia-settings": "555.1",
        "gdrdrv-dkms": "2.4-1",
    }
    have = {name: Installed(name, held) for name, held in {**own, "site-monitoring": "1.0-1"}.items()}
    check_plan([Action("remove", name) for name in (*own, "was-never-there")], have, "580.95.05")
    with pytest.raises(ClusterError, match=r"packages that are not the driver's: site-monitoring\. Nothing") as caught:
        check_plan([Action("remove", name) for name in have], have, "580.95.05")
    assert caught.value.kind == "in_use"


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
        check_plan(actions, have, "580.95.05")
    except ClusterError:
        assert set(after.values()) - {"580.95.05"}
    else:
        assert set(after.values()) <= {"580.95.05"}
