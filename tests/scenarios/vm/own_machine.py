# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine that the tests of this process work on.

``LAB_VM_NODE=vm-2`` names it. With ``pytest --numprocesses 2`` every process has one of its own. Otherwise all machines
are this process's, and tests of one machine take the first.
"""

from __future__ import annotations

import os

_NAMED = os.environ.get("LAB_VM_NODE", "")
_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
# Whether the other machines belong to somebody else.
SHARED = bool(_NAMED or _WORKER)
NODE = _NAMED or f"vm-{1 + int(_WORKER.removeprefix('gw') or 0)}"

__all__ = ["NODE", "SHARED"]
