# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes of EL 8, 9 and 10 with the real rpm and dnf, for each test one of its own."""

from __future__ import annotations

import typing as t

import pytest
from el_modules import Nodes
from lab.layered_node.node import workplace


@pytest.fixture(scope="session")
def nodes() -> t.Iterator[Nodes]:
    with workplace("dnf.") as work:
        yield Nodes(work)
