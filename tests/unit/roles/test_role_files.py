# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who reads the files of roles, and when."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_files import ROLES

_COUNT = """
import importlib
importlib.import_module("ansible_collections.hpcai.gpu_cluster.plugins.action.{}")
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_files import role_files
print(role_files.cache_info().currsize)
"""


@pytest.mark.parametrize("action", ["node_state", "role_arguments"])
def test_the_process_that_imports_an_action_has_read_all_roles(action: str) -> None:
    """A worker that read them itself would do so anew for every node and task."""
    environment = {**os.environ, "PYTHONPATH": os.environ["ANSIBLE_COLLECTIONS_PATH"]}
    done = subprocess.run(
        [sys.executable, "-c", _COUNT.format(action)], env=environment, check=True, capture_output=True, text=True
    )
    assert int(done.stdout) == len(list(ROLES.glob("*/tasks")))
