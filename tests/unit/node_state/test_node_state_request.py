# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Items whose ``when`` is false are as if they were not written."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.request import LISTS, wanted_items


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
