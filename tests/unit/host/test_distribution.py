# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What /etc/os-release says."""

from __future__ import annotations

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.distribution import (
    Distribution,
    is_built_for,
    parse_os_release,
)


@pytest.mark.parametrize(
    ("text", "expected", "manager"),
    [
        (
            'PRETTY_NAME="Ubuntu 22.04.5 LTS"\nID=ubuntu\nVERSION_ID="22.04"\n',
            ("ubuntu", "22.04", "Ubuntu 22.04.5 LTS"),
            "dpkg",
        ),
        ("ID=debian\nVERSION_ID='12'\n", ("debian", "12", "debian"), "dpkg"),
        ('# ID=no\nID="rocky"\nVERSION_ID="9.5"\n', ("rocky", "9.5", "rocky"), "rpm"),
        ("ID=sles\nVERSION_ID=15.6\n", ("sles", "15.6", "sles"), ""),
        ("", ("", "", ""), ""),
    ],
)
def test_a_distribution(text: str, expected: tuple[str, str, str], manager: str) -> None:
    found = parse_os_release(text)
    assert found == Distribution(*expected)
    assert found.manager == manager


@pytest.mark.parametrize(
    ("release", "node", "fits"),
    [
        ("ubuntu24.04", ("ubuntu", "24.04"), True),
        ("ubuntu24.04", ("ubuntu", "22.04"), False),
        ("ubuntu24.04", ("rocky", "9.5"), False),
        ("redhat9", ("almalinux", "9.5"), True),
        ("redhat9", ("rhel", "10.0"), False),
        ("redhat9", ("ubuntu", "24.04"), False),
        ("rhel9.4", ("rhel", "9.6"), True),
        # No vendor builds for these, and names that are not known say nothing.
        ("ubuntu24.04", ("debian", "12"), True),
        ("suse15.6", ("ubuntu", "24.04"), True),
        ("", ("ubuntu", "24.04"), True),
    ],
)
def test_what_is_built_for_a_release_is_for_nodes_that_have_it(release: str, node: tuple[str, str], fits: bool) -> None:
    assert is_built_for(release, Distribution(*node)) is fits
