# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Globs that choose blobs, against examples and a second reading of their rules."""

from __future__ import annotations

import re
import signal
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob import automaton
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.automaton import Automaton
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.catalogue import build_manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.choice import Choice, _pieces, translate
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from hypothesis import given
from hypothesis import strategies as st
from lab.list_server import in_process

NAMES = ["a.idx", "a.rec", "train/a.idx", "train/a.rec", "train/deep/b.rec", "retrain/c.rec", "val/train/d.rec"]


def chosen(glob: str, names: t.Iterable[str] = NAMES) -> list[str]:
    expression = re.compile(translate(glob), re.DOTALL)
    return [name for name in names if expression.fullmatch(name)]


@pytest.mark.parametrize(
    ("glob", "names"),
    [
        ("*.idx", ["a.idx", "train/a.idx"]),
        ("/*.idx", ["a.idx"]),
        ("a.?ec", ["a.rec", "train/a.rec"]),
        ("train/*.rec", ["train/a.rec", "val/train/d.rec"]),
        ("/train/*.rec", ["train/a.rec"]),
        ("/train/**.rec", ["train/a.rec", "train/deep/b.rec"]),
        ("/train/**/*.rec", ["train/a.rec", "train/deep/b.rec"]),
        ("**/a.rec", ["a.rec", "train/a.rec"]),
        ("train/", ["train/a.idx", "train/a.rec", "train/deep/b.rec", "val/train/d.rec"]),
        ("/train/", ["train/a.idx", "train/a.rec", "train/deep/b.rec"]),
        ("train", []),
        ("{train,val}/*.{rec,idx}", ["train/a.idx", "train/a.rec", "val/train/d.rec"]),
        ("[b-d].rec", ["train/deep/b.rec", "retrain/c.rec", "val/train/d.rec"]),
        ("[!a].rec", ["train/deep/b.rec", "retrain/c.rec", "val/train/d.rec"]),
        ("*.REC", []),
        ("**", NAMES),
    ],
)
def test_globs_are_those_of_rclone(glob: str, names: list[str]) -> None:
    assert chosen(glob) == names


@pytest.mark.parametrize("name", ["a*b", "a?b", "a[b", "a]b", "a{b,c}", "a\\b", "a.b", "^a$", "a|b", "a-b", "ü\nx"])
def test_any_name_can_be_written_as_a_glob_of_its_own(name: str) -> None:
    glob = "".join(f"\\{letter}" if letter in "*?[]{}\\" else letter for letter in name)
    assert chosen(f"/{glob}", [name, f"x{name}", f"{name}x", "aab", "ab"]) == [name]


@pytest.mark.parametrize("glob", ["", "/", "[", "[a", "[]", "[z-a]", "a\\", "{a", "a}", "{{a}}", "[\\"])
def test_a_malformed_glob_is_refused_by_its_name(glob: str) -> None:
    with pytest.raises(ClusterError, match=re.escape(repr(glob))) as caught:
        Choice([glob])
    assert caught.value.kind == "bad_input"


def matches(glob: str, name: str, beginning: bool = True) -> bool:
    """The rules again, read character by character. ``beginning``: a path component begins here."""
    if not glob:
        return not name
    rest = glob.lstrip("*")
    stars = len(glob) - len(rest)
    if stars > 1 and beginning and rest.startswith("/"):
        ends = [0, *(place + 1 for place, letter in enumerate(name) if letter == "/")]
        return any(matches(rest[1:], name[end:]) for end in ends)
    if stars:
        for end in range(len(name) + 1):
            if stars == 1 and "/" in name[:end]:
                return False
            if matches(rest, name[end:], beginning=False):
                return True
        return False
    if not name:
        return False
    if glob.startswith("[!a]"):
        return name[0] not in "a/" and matches(glob[4:], name[1:], beginning=False)
    if glob[0] == "?":
        return name[0] != "/" and matches(glob[1:], name[1:], beginning=False)
    return glob[0] == name[0] and matches(glob[1:], name[1:], beginning=glob[0] == "/")


@given(
    st.lists(st.sampled_from(["a", "b", "/", "*", "**", "?", "[!a]"]), min_size=1, max_size=6).map("".join),
    st.text("ab/", min_size=1, max_size=7),
)
def test_a_glob_means_what_its_rules_say(glob: str, name: str) -> None:
    body = glob[1:] if glob.startswith("/") else glob
    if body in ("", "/"):
        return
    body += "**" if body.endswith("/") else ""
    starts = [0] if glob.startswith("/") else [0, *(place + 1 for place, letter in enumerate(name) if letter == "/")]
    assert bool(chosen(glob, [name])) == any(matches(body, name[start:]) for start in starts)


