# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of gpu-bind and gpu-bind-check share: the programs, a pretended sysfs, a pretended nvidia-smi."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import subprocess
import sys
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._programs import build

GPU_BIND = Path(__file__).parents[3] / "roles/numa_pinning/files/gpu-bind"
ALLOWED = sorted(os.sched_getaffinity(0))


@dataclasses.dataclass
class Bench:
    """A directory with gpu-bind-check, a sysfs, an nvidia-smi and a map; processes and their /proc are real."""

    root: Path

    def __post_init__(self) -> None:
        self.program = self.root / "gpu-bind-check"
        self.program.write_bytes(build("gpu-bind-check", sys.executable))
        self.program.chmod(0o755)
        self.smi, self.map = self.root / "nvidia-smi", self.root / "map"
        self.sysfs = self.root / "sys"
        self.gpus: list[str] = []
        self.apps: list[tuple[str, int]] = []

    def numa(self, number: int, cpus: str) -> Bench:
        node = self.sysfs / f"devices/system/node/node{number}"
        node.mkdir(parents=True)
        (node / "cpulist").write_text(cpus + "\n")
        # The memory that processes may use is real, and all test machines have it on node 0.
        (node.parent / "has_memory").write_text("0\n")
        return self

    def gpu(self, index: int, bus_id: str, numa: int | None) -> Bench:
        """A GPU as the driver and the kernel spell it; ``numa`` None: no such PCI function."""
        self.gpus.append(f"{index}, GPU-{index}, 0000{bus_id.upper()}")
        if numa is not None:
            device = self.sysfs / "bus/pci/devices" / bus_id
            device.mkdir(parents=True)
            (device / "numa_node").write_text(f"{numa}\n")
        return self

    def uses(self, gpu: int, pid: int) -> None:
        self.apps.append((f"GPU-{gpu}", pid))

    def write_smi(self) -> None:
        apps = [f"{uuid}, {pid}" for uuid, pid in self.apps]
        new = self.root / "nvidia-smi.new"
        new.write_text(
            "#!/bin/sh\ncase $1 in\n"
            f"--query-gpu=*) printf '%s\\n' {shlex.join(self.gpus) or ''} ;;\n"
            f"--query-compute-apps=*) printf '%s\\n' {shlex.join(apps) or ''} ;;\nesac\n"
        )
        new.chmod(0o755)
        new.replace(self.smi)

    def options(self) -> list[str]:
        return ["--sysfs", str(self.sysfs), "--nvidia-smi", str(self.smi), "--map", str(self.map)]

    def check(self, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        if self.gpus:
            self.write_smi()
        return subprocess.run(
            [str(self.program), *self.options(), *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=env,
            timeout=60,
        )

    def report(self, *arguments: str, rc: int) -> dict[str, t.Any]:
        done = self.check("--json", *arguments)
        assert done.returncode == rc, done.stdout + done.stderr
        return json.loads(done.stdout)


def kinds(report: dict[str, t.Any]) -> set[tuple[str, str]]:
    return {(finding["kind"], finding["verdict"]) for finding in report["findings"]}
