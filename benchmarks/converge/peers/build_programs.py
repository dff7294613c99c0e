# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build programs of nodes into a directory: ``build_programs.py DIRECTORY NAME=INTERPRETER...``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / ".venv/collections"))

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._programs import build

directory = Path(sys.argv[1])
directory.mkdir(parents=True, exist_ok=True)
for name, _equals, interpreter in (argument.partition("=") for argument in sys.argv[2:]):
    (directory / name).write_bytes(build(name, interpreter))
