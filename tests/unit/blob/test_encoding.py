# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is gzip, and what it is called when it is inflated, is one answer for all who ask."""

from __future__ import annotations

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.model import Settings, SourceFile, target_names
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.blobs import Blob
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.encoding import (
    inflated_name,
    is_gzip,
    stays_packed,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import final_name
from hypothesis import given
from hypothesis import strategies as st

PLAIN = st.lists(st.sampled_from(["aws-chunked", "identity", "Identity", "utf-8", "none", "", " "]), max_size=3)
NAMES = st.lists(st.sampled_from(["a", "a.gz", "A.GZ", ".gz", "b.gz.gz", "c.tgz"]), min_size=1, max_size=3).map(
    "/".join
)


@given(NAMES, PLAIN, PLAIN, st.sampled_from(["gzip", "GZIP", "x-gzip"]), st.sampled_from([",", ", ", " ,"]))
def test_codings_that_change_no_bytes_change_no_answer(
    name: str, before: list[str], after: list[str], coding: str, comma: str
) -> None:
    assert is_gzip(name, comma.join([*before, coding, *after]))
    assert is_gzip(name, comma.join(before)) == name.lower().endswith(".gz")
    assert not any(stays_packed(name, comma.join(codings)) for codings in (before, [*before, coding, *after]))
    # What is gzip twice is gzip still, once inflated.
    for others in ([*before, "br", *after], [coding, *after, coding], ["Zstd", *before]):
        assert not is_gzip(name, comma.join(others))
        assert stays_packed(name, comma.join(others))


@given(NAMES)
def test_a_copy_and_a_dataset_give_a_file_one_name(name: str) -> None:
    blob, file = Blob(name, 1), SourceFile(name, 1, "")
    assert target_names([file], Settings(decompress=True)) == {name: final_name(blob, decompress=True)}
    assert target_names([file], Settings()) == {name: final_name(blob, decompress=False)}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.gz", "a"), ("d/A.GZ", "d/A"), (".gz", ".gz"), ("d/.gz", "d/.gz"), ("a", "a"), ("gz", "gz")],
)
def test_a_name_of_nothing_but_the_suffix_keeps_it(name: str, expected: str) -> None:
    assert inflated_name(name) == expected
