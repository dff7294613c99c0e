# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plans of node_state, as tables."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.distribution import Distribution
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.units import UnitState
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state import plan as ns
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.content import Content, content_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.request import (
    Absent,
    Archive,
    File,
    Link,
    Unit,
)


def file_entry(content: str = "new\n", **parts: t.Any) -> File:
    return File("/f", parts.pop("known", None) or content_of({"content": content, "sensitive": False, **parts}), "0644")


NODE = Distribution("ubuntu", "22.04", "Ubuntu 22.04.5 LTS")
FILE = ns.PathState("file", "0644", 0, 0, b"new\n")


@pytest.mark.parametrize(
    ("have", "what"),
    [
        (ns.PathState(), "create"),
        (ns.PathState("file", "0644", 0, 0, b"old\n"), "content"),
        (ns.PathState("file", "0600", 0, 0, b"new\n"), "mode 0600 to 0644"),
        (ns.PathState("file", "0644", 5, 0, b"new\n"), "owner 5 to 0"),
        (FILE, None),
    ],
)
def test_plan_of_a_file(have: ns.PathState, what: str | None) -> None:
    change = ns.plan_file(file_entry(), have, 0, 0)
    assert (change.what if change else None) == what


@pytest.mark.parametrize("kind", ["directory", "link", "other"])
def test_a_file_replaces_only_a_file(kind: str) -> None:
    with pytest.raises(ClusterError, match=f"is a {kind}"):
        ns.plan_file(file_entry(), ns.PathState(kind), 0, 0)


def test_bytes_that_are_not_utf8_come_back_as_they_were_read() -> None:
    theirs = b"# caf\xe9\n"
    change = ns.plan_file(file_entry(theirs.decode("utf-8", "surrogateescape")), FILE, 0, 0)
    assert change is not None
    assert change.want.content.data == theirs
    assert json.dumps(change.diff(), ensure_ascii=False).encode("utf-8")


@pytest.mark.parametrize("entry", [file_entry(sensitive=True), file_entry(secret_content="new\n")])
def test_a_secret_never_shows_in_a_diff(entry: File) -> None:
    change = ns.plan_file(entry, ns.PathState("file", "0644", 0, 0, b"old secret"), 0, 0)
    assert change is not None
    assert "new" not in change.after
    assert "old" not in change.before
    assert change.before != change.after


def test_an_owner_that_does_not_exist_yet_is_not_compared() -> None:
    assert ns.plan_file(file_entry(), FILE, None, None) is None


def test_content_that_is_not_text_shows_as_its_digest() -> None:
    change = ns.plan_file(file_entry(), ns.PathState("file", "0644", 0, 0, b"\xff\xfe"), 0, 0)
    assert change is not None
    assert change.before == f"sha256: {hashlib.sha256(bytes((255, 254))).hexdigest()} (2 bytes)\n"


def test_content_that_came_as_a_digest_is_compared_by_it() -> None:
    entry = file_entry(known=Content(hashlib.sha256(b"new\n").hexdigest(), None, 4))
    assert ns.plan_file(entry, FILE, 0, 0) is None
    change = ns.plan_file(entry, ns.PathState("file", "0644", 0, 0, b"old\n"), 0, 0)
    assert change is not None
    assert (change.before, change.after) == ("old\n", f"sha256: {entry.content.sha256} (4 bytes)\n")


@pytest.mark.parametrize(
    ("have", "result"),
    [
        (ns.PathState(), "create"),
        (ns.PathState("link", target="1.0"), "point at 2.0"),
        (ns.PathState("link", target="2.0"), None),
        (ns.PathState("directory"), ClusterError),
        (ns.PathState("file"), ClusterError),
    ],
)
def test_plan_of_a_link(have: ns.PathState, result: t.Any) -> None:
    entry = Link("/current", "2.0")
    if result is ClusterError:
        with pytest.raises(ClusterError):
            ns.plan_link(entry, have)
        return
    change = ns.plan_link(entry, have)
    assert (change.what if change else None) == result


@pytest.mark.parametrize(
    ("absent", "have", "protected", "result"),
    [
        (Absent("/a/b"), ns.PathState(), "", None),
        (Absent("/a/b"), ns.PathState("file"), "", "remove file"),
        (Absent("/a/b"), ns.PathState("directory"), "", "remove directory"),
        (Absent("/a/b"), ns.PathState("directory", empty=False), "", "not_empty"),
        (Absent("/a/b", True), ns.PathState("directory", empty=False), "", "remove directory"),
        (Absent("/a/b", True), ns.PathState("directory", empty=False, mount="/a/b/c"), "", "in_use"),
        (Absent("/a/b", True, "/l"), ns.PathState("directory", empty=False), "/a/b", "in_use"),
        (Absent("/a/b", True, "/l"), ns.PathState("directory", empty=False), "/a/b/deep", "in_use"),
        (Absent("/a/b", True, "/l"), ns.PathState("directory", empty=False), "/a/bc", "remove directory"),
        (Absent("/a/b"), ns.PathState("link", target="/etc"), "", "remove link"),
    ],
)
def test_plan_of_a_removal(absent: Absent, have: ns.PathState, protected: str, result: str | None) -> None:
    if result in ("not_empty", "in_use"):
        with pytest.raises(ClusterError) as caught:
            ns.plan_absent(absent, have, absent.path, protected)
        assert caught.value.kind == result
        return
    change = ns.plan_absent(absent, have, absent.path, protected)
    assert (change.what if change else None) == result


