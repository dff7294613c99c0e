# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nccl-tests print, of several releases: the numbers, or why there are none; never a number that is not there."""

from __future__ import annotations

import json
import pathlib

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._health.nccl_tests import (
    Incomplete,
    Report,
    failure,
    parse,
    parse_json,
    transports,
)
from health_fleet import SIZE, text
from hypothesis import given, settings
from hypothesis import strategies as st

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
WHOLE = text("all_reduce_perf", "n0", [234.9, 235.2, 234.7])
# The table of a release before 2.13, whose column is the largest error and no count.
OLD = """#
#                                                       out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  1073741824     268435456   float     sum   8000.0  134.22  234.88  4e-07   7990.0  134.39  235.18  4e-07
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 235.03
#
"""
NOT_CHECKED = WHOLE.replace("      0 ", "    N/A ").replace("      0\n", "    N/A\n")
DOCUMENT = {
    "results": [
        {
            "size": SIZE, "count": SIZE // 4, "type": "float", "redop": "sum", "root": "-1",
            "out_of_place": {"time": 8000.0, "alg_bw": 134.22, "bus_bw": 234.88, "nwrong": "0"},
            "in_place": {"time": 8000.0, "alg_bw": 134.22, "bus_bw": 234.88, "nwrong": "N/A"},
        }
    ],
    "out_of_bounds": {"count": 0, "okay": True},
    "average_bus_bandwidth": {"bandwidth": 234.88, "okay": "unchecked"},
    "env": ["SECRET=hunter2"],
}  # fmt: skip


def test_every_row_and_every_sample_is_kept() -> None:
    found = parse(WHOLE, 3)
    assert isinstance(found, Report)
    assert found.samples == pytest.approx((234.9, 235.2, 234.7), abs=0.01)
    assert (found.wrong, found.rows[0].wrong, found.rows[0].size_bytes) == (0, 0, SIZE)
    assert found.curve == ((SIZE, pytest.approx(234.9, abs=0.01)),)


def test_old_releases_print_an_error_and_no_count() -> None:
    found = parse(OLD)
    assert isinstance(found, Report)
    assert (found.samples, found.wrong, found.rows[0].wrong) == ((pytest.approx(235.03),), 0, None)


def test_what_was_not_checked_is_not_wrong() -> None:
    found = parse(NOT_CHECKED, 3)
    assert isinstance(found, Report)
    assert found.rows[0].wrong is None


@pytest.mark.parametrize("rows", [1, 3])
def test_wrong_elements_are_counted(rows: int) -> None:
    found = parse(text("all_reduce_perf", "n0", [100.0] * rows, wrong=7), rows)
    assert isinstance(found, Report)
    assert found.wrong >= 7


@pytest.mark.parametrize("spelling", ["average_bus_bandwidth", "average_bus_bandwidith"])
def test_json_of_both_spellings(spelling: str) -> None:
    document = {key: value for key, value in DOCUMENT.items() if key != "average_bus_bandwidth"}
    document[spelling] = {"bandwidth" if spelling.endswith("width") else "bandwidith": 234.88}
    found = parse_json(json.dumps(document))
    assert isinstance(found, Report)
    assert found.samples == (pytest.approx(234.88),)
    assert "hunter2" not in repr(found)


@pytest.mark.parametrize("cut", range(0, len(WHOLE) - 30, 97))
def test_what_is_cut_off_is_incomplete(cut: int) -> None:
    assert isinstance(parse(WHOLE[:cut], 3), Incomplete)


@pytest.mark.parametrize(
    "torn",
    [
        WHOLE.replace("234.90", "23.90"),
        WHOLE.replace("float", "fl n1:7:7 [0] NCCL INFO oat", 1),
        WHOLE.replace("  235.20", "\n235.20", 1),
        "\n".join(line for line in WHOLE.splitlines() if "235.20" not in line),
        WHOLE.replace(f"{SIZE:12} ", "107374182 ", 1),
    ],
)
def test_torn_rows_are_no_numbers(torn: str) -> None:
    assert isinstance(parse(torn, 3), Incomplete)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_whatever_is_printed_nothing_is_raised_and_no_number_made_up(data: st.DataObject) -> None:
    noise = data.draw(st.text(max_size=60))
    place = data.draw(st.integers(0, len(WHOLE)))
    found = parse(WHOLE[:place] + noise + WHOLE[place + data.draw(st.integers(0, 40)) :], 3)
    if isinstance(found, Report):
        assert all(234 < one < 236 for one in found.samples)
    parse(noise)
    parse_json(noise)
    transports(noise)
    failure(noise)


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5) | st.floats(),
        lambda one: (
            st.lists(one)
            | st.dictionaries(st.sampled_from([*DOCUMENT, "size", "out_of_place", "time", "bandwidth", "count"]), one)
        ),
        max_leaves=12,
    )
)
def test_any_json_is_a_result_or_incomplete(value: object) -> None:
    assert isinstance(parse_json(json.dumps(value)), (Report, Incomplete))


@pytest.mark.parametrize(
    ("line", "networks"),
    [
        ("n0:1:1 [0] NCCL INFO Using network IB", ("IB",)),
        ("n0:1:1 [0] NCCL INFO Using network AWS Libfabric", ("AWS Libfabric",)),
        ("n0:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA", ("IB",)),
        ("n0:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0", ("Socket",)),
        ("n0:1:1 [0] NCCL INFO NET/IB : No device found.\nn0:1:1 [0] NCCL INFO Using network Socket", ("Socket",)),
        ("n0:1:1 [0] NCCL INFO Assigned NET plugin IB to comm", ("IB",)),
        ("n0:1:1 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.4<0>", ()),
    ],
)
def test_the_transport_is_what_nccl_chose(line: str, networks: tuple[str, ...]) -> None:
    assert transports(line) == networks


def test_a_failure_is_told_by_its_first_line() -> None:
    said = "# nccl-tests\nn3: Test NCCL failure common.cu:217 'unhandled system error'\n .. n3 pid 5: Test failure common.cu:1620\n---\n"
    assert failure(said) == "Test NCCL failure common.cu:217 'unhandled system error'"
