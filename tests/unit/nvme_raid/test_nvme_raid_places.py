# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a disk is looked at: what no place meets would be overwritten."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.places import first_data, places
from hypothesis import given
from hypothesis import strategies as st

MIB = 1 << 20
sizes = st.integers(0, 1 << 47) | st.integers(0, 64 * MIB)


@given(sizes)
def test_places_lie_on_the_device_apart_and_in_order(size: int) -> None:
    found = places(size)
    end = 0
    for start, length in found:
        assert length > 0
        assert start >= end
        end = start + length
    assert end == size
    assert len(found) < 1000
    assert found == places(size)
    assert sum(length for _start, length in found) <= 7 * MIB


@given(sizes, st.data())
def test_data_is_met_that_fills_a_small_part_of_the_device_or_of_what_lies_before_it(
    size: int, data: st.DataObject
) -> None:
    begin = data.draw(st.integers(0, max(size - 1, 0)))
    length = min(size // 128, begin // 20) + 2 * 4096
    if begin + length > size:
        return
    assert any(start < begin + length and begin < start + took for start, took in places(size))


def is_met(size: int, begin: int, length: int) -> bool:
    return any(start < begin + length and begin < start + took for start, took in places(size))


@pytest.mark.parametrize(
    ("begin", "seen", "missed"), [(3 * MIB, 170 << 10, 100 << 10), (1024 * MIB, 52 * MIB, 32 * MIB)]
)
def test_the_limit_that_readme_tells_is_the_limit(begin: int, seen: int, missed: int) -> None:
    """On any disk what is longer is met wherever it begins about there, and something shorter is not."""
    step = seen // 50
    for size in (4 * 10**10, 10**12, 8 * 10**12):
        assert all(is_met(size, begin - shift * step, seen) for shift in range(40))
        assert not all(is_met(size, begin - shift * step, missed) for shift in range(40))


@pytest.mark.parametrize("size", [10**12, 512 * MIB, 8 * MIB])
def test_where_headers_lie_every_byte_is_looked_at(size: int) -> None:
    (first, head), *_between, (last, tail) = places(size)
    assert (first, head >= 2 * MIB) == (0, True)
    assert (last + tail, tail >= MIB) == (size, True)


def test_the_places_of_a_disk_do_not_repeat_at_equal_distances() -> None:
    """Stripes and allocation groups do: a grid could lie in the gaps of all of them."""
    starts = [start for start, length in places(10**12) if length == 4096 and start > 10**11]
    assert len({after - before for before, after in zip(starts, starts[1:])}) > 200


@pytest.mark.parametrize("offset", [None, 0, 4096, 3 * MIB - 1, 8 * MIB - 1])
def test_the_first_byte_that_is_found_is_named(tmp_path: Path, offset: int | None) -> None:
    path = tmp_path / "disk"
    path.touch()
    os.truncate(path, 8 * MIB)
    handle = os.open(path, os.O_RDWR)
    try:
        if offset is not None:
            # From there to the end: places lie apart.
            os.pwrite(handle, b"\x01" * (8 * MIB - offset), offset)
        found = first_data(handle)
    finally:
        os.close(handle)
    assert found is not None if offset else found == offset
    assert offset is None or (found is not None and offset <= found < offset + MIB)
