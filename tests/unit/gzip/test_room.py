# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether there is room for what is to be brought, inflated files included."""

from __future__ import annotations

import pathlib
import types

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip import room
from hypothesis import given
from hypothesis import strategies as st


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 300))
def test_what_cannot_fit_is_refused_and_what_may_not_is_said(plain: int, packed: int, free: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "shutil", types.SimpleNamespace(disk_usage=lambda _path: types.SimpleNamespace(free=free)))
        if plain + packed > free:
            with pytest.raises(ClusterError) as caught:
                room.check_room("/", plain + packed, packed)
            assert caught.value.kind == "disk_full"
            return
        notes = room.check_room("/", plain + packed, packed)
    needed = room.assumed_bytes(plain + packed, packed)
    assert needed == plain + 2 * packed
    assert [str(needed) in note and "2" in note for note in notes] == [True] * (free < needed)


def test_what_is_not_there_yet_is_judged_by_the_directory_that_will_hold_it(tmp_path: pathlib.Path) -> None:
    assert room.check_room(str(tmp_path / "not/yet/there"), 1, 1) == []
    with pytest.raises(ClusterError, match="not/yet/there"):
        room.check_room(str(tmp_path / "not/yet/there"), 1 << 62, 0)
