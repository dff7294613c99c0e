# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pure half of node_state: requests, plans and parsers, as tables."""

from __future__ import annotations

import hashlib
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.units import UnitState
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state import plan as ns
from hypothesis import given
from hypothesis import strategies as st


def request(**parts: t.Any) -> dict[str, t.Any]:
    keys = ("packages", "directories", "archives", "files", "links", "absent", "units")
    return {key: parts.get(key, []) for key in keys}


def file_entry(**parts: t.Any) -> dict[str, t.Any]:
    return {"path": "/f", "content": "new\n", "secret_content": None, "sensitive": False, "mode": "0644", **parts}


@pytest.mark.parametrize("path", ["relative", "/a/../b", "/a//b", "/a/./b", "//a", "/a\nb", ""])
def test_a_path_that_could_surprise_is_refused(path: str) -> None:
    with pytest.raises(ClusterError):
        ns.check_path(path)


@pytest.mark.parametrize(("path", "clean"), [("/a/b", "/a/b"), ("/a/b/", "/a/b"), ("/", "/")])
def test_a_plain_path_is_accepted(path: str, clean: str) -> None:
    assert ns.check_path(path) == clean


@pytest.mark.parametrize("mode", ["420", "644", "u+x", "0o644", "09", "", "064444"])
def test_a_mode_must_be_octal_and_quoted(mode: str) -> None:
    with pytest.raises(ClusterError, match="Quote it"):
        ns.check_mode(mode, "/f")


def test_modes_are_compared_with_four_digits() -> None:
    assert (ns.check_mode("0644", "/f"), ns.check_mode("01777", "/f")) == ("0644", "1777")


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ("/", "will not be removed"),
        ({"path": "/etc", "recursive": True}, "will not be removed"),
        ({"path": "/a/b", "recursiv": True}, "unknown key"),
        ({"path": "/a/b", "recursive": "yes"}, "true or false"),
        ({"recursive": True}, "Give a path"),
        (7, "Give a path"),
    ],
)
def test_dangerous_or_misspelled_removals_are_refused(item: t.Any, says: str) -> None:
    with pytest.raises(ClusterError, match=says):
        ns.parse_absent([item])


def test_a_path_may_be_listed_only_once() -> None:
    with pytest.raises(ClusterError, match="listed under absent and links"):
        ns.check_request(request(absent=["/a/b"], links=[{"path": "/a/b/", "target": "x"}]))


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"sha256": "abc", "src": "/x", "controller_src": None}, "64 hexadecimal"),
        ({"sha256": "a" * 64, "src": None, "controller_src": None}, "one of src"),
        ({"sha256": "a" * 64, "src": "/x", "controller_src": "/y"}, "one of src"),
    ],
)
def test_archives_are_checked(entry: dict[str, t.Any], says: str) -> None:
    with pytest.raises(ClusterError, match=says):
        ns.check_request(request(archives=[{"path": "/opt/x", **entry}]))


def test_validate_needs_a_place_for_the_name() -> None:
    with pytest.raises(ClusterError, match="has no %s"):
        ns.check_request(request(files=[file_entry(validate=["visudo", "-c"])]))


@pytest.mark.parametrize(
    "item", ["a=1", "-y", "a b", {"deb": "x"}, {}, {"dpkg": 1}, {"name": "a", "rpm": "b"}, {"rpm": ["-y"]}, 3]
)
def test_package_names_are_bare(item: t.Any) -> None:
    with pytest.raises(ClusterError):
        ns.package_names([item], "dpkg")


@pytest.mark.parametrize("source", ["src", "template", "program"])
def test_what_only_the_action_brings_is_refused_without_it(source: str) -> None:
    with pytest.raises(ClusterError, match=f"The `{source}` of /f is on the controller"):
        ns.check_request(request(files=[file_entry(content=None, validate=[], **{source: "x"})]))


def test_package_names_differ_by_system() -> None:
    items = ["tar", {"dpkg": "openssh-client", "rpm": "openssh-clients"}, {"dpkg": "libsecret-1-0"}, "tar"]
    assert ns.package_names(items, "dpkg") == ["tar", "openssh-client", "libsecret-1-0"]
    assert ns.package_names(items, "rpm") == ["tar", "openssh-clients"]


def test_one_item_may_name_several_packages() -> None:
    items = [{"name": ["tar", {"dpkg": "bzip2", "rpm": ["bzip2", "bzip2-libs"]}]}, {"name": "tar"}, {"name": []}]
    assert ns.package_names(items, "dpkg") == ["tar", "bzip2"]
    assert ns.package_names(items, "rpm") == ["tar", "bzip2", "bzip2-libs"]


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


