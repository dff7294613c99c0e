# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The VM lab, with fixtures of tests/scenarios/vm, for tests that people run: no bin/test takes this folder."""

from __future__ import annotations

import pathlib
import sys

import pytest

# What its files import from each other.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "vm"))
from scenarios.vm.conftest import VmLab, answering, pytest_terminal_summary, vm_lab


def pytest_configure(config: pytest.Config) -> None:
    """The marker is no other folder's. In pyproject.toml it would be a part of every scenario's proof."""
    config.addinivalue_line("markers", "beegfs: needs the real BeeGFS on the machines of the VM lab")


__all__ = ["VmLab", "answering", "pytest_configure", "pytest_terminal_summary", "vm_lab"]
