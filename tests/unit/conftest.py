# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of all unit tests."""

from __future__ import annotations

import hypothesis
import pytest
from import_closure import touches_ansible

# How long an example takes says more about what else the machine does than about the code.
hypothesis.settings.register_profile("patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    what = "folders, joined by commas: leave the slow tests of all others out, and those that start AzCopy"
    parser.addoption("--slow-of", default="", help=what)


@pytest.hookimpl(tryfirst=True)  # before -m takes its choice
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # To read what all tests import takes seconds.
    for item in items if "ansible" in config.option.markexpr else ():
        if touches_ansible(item.path):
            item.add_marker("ansible")
    if config.option.slow_of:
        wanted = tuple(f"{config.rootpath}/{folder}/" for folder in config.option.slow_of.split(","))
        left = [item for item in items if _is_slow(item) and not str(item.path).startswith(wanted)]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in set(left)]


def _is_slow(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("slow", "blob"))
