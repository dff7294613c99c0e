# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Globs: exact, disjoint, few, and understood as Go understands them."""

from __future__ import annotations

import collections
import errno
import subprocess

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._shards.patterns import (
    MAX_ARGUMENT_BYTES,
    Template,
    escape,
    fits_an_argument,
    join,
    range_globs,
    set_globs,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._shards.plan import contiguous
from hypothesis import example, given
from hypothesis import strategies as st
from lab.globs import matches, selected

from benchmarks.staging._prefixes import prefix_buckets

names_strategy = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        # The rows of Go's own documentation of path.Match and what its test suite calls corner cases.
        ("abc", "abc", True),
        ("*", "abc", True),
        ("*c", "abc", True),
        ("a*", "a", True),
        ("a*", "ab/c", False),
        ("a*/b", "a/c/b", False),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("a?c", "aéc", True),
        ("ab[c]", "abc", True),
        ("ab[b-d]", "abc", True),
        ("ab[e-g]", "abc", False),
        ("ab[^c]", "abc", False),
        ("ab[^e-g]", "abc", True),
        ("ab[d-b]", "abc", False),
        ("ab[^d-b]", "abc", True),
        ("[!a]", "!", True),
        ("[!a]", "b", False),
        ("a\\*b", "a*b", True),
        ("a\\*b", "axb", False),
        ("[\\]a]", "]", True),
        ("[\\-x]", "-", True),
        ("[x\\-]", "-", True),
        ("[x\\-]", "z", False),
        ("[a-b-c]*", "-", None),
        ("*.GZ", "a.gz", False),
        ("*_000.tfrecord.gz,*_001.tfrecord.gz", "a_000.tfrecord.gz", False),
        ("*{000,001}*", "a_000.gz", False),
        ("a\nb", "a\nb", True),
        ("*", "a\nb", True),
        ("", "", True),
        ("[", "a", None),
        ("[a", "a", None),
        ("[]a]", "]", None),
        ("[-]", "-", None),
        ("[x-]", "x", None),
        ("[-x]", "x", None),
        ("[^]", "a", None),
        ("[^bc", "a", None),
        ("a[", "a", None),
        ("a\\", "a", None),
        ("[\\", "a", None),
        ("*_0[0-", "a_00", None),
    ],
)
def test_go_semantics(pattern: str, name: str, expected: bool | None) -> None:
    if expected is None:
        with pytest.raises(ClusterError, match="malformed"):
            matches(pattern, name)
    elif "/" in pattern or "/" in name:
        # AzCopy hands only the last component to the matcher.
        assert matches(pattern.rpartition("/")[2], name) is matches(pattern.rpartition("/")[2], name.rpartition("/")[2])
    else:
        assert matches(pattern, name) is expected


@given(names_strategy, names_strategy)
@example("a[0]*?\\", "a0xy")
def test_an_escaped_name_matches_itself_alone(name: str, other: str) -> None:
    assert matches(escape(name), name)
    assert matches(escape(name), other) is (name == other)


def test_patterns_look_at_the_last_component_in_every_directory() -> None:
    assert selected("*_000.gz;b*", ["x/a_000.gz", "x/a_001.gz", "b", "b/c"]) == ["x/a_000.gz", "b"]


@given(st.integers(1, 7), st.data())
def test_range_globs_are_exact_disjoint_and_few(width: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, 10**width - 1))
    last = data.draw(st.integers(first, 10**width - 1))
    globs = range_globs(first, last, width)
    assert len(globs) <= 2 * width - 1
    assert len(join(globs)) <= 4096
    assert sum(map(_size, globs)) == last - first + 1  # with the next line: no number twice, no other number
    near = {first, last, first - 1, last + 1, 0, 10**width - 1, *data.draw(st.lists(st.integers(0, 10**width - 1)))}
    for number in sorted(number for number in near if 0 <= number < 10**width):
        assert sum(matches(glob, f"{number:0{width}d}") for glob in globs) == (first <= number <= last)


@given(st.integers(1, 3), st.data())
def test_set_globs_are_exact_and_disjoint(width: int, data: st.DataObject) -> None:
    wanted = data.draw(st.sets(st.integers(0, 10**width - 1), min_size=1, max_size=60))
    globs = set_globs([f"{number:0{width}d}" for number in sorted(wanted)])
    assert len(globs) <= len(wanted)
    assert sum(map(_size, globs)) == len(wanted)
    assert all(any(matches(glob, f"{number:0{width}d}") for glob in globs) for number in wanted)


