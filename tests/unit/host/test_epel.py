# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What enables EPEL, and where that is wanted."""

from __future__ import annotations

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.distribution import Distribution
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.epel import how_to_enable, lacking_epel

ROCKY, RHEL, ORACLE = Distribution("rocky", "9.5"), Distribution("rhel", "8.10"), Distribution("ol", "8.10")


@pytest.mark.parametrize(
    ("dist", "name"),
    [(ROCKY, "epel-release"), (RHEL, ""), (ORACLE, "oracle-epel-release-el8"), (Distribution("", ""), "")],
)
def test_what_enables_epel(dist: Distribution, name: str) -> None:
    assert lacking_epel(dist, {"bash"}) == name
    for there in ("dkms", "epel-release"):
        assert lacking_epel(dist, {there}) == ""


@pytest.mark.parametrize(("dist", "remedy"), [(ROCKY, "set `epel: true`"), (RHEL, "epel-release-latest-8.noarch.rpm")])
def test_what_a_node_can_do_is_said(dist: Distribution, remedy: str) -> None:
    assert remedy in how_to_enable(dist)
