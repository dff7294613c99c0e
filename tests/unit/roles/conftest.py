# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates of roles are read as Ansible reads them."""

from __future__ import annotations

import pytest
from role_filters import add_role_filters


@pytest.fixture(autouse=True, scope="session")
def role_filters() -> None:
    add_role_filters()
