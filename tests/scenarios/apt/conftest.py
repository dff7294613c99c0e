# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes of Ubuntu 22.04 and 24.04 with the real dpkg and apt, for each test one of its own."""

from __future__ import annotations

import typing as t

import pytest
from lab.layered_node.node import workplace
from ubuntu_modules import Nodes


@pytest.fixture(scope="session")
def nodes() -> t.Iterator[Nodes]:
    with workplace("apt.") as work:
        yield Nodes(work)