def test_a_foreign_directory_is_no_unpacked_archive() -> None:
    entry = Archive("/opt/x", "a" * 64)
    assert ns.plan_archive(entry, ns.PathState("directory", archive="a" * 64), NODE) is None
    for digest in ("", "b" * 64):
        with pytest.raises(ClusterError, match="exists and was"):
            ns.plan_archive(entry, ns.PathState("directory", archive=digest), NODE)


def test_an_archive_for_another_release_is_refused_before_it_is_fetched_and_kept_where_it_was_unpacked() -> None:
    archive = Archive("/opt/hpcx/2.25.1", "a" * 64, built_for="ubuntu24.04")
    with pytest.raises(ClusterError) as caught:
        ns.plan_archive(archive, ns.PathState(), NODE)
    assert caught.value.kind == "wrong_release"
    assert "ubuntu24.04" in str(caught.value)
    assert "Ubuntu 22.04.5 LTS" in str(caught.value)
    assert ns.plan_archive(archive, ns.PathState("directory", archive="a" * 64), NODE) is None
    fitting = dataclasses.replace(archive, built_for="ubuntu22.04")
    assert ns.plan_archive(fitting, ns.PathState(), NODE)


def unit(**parts: t.Any) -> Unit:
    return Unit("x.service", **parts)


UP = UnitState("loaded", "active", "enabled")
DOWN = UnitState("loaded", "inactive", "disabled")
NONE = UnitState("not-found", "inactive", "")


@pytest.mark.parametrize(
    ("wanted", "have", "changed", "running", "result"),
    [
        (unit(state="started", enabled=True), DOWN, [], True, ["enable", "start"]),
        (unit(state="started", enabled=True), DOWN, [], False, ["enable"]),
        (unit(state="started", enabled=True), UP, [], True, []),
        (unit(state="started"), UnitState("loaded", "failed", "enabled"), [], True, ["start"]),
        (unit(state="started", restart_on=("/f",)), UP, ["/f"], True, ["restart"]),
        (unit(state="started", restart_on=("/f",)), UP, ["/g"], True, []),
        (unit(state="started", restart_on=("/f",)), DOWN, ["/f"], True, ["start"]),
        (unit(enabled=True), UnitState("loaded", "inactive", "static"), [], True, []),
        (unit(enabled=True), UnitState("loaded", "inactive", "enabled-runtime"), [], True, ["enable"]),
        (unit(restart_on=("/f",)), UP, ["/f"], True, []),
        (unit(state="stopped", enabled=False), NONE, [], True, []),
    ],
)
def test_units_come_up(wanted: Unit, have: UnitState, changed: list[str], running: bool, result: list[str]) -> None:
    plan = ns.plan_units_up([wanted], {"x.service": have}, set(changed), running=running, may_appear=False)
    assert [change.what for change in plan] == result


@pytest.mark.parametrize(
    ("wanted", "have", "running", "result"),
    [
        (unit(state="stopped", enabled=False), UP, True, ["stop", "disable"]),
        (unit(state="stopped", enabled=False), UP, False, ["disable"]),
        (unit(state="stopped", enabled=False), DOWN, True, []),
        (unit(state="stopped"), UnitState("loaded", "failed", "enabled"), True, []),
        (unit(state="started", enabled=True), UP, True, []),
        (unit(state="stopped", enabled=False), NONE, True, []),
    ],
)
def test_units_go_down(wanted: Unit, have: UnitState, running: bool, result: list[str]) -> None:
    assert [change.what for change in ns.plan_units_down([wanted], {"x.service": have}, running)] == result


def test_a_unit_that_is_missing_or_masked_is_named() -> None:
    wanted = unit(state="started")
    with pytest.raises(ClusterError, match=r"no unit x\.service"):
        ns.plan_units_up([wanted], {"x.service": NONE}, set(), running=True, may_appear=False)
    plan = ns.plan_units_up([wanted], {"x.service": NONE}, set(), running=True, may_appear=True)
    assert [change.what for change in plan] == ["start"]
    masked = {"x.service": UnitState("masked", "inactive", "masked")}
    with pytest.raises(ClusterError, match="systemctl unmask"):
        ns.plan_units_up([wanted], masked, set(), running=True, may_appear=False)
