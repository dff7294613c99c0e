# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong in a request is refused, and items whose ``when`` is false are as if they were not written."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.request import (
    LISTS,
    check_mode,
    check_path,
    parse_absent,
    request_of,
    wanted_items,
)
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize("option", LISTS)
@pytest.mark.parametrize("when", [False, "false", "no", "off", "0", 0, "False"])
def test_an_item_that_does_not_count_is_gone_whatever_else_it_says(option: str, when: t.Any) -> None:
    assert wanted_items({option: [{"when": when, "path": None, "nonsense": 1}]}) == {option: []}


@pytest.mark.parametrize("option", LISTS)
@pytest.mark.parametrize("when", [True, "true", "yes", "on", "1", 1])
def test_an_item_that_counts_loses_its_when(option: str, when: t.Any) -> None:
    assert wanted_items({option: [{"when": when, "path": "/a"}, {"path": "/b"}]}) == {
        option: [{"path": "/a"}, {"path": "/b"}]
    }


def test_items_without_a_mapping_count_and_other_options_stay() -> None:
    params = {"packages": ["tar"], "absent": ["/a/b"], "state": "prepared", "files": "not a list"}
    assert wanted_items(params) == params


@pytest.mark.parametrize("when", ["perhaps", "", [], 7])
def test_what_is_no_boolean_is_refused(when: t.Any) -> None:
    with pytest.raises(ClusterError, match="`when` of an item of `links`"):
        wanted_items({"links": [{"path": "/a", "when": when}]})


def test_the_parameters_are_left_as_they_were() -> None:
    params = {"links": [{"path": "/a", "when": False}, {"path": "/b", "when": True}]}
    wanted_items(params)
    assert params == {"links": [{"path": "/a", "when": False}, {"path": "/b", "when": True}]}


def request(**parts: t.Any) -> dict[str, t.Any]:
    return {key: parts.get(key, []) for key in LISTS}


def file_entry(**parts: t.Any) -> dict[str, t.Any]:
    return {"path": "/f", "content": "new\n", "secret_content": None, "sensitive": False, "mode": "0644", **parts}


@pytest.mark.parametrize("path", ["relative", "/a/../b", "/a//b", "/a/./b", "//a", "/a\nb", ""])
def test_a_path_that_could_surprise_is_refused(path: str) -> None:
    with pytest.raises(ClusterError):
        check_path(path)


@pytest.mark.parametrize(("path", "clean"), [("/a/b", "/a/b"), ("/a/b/", "/a/b"), ("/", "/")])
def test_a_plain_path_is_accepted(path: str, clean: str) -> None:
    assert check_path(path) == clean


@pytest.mark.parametrize("mode", ["420", "644", "u+x", "0o644", "09", "", "064444"])
def test_a_mode_must_be_octal_and_quoted(mode: str) -> None:
    with pytest.raises(ClusterError, match="Quote it"):
        check_mode(mode, "/f")


def test_modes_are_compared_with_four_digits() -> None:
    assert (check_mode("0644", "/f"), check_mode("01777", "/f")) == ("0644", "1777")


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ("/", "will not be removed"),
        ({"path": "/etc", "recursive": True}, "will not be removed"),
        ({"path": "/a/b", "recursiv": True}, "unknown key"),
        ({"path": "/a/b", "recursive": "yes"}, "true or false"),
        ({"path": "/a/*", "pattern": True}, "last part that is a name"),
        ({"path": "/a/*/b", "pattern": True, "recursive": True}, "never recursive"),
        ({"recursive": True}, "Give a path"),
        (7, "Give a path"),
    ],
)
def test_dangerous_or_misspelled_removals_are_refused(item: t.Any, says: str) -> None:
    with pytest.raises(ClusterError, match=says):
        parse_absent([item])


@pytest.mark.parametrize("kind", ["directories", "archives", "files", "links"])
def test_nothing_is_wanted_below_what_is_to_go_with_all_that_it_holds(kind: str) -> None:
    """It would be taken away in one run and put back in the next."""
    item = {
        "directories": {"path": "/opt/tool/x", "mode": "0755"},
        "archives": {"path": "/opt/tool/x", "src": "/y", "sha256": "0" * 64},
        "files": file_entry(path="/opt/tool/x", validate=[]),
        "links": {"path": "/opt/tool/x", "target": "y"},
    }[kind]
    whole = {"path": "/opt/tool", "recursive": True}
    with pytest.raises(
        ClusterError, match=f"/opt/tool is listed under absent with all that it holds, and /opt/tool/x under {kind}"
    ):
        request_of(request(absent=[whole], **{kind: [item]}))
    # Beside it, and below what goes only when it is empty.
    request_of(request(absent=[{**whole, "path": "/opt/too"}], **{kind: [item]}))
    request_of(request(absent=[{"path": "/opt/tool", "if_empty": True}], **{kind: [item]}))


def test_a_path_may_be_listed_only_once() -> None:
    with pytest.raises(ClusterError, match="listed under absent and links"):
        request_of(request(absent=["/a/b"], links=[{"path": "/a/b/", "target": "x"}]))


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
        request_of(request(archives=[{"path": "/opt/x", **entry}]))


def test_validate_needs_a_place_for_the_name() -> None:
    with pytest.raises(ClusterError, match="has no %s"):
        request_of(request(files=[file_entry(validate=["visudo", "-c"])]))


@pytest.mark.parametrize("source", ["src", "template", "program"])
def test_what_only_the_action_brings_is_refused_without_it(source: str) -> None:
    with pytest.raises(ClusterError, match=f"The `{source}` of /f is on the controller"):
        request_of(request(files=[file_entry(content=None, validate=[], **{source: "x"})]))


def test_a_file_without_content_is_refused_and_not_written_as_the_word_none() -> None:
    with pytest.raises(ClusterError, match="/f has no content"):
        request_of(request(files=[file_entry(content=None, validate=[])]))


@given(st.text(max_size=40))
def test_no_text_at_all_makes_a_path_out_of_the_root(text: str) -> None:
    try:
        path = check_path(text)
    except ClusterError:
        return
    assert path.startswith("/")
    assert ".." not in path.split("/")
