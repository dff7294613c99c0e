# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of packages, and which of them are there."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.packages import (
    package_names,
)


@pytest.mark.parametrize(
    "item", ["a=1", "-y", "a b", {"deb": "x"}, {}, {"dpkg": 1}, {"name": "a", "rpm": "b"}, {"rpm": ["-y"]}, 3]
)
def test_package_names_are_bare(item: t.Any) -> None:
    with pytest.raises(ClusterError):
        package_names([item], "dpkg")


def test_package_names_differ_by_system() -> None:
    items = ["tar", {"dpkg": "openssh-client", "rpm": "openssh-clients"}, {"dpkg": "libsecret-1-0"}, "tar"]
    assert package_names(items, "dpkg") == ["tar", "openssh-client", "libsecret-1-0"]
    assert package_names(items, "rpm") == ["tar", "openssh-clients"]


def test_one_item_may_name_several_packages() -> None:
    items = [{"name": ["tar", {"dpkg": "bzip2", "rpm": ["bzip2", "bzip2-libs"]}]}, {"name": "tar"}, {"name": []}]
    assert package_names(items, "dpkg") == ["tar", "bzip2"]
    assert package_names(items, "rpm") == ["tar", "bzip2", "bzip2-libs"]