@pytest.mark.parametrize("entry", [file_entry(sensitive=True), file_entry(content=None, secret_content="new\n")])
def test_a_secret_never_shows_in_a_diff(entry: dict[str, t.Any]) -> None:
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
    entry = file_entry(content=None, sha256=hashlib.sha256(b"new\n").hexdigest(), size=4)
    assert ns.plan_file(entry, FILE, 0, 0) is None
    change = ns.plan_file(entry, ns.PathState("file", "0644", 0, 0, b"old\n"), 0, 0)
    assert change is not None
    assert (change.before, change.after) == ("old\n", f"sha256: {entry['sha256']} (4 bytes)\n")


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
    entry = {"path": "/current", "target": "2.0"}
    if result is ClusterError:
        with pytest.raises(ClusterError):
            ns.plan_link(entry, have)
        return
    change = ns.plan_link(entry, have)
    assert (change.what if change else None) == result


@pytest.mark.parametrize(
    ("absent", "have", "protected", "result"),
    [
        (ns.Absent("/a/b"), ns.PathState(), "", None),
        (ns.Absent("/a/b"), ns.PathState("file"), "", "remove file"),
        (ns.Absent("/a/b"), ns.PathState("directory"), "", "remove directory"),
        (ns.Absent("/a/b"), ns.PathState("directory", empty=False), "", "not_empty"),
        (ns.Absent("/a/b", True), ns.PathState("directory", empty=False), "", "remove directory"),
        (ns.Absent("/a/b", True), ns.PathState("directory", empty=False, mount="/a/b/c"), "", "in_use"),
        (ns.Absent("/a/b", True, "/l"), ns.PathState("directory", empty=False), "/a/b", "in_use"),
        (ns.Absent("/a/b", True, "/l"), ns.PathState("directory", empty=False), "/a/b/deep", "in_use"),
        (ns.Absent("/a/b", True, "/l"), ns.PathState("directory", empty=False), "/a/bc", "remove directory"),
        (ns.Absent("/a/b"), ns.PathState("link", target="/etc"), "", "remove link"),
    ],
)
def test_plan_of_a_removal(absent: ns.Absent, have: ns.PathState, protected: str, result: str | None) -> None:
    if result in ("not_empty", "in_use"):
        with pytest.raises(ClusterError) as caught:
            ns.plan_absent(absent, have, absent.path, protected)
        assert caught.value.kind == result
        return
    change = ns.plan_absent(absent, have, absent.path, protected)
    assert (change.what if change else None) == result


def test_a_foreign_directory_is_no_unpacked_archive() -> None:
    entry = {"path": "/opt/x", "sha256": "a" * 64}
    assert ns.plan_archive(entry, ns.PathState("directory", archive="a" * 64)) is None
    for digest in ("", "b" * 64):
        with pytest.raises(ClusterError, match="exists and was"):
            ns.plan_archive(entry, ns.PathState("directory", archive=digest))


def unit(**parts: t.Any) -> dict[str, t.Any]:
    return {"name": "x.service", "state": None, "enabled": None, "restart_on": [], **parts}


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
        (unit(state="started", restart_on=["/f"]), UP, ["/f"], True, ["restart"]),
        (unit(state="started", restart_on=["/f"]), UP, ["/g"], True, []),
        (unit(state="started", restart_on=["/f"]), DOWN, ["/f"], True, ["start"]),
        (unit(enabled=True), UnitState("loaded", "inactive", "static"), [], True, []),
        (unit(enabled=True), UnitState("loaded", "inactive", "enabled-runtime"), [], True, ["enable"]),
        (unit(restart_on=["/f"]), UP, ["/f"], True, []),
        (unit(state="stopped", enabled=False), NONE, [], True, []),
    ],
)
def test_units_come_up(
    wanted: dict[str, t.Any], have: UnitState, changed: list[str], running: bool, result: list[str]
) -> None:
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
def test_units_go_down(wanted: dict[str, t.Any], have: UnitState, running: bool, result: list[str]) -> None:
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


def test_dpkg_lists_are_read() -> None:
    output = "ii |bash|\nrc |nginx|\nii |mawk|awk, posix-awk (= 1)\nun |gone|\nhi |held|\niU |halfway|\n"
    assert ns.installed_debs(output) == {"bash", "mawk", "awk", "posix-awk", "held"}


@given(st.text(max_size=40))
def test_no_text_at_all_makes_a_path_out_of_the_root(text: str) -> None:
    try:
        path = ns.check_path(text)
    except ClusterError:
        return
    assert path.startswith("/")
    assert ".." not in path.split("/")
