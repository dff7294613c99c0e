# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The program that runs on every node."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond import agent, processes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.nodes import text_of


def source() -> str:
    """The agent's text, after that of the module that it imports, which is made known by its name."""
    lines = [
        "import sys, types",
        f"_module = sys.modules[{processes.__name__!r}] = types.ModuleType({processes.__name__!r})",
        f"exec({text_of(processes)!r}, _module.__dict__)",
        f"_agent = types.ModuleType({agent.__name__!r})",
        f"exec({text_of(agent)!r}, _agent.__dict__)",
    ]
    return "\n".join(lines)


__all__ = ["source"]
