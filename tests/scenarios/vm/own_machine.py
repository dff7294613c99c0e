# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine that the tests of this process work on: with ``pytest --numprocesses 2`` every process has one of its own."""

from __future__ import annotations

import os

SHARED = "PYTEST_XDIST_WORKER" in os.environ
NODE = f"vm-{1 + int(os.environ.get('PYTEST_XDIST_WORKER', 'gw0').removeprefix('gw'))}"

__all__ = ["NODE", "SHARED"]