@given(st.text(max_size=8), st.text(max_size=8))
def test_no_glob_ends_in_anything_but_an_answer_or_a_refusal(glob: str, name: str) -> None:
    try:
        choice = Choice([glob])
    except ClusterError:
        return
    assert choice.takes(name) == bool(chosen(glob, [name]))


_PIECES = ["a", "b", "/", "*", "**", "?", "[!a]", "[a-b]", "{", ",", "}"]


@given(st.lists(st.sampled_from(_PIECES), min_size=1, max_size=9).map("".join), st.text("ab/", min_size=1, max_size=9))
def test_both_ways_to_match_agree(glob: str, name: str) -> None:
    try:
        pieces = _pieces(glob)
    except ClusterError:
        return
    assert Automaton(pieces).fullmatch(name) == bool(chosen(glob, [name]))


def test_an_automaton_forgets_before_it_takes_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automaton, "_MOST_STEPS", 3)
    machine = Automaton(_pieces("*a*b*c"))
    for name, fits in (("xaybzc", True), ("c/abc", True), ("acb", False), ("abca", False)) * 2:
        assert machine.fullmatch(name) is fits
        assert len(machine._nodes) <= 5


@pytest.mark.parametrize(
    ("glob", "name"),
    [
        ("*a*a*a*a*b", "a" * 1000),
        ("**a**a**a**b", "a/" * 500),
        ("/**/a/**/a/**/a/b", "a/" * 500),
        ("{a,aa}" * 20 + "b", "a" * 40),
        ("*_*_*_*.gz", "_" * 1000),
    ],
)
def test_no_glob_takes_long(glob: str, name: str) -> None:
    """Python's own expressions need minutes for these; 1,024 characters are the most that a blob's name has."""

    def too_long(_number: int, _frame: t.Any) -> None:
        raise TimeoutError(glob)

    before = signal.signal(signal.SIGVTALRM, too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, 5)
    try:
        assert not Choice([glob]).takes(name)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def staged(names: list[str], prefix: str = "", **globs: list[str]) -> list[str]:
    with in_process(names) as server:
        choices = [Choice(**globs)]
        return [blob.name for blob in build_manifest([{"url": server.url, "prefix": prefix}], choices=choices).blobs]


def test_a_dataset_has_what_is_included_and_not_excluded() -> None:
    assert staged(NAMES, include=["*.rec"], exclude=["/train/"]) == ["a.rec", "retrain/c.rec", "val/train/d.rec"]
    assert staged(NAMES, exclude=["*.rec"]) == ["a.idx", "train/a.idx"]
    assert staged(NAMES) == sorted(NAMES)


def test_globs_see_the_path_below_the_prefix() -> None:
    assert staged(NAMES, prefix="train", include=["/a.*"]) == ["a.idx", "a.rec"]
    with pytest.raises(ClusterError, match=r"'/train/\*'"):
        staged(NAMES, prefix="train", include=["/train/*"])


def test_each_source_has_its_own_globs() -> None:
    with in_process(["a", "b"]) as one, in_process(["b", "c"]) as two:
        sources = [{"url": server.url, "prefix": ""} for server in (one, two)]
        blobs = build_manifest(sources, choices=[Choice(exclude=["b"]), Choice()]).blobs
    assert [(blob.name, blob.source) for blob in blobs] == [("a", 0), ("b", 1), ("c", 1)]


@pytest.mark.parametrize(
    ("globs", "fragment"),
    [
        ({"include": ["*.rec", "*.jpg", "vall/"]}, r"'\*\.jpg', 'vall/'"),
        ({"exclude": ["**"]}, "leaves no blob"),
    ],
)
def test_a_choice_of_nothing_is_named(globs: dict[str, list[str]], fragment: str) -> None:
    with pytest.raises(ClusterError, match=fragment) as caught:
        staged(NAMES, **globs)
    assert caught.value.kind == "no_match"


def test_a_glob_that_chooses_nothing_is_shown_a_name_that_is_there() -> None:
    """What `upload` stores compressed has a longer name in the container than where it is staged."""
    stored = ["LICENSE", "train/f1.tfrecord.gz", "train/f2.tfrecord.gz"]
    with pytest.raises(
        ClusterError, match=r"'/train/f\*\.tfrecord'\. There is 'train/f1\.tfrecord\.gz': a glob has to"
    ):
        staged(stored, include=["LICENSE", "/train/f*.tfrecord"])
    with pytest.raises(ClusterError, match=r"'\*\.jpg'\. There is 'LICENSE', for example\."):
        staged(stored, include=["*.jpg"])


def test_an_exclude_that_excludes_nothing_is_known() -> None:
    choice = Choice(include=["*.rec"], exclude=["*.idx", "/a.rec", "*.jpg"])
    assert [name for name in NAMES if choice.takes(name)] == ["train/a.rec", "train/deep/b.rec", *NAMES[5:]]
    assert choice.idle_excludes == ["*.idx", "*.jpg"]