def _size(glob: str) -> int:
    count, inside = 1, glob
    while "[" in inside:
        before, _, rest = inside.partition("[")
        digits, _, inside = rest.partition("]")
        count *= sum(matches(f"[{digits}]", str(digit)) for digit in range(10))
        inside = before + inside
    return count


@pytest.mark.parametrize(
    ("template", "indexes", "globs"),
    [
        ("*_{index:03d}.gz", range(4), ["*_00[0-3].gz"]),
        ("*_{index:03d}.gz", range(4, 8), ["*_00[4-7].gz"]),
        ("*_{index:03d}.gz", range(8, 12), ["*_00[89].gz", "*_01[01].gz"]),
        ("*_{index:03d}.gz", range(64), ["*_0[0-5][0-9].gz", "*_06[0-3].gz"]),
        ("*_{index:03d}.gz", range(0, 64, 16), ["*_000.gz", "*_016.gz", "*_032.gz", "*_048.gz"]),
        ("*_{index:03d}.gz", range(3, 64, 10), ["*_0[0-6]3.gz"]),
        ("*_{index:03d}.gz", range(998, 1002), ["*_99[89].gz", "*_100[01].gz"]),
        ("s{index}.tar", range(8, 120), ["s[89].tar", "s[1-9][0-9].tar", "s1[01][0-9].tar"]),
        ("s{index:d}.tar", range(5), ["s[0-4].tar"]),
        ("[a]{index:02}", range(1), ["[a]00"]),
        ("*_{index:03d}.gz", range(0), []),
    ],
)
def test_templates(template: str, indexes: range, globs: list[str]) -> None:
    assert Template(template).globs(indexes) == globs


@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 16, 63, 64, 65, 1000, 10_000])
def test_64_groups_over_any_ranks(ranks: int) -> None:
    template = Template("*_{index:03d}.tfrecord.gz")
    names = [
        f"train/univ_ics_2019-03_a{number:05d}_{group:03d}.tfrecord.gz" for number in (3, 7) for group in range(64)
    ]
    owners: collections.Counter[str] = collections.Counter()
    for block in contiguous(64, ranks):
        globs = template.globs(block)
        assert len(globs) <= (2 if ranks == 16 else 5)
        assert bool(globs) == bool(block)
        if globs:
            mine = selected(join(globs), names)
            assert {template.index_of(name, range(64)) for name in mine} == set(block)
            owners.update(mine)
    assert owners == collections.Counter(names)


@pytest.mark.parametrize(
    ("template", "fragment"),
    [
        ("*.gz", "exactly one"),
        ("{index}_{index}", "exactly one"),
        ("{index:3d}.gz", "not padded"),
        ("{index:04x}.gz", "exactly one"),
        ("{index:019d}", "more than 18"),
        ("{index:00d}", "more than 18|not padded"),
        ("a;{index}", "';' or a '/'"),
        ("d/{index}", "';' or a '/'"),
        ("[{index}", "malformed"),
        ("{index}\\", "malformed"),
    ],
)
def test_bad_templates(template: str, fragment: str) -> None:
    with pytest.raises(ClusterError, match=fragment) as caught:
        Template(template)
    assert caught.value.kind == "bad_input"


@pytest.mark.parametrize(
    ("template", "indexes", "allowed"),
    [
        ("*{index}.gz", range(9), True),
        ("*{index}.gz", range(11), False),
        ("*5{index}.gz", range(11), False),
        ("*_{index}.gz", range(11), True),
        ("a{index}*", range(11), False),
        ("a{index}_*", range(11), True),
        ("??{index}.gz", range(11), True),
        ("*{index:03d}.gz", range(1000), True),
        ("*{index:03d}.gz", range(1001), False),
    ],
)
def test_numbers_of_several_lengths_beside_a_wildcard(template: str, indexes: range, allowed: bool) -> None:
    if allowed:
        Template(template).check_range(indexes)
    else:
        with pytest.raises(ClusterError, match="differ in length"):
            Template(template).check_range(indexes)


