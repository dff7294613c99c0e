# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""BeeOND's packages on a node, from the module's options to the commands that it runs."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond_software.packages import (
    check_actions,
    fits,
    preferences,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import openpgp
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Action, Installed
from beeond_node import DEB, FINGERPRINT, KEY, RPM, Node, make_node, told

MakeNode = t.Callable[[str], Node]
both = pytest.mark.parametrize("manager", ["dpkg", "rpm"])


@pytest.fixture
def make(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> MakeNode:
    return lambda manager: make_node(tmp_path, monkeypatch, manager)


@pytest.mark.parametrize(
    ("pin", "version", "wanted"),
    [
        ("8.3.1", DEB, True),
        ("8.3.1", RPM, True),
        ("8.3.1-el9", RPM, True),
        ("20:8.3.1", RPM, True),
        ("20:8.3.1-el9", RPM, True),
        ("20:8.3.1*", DEB, True),
        ("8.3.*", RPM, True),
        ("8.3.1", "8.3.1", True),
        ("8.3.1", "20:8.3.10", False),
        ("8.3.1", "20:18.3.1", False),
        ("8.3.1-el8", RPM, False),
        ("21:8.3.1", DEB, False),
    ],
)
def test_a_version_is_known_with_and_without_epoch_and_release(pin: str, version: str, wanted: bool) -> None:
    assert fits(pin, version) is wanted


def test_a_pattern_with_an_epoch_stays_what_it_is_for_apt() -> None:
    assert preferences("20:8.3.1*").count("Pin: version 20:8.3.1*\n") == 1
    assert preferences("20:8.3.1*").count("Pin:") == 1
    # apt compares the whole version: without an epoch it would find none.
    assert [line for line in preferences("8.3.1").splitlines() if "Pin:" in line] == [
        "Pin: version 8.3.1",
        "Pin: version *:8.3.1",
    ]
    assert preferences("") == ""


def test_ubuntu_gets_the_version_that_is_asked_for_and_keeps_it(make: MakeNode) -> None:
    node = make("dpkg")
    first = node.run(pin="8.3.1", **node.repository(), check=True)
    assert node.log() == []
    done = node.run(pin="8.3.1", **node.repository())
    assert node.log() == [f"apt-get install pdsh beeond={DEB} libbeegfs-ib={DEB}"]
    assert told(done)[-2:] == [
        f"package beeond install beeond {DEB}",
        f"package libbeegfs-ib install libbeegfs-ib {DEB}",
    ]
    # Without the repository nobody knows the versions yet, nor what comes from where.
    assert told(first)[:-3] == told(done)[:-3]
    assert {line.split()[1] for line in told(first)} == {line.split()[1] for line in told(done)}
    assert "Pin: version *:8.3.1" in node.read("etc/preferences")
    assert "Suites: noble\nComponents: non-free\n" in node.read("etc/sources")
    again = node.run(pin="8.3.1", **node.repository())
    assert (told(again), again["changed"], node.log()) == ([], False, [])


def test_el_gets_the_version_that_is_asked_for_and_locks_it(make: MakeNode) -> None:
    node = make("rpm")
    node.write("etc/versionlock.list", "site-tool-0:1-1.*\nbeeond-20:7.4.6-el9.*\n")
    assert told(node.run(pin="8.3.1", **node.repository(), check=True))[-1].endswith("versionlock")
    assert node.log() == []
    done = told(node.run(pin="8.3.1", **node.repository()))
    assert node.log() == ["dnf install python3-dnf-plugin-versionlock beeond-8.3.1 libbeegfs-ib-8.3.1"]
    assert done[-1] == "hold beeond, libbeegfs-ib hold"
    # Those of others stay, and an older one of ours goes.
    assert node.read("etc/versionlock.list").splitlines() == [
        "site-tool-0:1-1.*",
        f"beeond-{RPM}.*",
        f"libbeegfs-ib-{RPM}.*",
    ]
    assert "baseurl=https://mirror.example.org/beegfs_8.3/dists/rhel9/\n" in node.read("etc/repo")
    again = node.run(pin="8.3.1", **node.repository())
    assert (told(again), again["changed"], node.log()) == ([], False, [])


def test_a_lock_that_somebody_took_away_comes_back(make: MakeNode) -> None:
    node = make("rpm")
    node.run(pin="8.3.1")
    node.write("etc/versionlock.list", "")
    assert told(node.run(pin="8.3.1", check=True)) == ["hold beeond, libbeegfs-ib hold"]
    assert node.read("etc/versionlock.list") == ""
    assert told(node.run(pin="8.3.1")) == ["hold beeond, libbeegfs-ib hold"]
    assert "beeond-" in node.read("etc/versionlock.list")


@both
def test_without_a_version_what_is_missing_comes_and_nothing_is_locked(make: MakeNode, manager: str) -> None:
    node = make(manager)
    node.run(packages=["beeond", {"dpkg": "pdsh"}])
    assert "beeond" in node.log()[0]
    assert (node.read("etc/preferences"), node.read("etc/versionlock.list")) == ("", "")
    assert told(node.run(packages=["beeond", {"dpkg": "pdsh"}])) == []


@both
@pytest.mark.parametrize("check", [True, False])
def test_another_version_that_is_installed_is_said_and_stays(make: MakeNode, manager: str, check: bool) -> None:
    node = make(manager)
    other = (DEB if manager == "dpkg" else RPM).replace("8.3.1", "8.2.0")
    node.add("installed", f"beegfs-client|{other}\n")
    refused = node.run(pin="8.3.1", **node.repository(), check=check)
    assert refused["error_kind"] == "other_version"
    assert f"Installed is beegfs-client {other}, and `pin` asks for 8.3.1. Nothing was changed." in refused["msg"]
    assert (node.log(), node.read("etc/sources"), node.read("etc/repo")) == ([], "", "")


@both
def test_a_version_that_nobody_has_is_said_so(make: MakeNode, manager: str) -> None:
    node = make(manager)
    refused = node.run(pin="8.3.9")
    assert refused["error_kind"] == "not_available"
    assert "beeond" in refused["msg"]
    assert [line for line in node.log() if "install" in line] == []


def test_lists_of_apt_are_read_again_only_where_they_lack_something(make: MakeNode) -> None:
    node = make("dpkg")
    (node.root / "available").rename(node.root / "new")
    node.write("available", "")
    node.run(pin="8.3.1")
    assert node.log() == ["apt-get update", f"apt-get install pdsh beeond={DEB} libbeegfs-ib={DEB}"]


def test_what_is_installed_is_not_upgraded_on_the_way(make: MakeNode) -> None:
    node = make("dpkg")
    node.add("installed", f"beegfs-client|{DEB}\n")
    node.write("pushes", f"Inst beegfs-client [{DEB}] (20:8.3.2 repository [all])\n")
    for check in (True, False):
        refused = node.run(check=check)
        assert refused["error_kind"] == "conflict"
        assert "beegfs-client" in refused["msg"]
    assert node.log() == []


def test_packages_of_others_are_not_pushed_out() -> None:
    there = {"openib": Installed("openib", "1"), "psmisc": Installed("psmisc", "1")}
    with pytest.raises(ClusterError, match="would remove openib 1"):
        check_actions([Action("remove", "openib", old="1"), Action("install", "beeond", "8")], there)
    check_actions([Action("upgrade", "psmisc", "2", "1"), Action("install", "beeond", "8")], there)


# -- the key ---------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("check", [True, False])
def test_a_key_with_another_fingerprint_is_never_trusted(make: MakeNode, manager: str, check: bool) -> None:
    node = make(manager)
    node.write("key", openpgp.armor(KEY.replace(b"ab", b"xy")))
    refused = node.run(**node.repository(), check=check)
    assert refused["error_kind"] == "wrong_key"
    assert f"but the key {FINGERPRINT} was expected. Nothing was changed." in refused["msg"]
    assert (node.log(), (node.root / "etc").exists()) == ([], False)


@both
def test_a_key_beside_the_right_one_is_not_trusted_either(make: MakeNode, manager: str) -> None:
    node = make(manager)
    node.write("key", openpgp.armor(KEY + KEY.replace(b"ab", b"xy")))
    assert node.run(**node.repository())["error_kind"] == "wrong_key"


@both
def test_a_repository_without_a_fingerprint_is_refused(make: MakeNode, manager: str) -> None:
    node = make(manager)
    refused = node.run(**{**node.repository(), "repository_fingerprint": " "})
    assert refused["error_kind"] == "bad_input"
    assert "Set `repository_fingerprint`" in refused["msg"]
    assert not (node.root / "etc").exists()


def test_a_key_of_the_controller_is_checked_on_the_node_too(make: MakeNode) -> None:
    node = make("dpkg")
    wish = {**node.repository(), "repository_key": "files/key"}
    assert node.run(**wish, repository_key_text=openpgp.armor(KEY + KEY))["error_kind"] == "wrong_key"
    assert not node.run(**wish, repository_key_text=openpgp.armor(KEY))["failed"]
    assert openpgp.fingerprints(node.read("etc/dpkg.key").encode()) == [FINGERPRINT]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"pin": "latest"}, "`pin` is 'latest'"),
        ({"pin": "8.3.1\nPin: x"}, "`pin` is"),
        ({"pin": "7.4.7", "version": 8}, "`pin` asks for BeeGFS 7.4.7, and `version` for 8"),
        ({"repository_url": "mirror", "repository_suite": "noble"}, "`repository_url` is no URL"),
        ({"repository_suite": "noble\nx"}, "`repository_suite` is"),
    ],
)
def test_what_cannot_be_meant_is_refused(make: MakeNode, options: dict[str, t.Any], says: str) -> None:
    refused = make("dpkg").run(**options)
    assert refused["error_kind"] == "bad_input"
    assert says in refused["msg"]
