# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node with simulated GPUs in a directory, and the module run against it."""

from __future__ import annotations

import json
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest
import simulated_gpus
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks import smi
from ansible_collections.hpcai.gpu_cluster.plugins.modules import gpu_clocks
from module_run import run_main


class Node:
    """What a test does to a node."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.smi = str(root / "usr/bin/nvidia-smi")
        self.simulated = root / "var/lib/gpu-simulator/state.json"
        self.saved = root / "var/lib/gpu_clocks/state.json"
        self._boot_id = root / "proc/sys/kernel/random/boot_id"
        self._boot_id.parent.mkdir(parents=True)
        self.reboot()
        monkeypatch.setenv("GPU_SIMULATOR_STATE", str(self.simulated))
        monkeypatch.setenv("GPU_SIMULATOR_BOOT_ID", str(self._boot_id))
        monkeypatch.setenv("GPU_SIMULATOR_EUID", "0")
        # The module asks the kernel of this machine; here it is the node's.
        real = smi.session
        monkeypatch.setattr(smi, "session", lambda _root, driver: real(root, driver))

    def install(self, machine_type: str = "Standard_ND96asr_v4", *arguments: str) -> None:
        simulated_gpus.install(self.root, machine_type, *arguments)

    def fault(self, *arguments: str) -> None:
        simulated_gpus.simulate(self.root, "fault.py", *arguments)

    def reboot(self) -> None:
        self._boot_id.write_text(f"{uuid.uuid4()}\n", encoding="utf-8")

    def by_hand(self, *arguments: str) -> str:
        """Somebody types nvidia-smi."""
        return subprocess.run([self.smi, *arguments], check=False, capture_output=True, text=True).stdout

    def query(self, fields: str) -> list[list[str]]:
        answer = self.by_hand(f"--query-gpu={fields}", "--format=csv,noheader,nounits")
        return [line.split(", ") for line in answer.splitlines()]

    def settings(self) -> list[dict[str, Any]]:
        """What the simulated driver has: also what cannot be queried."""
        state = json.loads(self.simulated.read_text(encoding="utf-8"))
        forgotten = state["boot_id"] not in (None, self._boot_id.read_text(encoding="utf-8").strip())
        found = []
        for gpu in state["gpus"]:
            clocks, locks = gpu["clocks"], gpu["locks"]
            key = "default_applications" if forgotten else "applications"
            found.append(
                {
                    "graphics": None if forgotten else locks["graphics"],
                    "memory": None if forgotten else locks["memory"],
                    "applications": [clocks[f"{key}_mem"], clocks[f"{key}_sm"]],
                    "persistence": gpu["persistence"] and not forgotten,
                }
            )
        return found

    def module(self, check: bool = False, **options: Any) -> dict[str, Any]:
        """Run the module; ``failed`` tells how it ended."""
        arguments = {"nvidia_smi": self.smi, "state_path": str(self.saved), "_ansible_check_mode": check, **options}
        return run_main(gpu_clocks.main, arguments)


__all__ = ["Node"]
