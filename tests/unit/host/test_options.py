# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module's parameters as a dataclass."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.options import (
    from_options,
    require_absolute,
)


@dataclasses.dataclass(frozen=True)
class Disk:
    name: str
    models: tuple[str, ...] = ("any",)
    settings: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)


def test_lists_become_tuples_and_other_options_are_left_out() -> None:
    options = {"name": "scratch", "models": ["a", "b"], "settings": {"c": [1]}, "state": "present"}
    assert from_options(Disk, options) == Disk("scratch", ("a", "b"), {"c": [1]})


def test_a_field_that_is_given_is_not_read_from_the_options() -> None:
    options = {"name": "scratch", "models": "no list", "settings": {}}
    assert from_options(Disk, options, models=("c",)) == Disk("scratch", ("c",))
    assert from_options(Disk, {"name": "scratch", "settings": {}}, models=("c",)).models == ("c",)


def test_a_field_without_its_option_is_an_error_of_the_code_also_where_it_has_a_default() -> None:
    with pytest.raises(KeyError, match="models"):
        from_options(Disk, {"name": "scratch", "settings": {}})


def test_a_relative_path_is_refused_by_the_name_of_its_option() -> None:
    options = {"map": "/etc/gpu-bind/map", "gres_conf": "", "gpu_bind": "bin/gpu-bind"}
    require_absolute(options, "map", "gres_conf", "other")
    with pytest.raises(ClusterError, match=r"`gpu_bind`: 'bin/gpu-bind' is not an absolute path\."):
        require_absolute(options, "map", "gres_conf", "gpu_bind")
