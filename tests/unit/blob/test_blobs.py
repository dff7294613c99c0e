# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Blobs as lines are what a sorted list of them would be, in a quarter of its memory."""

from __future__ import annotations

import itertools
import json
import tracemalloc
import typing as t
from array import array

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob import blobs as module
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.blobs import (
    Blob,
    Blobs,
    decode,
    in_order,
    pack_all,
)
from hypothesis import given
from hypothesis import strategies as st

# A few letters make names that begin alike, and those that have to be quoted.
TEXT = st.one_of(
    st.text("ab/", max_size=4), st.text(max_size=4), st.sampled_from(["],[", "a\tb", 'a"b', "a\\b", "\x7f"])
)
BLOBS = st.lists(
    st.builds(Blob, TEXT, st.integers(0, 2**62), TEXT, TEXT, st.sampled_from(["", "gzip"]), st.integers(0, 3)),
    max_size=30,
)


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PORTION", 4)


def numbered(*numbers: int) -> list[Blob]:
    return [Blob(f"f{number:06d}", number) for number in numbers]


@pytest.mark.slow
@given(BLOBS, st.data())
def test_they_are_what_a_sorted_list_is(drawn: list[Blob], data: st.DataObject) -> None:
    wanted, blobs = sorted(drawn), Blobs.of(drawn)
    assert (list(blobs), len(blobs), bool(blobs)) == (wanted, len(wanted), bool(wanted))
    assert list(itertools.chain(*blobs.portions())) == wanted
    assert list(blobs.sizes) == [blob.size for blob in wanted]
    assert [blobs[index] for index in range(-len(wanted), len(wanted))] == [*wanted, *wanted]
    with pytest.raises(IndexError):
        blobs[len(wanted)]
    cut = data.draw(st.slices(len(wanted)))
    assert list(blobs[cut]) == wanted[cut]
    places = st.integers(0, len(wanted) - 1) if wanted else st.nothing()
    for _twice in range(2):  # what is chosen of a choice
        chosen = data.draw(st.lists(places, max_size=30) if wanted else st.just([]))
        blobs, wanted = blobs.select(chosen), [wanted[index] for index in chosen]
        places = st.integers(0, len(wanted) - 1)
        assert (list(blobs), list(blobs.sizes)) == (wanted, [blob.size for blob in wanted])
        assert [Blob(*row) for row in json.loads(blobs.as_array())] == wanted
        if not wanted:
            break


def test_all_may_be_chosen_by_a_range_or_an_array() -> None:
    blobs = Blobs.of(numbered(*range(20)))
    for indexes in (range(3, 19, 5), array("I", [3, 8, 13, 18])):
        assert list(blobs.select(indexes)) == numbered(3, 8, 13, 18)


@pytest.mark.slow
@given(st.lists(BLOBS, max_size=8))
def test_blocks_in_any_order_are_put_in_order(drawn: list[list[Blob]]) -> None:
    blocks = list(itertools.chain(*map(pack_all, drawn)))
    found = list(in_order(blocks))
    assert [blob for block in found for blob in decode(block.text)] == sorted(itertools.chain(*drawn))
    assert not blocks
    for block in found:
        lines = decode(block.text)
        assert (block.first, block.last, list(block.sizes)) == (lines[0], lines[-1], [blob.size for blob in lines])


@pytest.mark.parametrize(
    ("others", "untouched"),
    [
        ([], 50),
        (numbered(0, 1000), 50),  # the files beside many directories
        (numbered(10), 49),
    ],
    ids=["sorted", "files beside", "one in between"],
)
def test_blocks_that_no_other_reaches_into_are_not_read_again(others: list[Blob], untouched: int) -> None:
    blocks = [block for start in range(1, 201, 4) for block in pack_all(numbered(*range(start, start + 4)))]
    mixed = [*blocks[::-1], *pack_all(others)]
    found = list(in_order(mixed))
    assert sum(any(block is one for one in blocks) for block in found) == untouched


@pytest.mark.slow
def test_two_sources_with_the_same_directories_are_never_all_blobs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PORTION", 500)
    blocks = [*pack_all(numbered(*range(0, 40_000, 2))), *pack_all(numbered(*range(1, 40_000, 2)))]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        merged = sum(len(block.sizes) for block in in_order(blocks))
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert merged == 40_000
    assert peak < 40_000 * 50  # of 400 that a blob takes


@pytest.mark.slow
def test_a_blob_takes_little_more_than_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PORTION", 5000)

    def listed(number: int) -> t.Iterator[Blob]:
        for one in range(number):
            digest = f"{one:022x}=="
            yield Blob(
                f"{one // 1000:05d}/univ_ics_2019-03_a{one:08d}.tfrecord.gz", one, digest, f"0x8DE{one:012X}", "gzip"
            )

    tracemalloc.start()
    try:
        kept = Blobs.of(listed(20_000))
        used = tracemalloc.get_traced_memory()[0] / len(kept)
    finally:
        tracemalloc.stop()
    line = len(kept.as_array()) / len(kept)
    assert line < used < line + 4 + 8 + 2  # where it begins, its size, and what is there once for each block
