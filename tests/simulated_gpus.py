# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes with the lab's simulated GPUs, for tests that do much with them: what starting Python costs is spent where it proves something.

``tests/unit/node/test_gpu_simulator.py`` runs the simulator's programs as the lab does.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
from pathlib import Path

SIMULATOR = Path(__file__).resolve().parent / "lab/gpu_simulator"
#: In place of the program, which Python would compile at every start. The name of the variable tells whose it is.
_STARTER = """#!/usr/bin/python3 -IS
# Reads GPU_SIMULATOR_STATE.
import sys

sys.path.insert(0, {folder!r})
from simulated_nvidia_smi import main

main()
"""


def simulate(root: Path, program: str, *arguments: str) -> None:
    """Run ``install.py``, ``fault.py`` or ``process.py`` of the simulator on the node whose files lie below ``root``."""
    before = sys.argv
    sys.argv = [program, "--root", str(root), *arguments]
    sys.path.insert(0, str(SIMULATOR))
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            importlib.import_module(program.removesuffix(".py")).main()
    finally:
        sys.path.remove(str(SIMULATOR))
        sys.argv = before


def install(root: Path, machine_type: str, *arguments: str, seed: str = "node") -> None:
    """Put GPUs of this machine type into the node."""
    simulate(root, "install.py", "--machine-type", machine_type, "--seed", seed, *arguments)
    folder = root / "usr/lib/gpu-simulator"
    folder.mkdir(parents=True, exist_ok=True)
    program, source = root / "usr/bin/nvidia-smi", folder / "simulated_nvidia_smi.py"
    if not source.exists():
        source.write_bytes(program.read_bytes())
    program.write_text(_STARTER.format(folder=str(folder)), encoding="utf-8")


__all__ = ["SIMULATOR", "install", "simulate"]