@pytest.mark.parametrize(
    ("template", "name", "expected"),
    [
        ("*_{index:03d}.gz", "d/a_001_002.gz", 2),
        ("*_{index:03d}_*", "a_001_x", 1),
        ("*_{index:03d}*", "a_001_002.gz", None),
        ("*_{index:03d}.gz", "a_01.gz", None),
        ("*_{index:03d}.gz", "a_0001.gz", None),
        ("*_{index:03d}.gz", "a_064.gz", None),
        ("*_{index:03d}.gz", "a_\u0660\u0660\u0661.gz", None),
        ("s{index}.tar", "s12.tar", 12),
        ("s{index}.tar", "s012.tar", None),
    ],
)
def test_the_number_of_a_name(template: str, name: str, expected: int | None) -> None:
    if expected is None:
        with pytest.raises(ClusterError) as caught:
            Template(template).index_of(name, range(64))
        assert caught.value.kind == "bad_input"
    else:
        assert Template(template).index_of(name, range(64)) == expected


@given(st.text("a_01*", max_size=5), st.text("a_01*", max_size=5), st.text("a_01", max_size=9))
def test_a_name_has_the_number_whose_pattern_matches_it(before: str, after: str, name: str) -> None:
    template, indexes = Template(f"{before}{{index:02d}}{after}"), range(12)
    matching = [index for index in indexes if matches(template.name(index), name)]
    try:
        assert [template.index_of(name, indexes)] == matching
    except ClusterError:
        assert len(matching) != 1


def test_linux_takes_the_longest_argument_that_we_call_fitting_and_none_longer() -> None:
    longest = "x" * MAX_ARGUMENT_BYTES
    assert fits_an_argument([longest])
    assert subprocess.run(["true", longest], check=False).returncode == 0
    assert not fits_an_argument([longest + "x"])
    with pytest.raises(OSError, match="too long") as caught:
        subprocess.run(["true", longest + "x"], check=False)
    assert caught.value.errno == errno.E2BIG


def test_the_argument_limit_counts_bytes_and_separators() -> None:
    assert fits_an_argument(["x" * MAX_ARGUMENT_BYTES])
    assert not fits_an_argument(["x" * MAX_ARGUMENT_BYTES, "y"])
    assert not fits_an_argument(["ü" * (MAX_ARGUMENT_BYTES // 2 + 1)])
    assert fits_an_argument(["xx", "yy"], 5)
    assert not fits_an_argument(["xx", "yy"], 4)


@given(
    st.lists(st.text("ab/*\U0010ffff", min_size=1, max_size=6), unique=True, max_size=60),
    st.integers(1, 100),
)
def test_prefix_buckets_are_exact_and_disjoint(names: list[str], wanted: int) -> None:
    buckets, left = prefix_buckets(names, [1.0] * len(names), wanted)
    members = [index for bucket in buckets for index in bucket.members]
    assert sorted(members + left) == list(range(len(names)))
    for bucket in buckets:
        chosen = [
            index
            for index, name in enumerate(names)
            if name.rpartition("/")[0] + "/" * ("/" in name) == bucket.directory
            and name.rpartition("/")[2].startswith(bucket.pattern[:-1])
        ]
        assert chosen == bucket.members
        assert bucket.weight == pytest.approx(len(chosen))
        assert bucket.pattern.endswith("*")
        assert bucket.pattern.count("*") == 1


def test_prefix_buckets_cut_the_heaviest_first() -> None:
    names = [f"train/a{number:03d}.gz" for number in range(200)] + ["val/x", "val/y"]
    buckets, left = prefix_buckets(names, [1.0] * len(names), 4)
    assert [(bucket.directory, bucket.pattern, len(bucket.members)) for bucket in buckets][-2:] == [
        ("train/", "a1*", 100),
        ("val/", "*", 2),
    ]
    assert [len(bucket.members) for bucket in buckets] == [10] * 10 + [100, 2]
    assert left == []


def test_numbers_of_several_lengths_need_something_before_them_only_where_there_is_something() -> None:
    template = Template("{index}.gz")
    template.check_range(range(8, 13))
    assert [template.index_of(f"{number}.gz", range(8, 13)) for number in (8, 12)] == [8, 12]
