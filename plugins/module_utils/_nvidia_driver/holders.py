# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Who holds the GPUs, by the control group of a process: a service, a container, a job of Slurm, or somebody's program. Pure."""

from __future__ import annotations

import dataclasses
import re

FABRIC_MANAGER = "nvidia-fabricmanager.service"
#: Services that keep the driver open by themselves. Whoever unloads it stops them for that time, so they are no users.
SERVICES = ("nvidia-dcgm.service", "dcgm.service", FABRIC_MANAGER, "nvidia-persistenced.service")
# Their programs, as the kernel cuts the names: for processes of which nothing else is known.
_PROGRAMS = frozenset(
    {"nvidia-persistenced", "nvidia-persiste", "nv-fabricmanager", "nv-fabricmanage", "nv-hostengine"}
)
# slurmstepd makes .../job_12/step_0/... below its scope, or below /slurm with version 1 of control groups (slurm's cgroup plugins).
_JOB = re.compile(r"/job_(\d+)(?:/|$)")
# A part of the path for each container: with systemd as the manager, or by Docker itself. crun puts what it starts one below.
_CONTAINER = re.compile(
    r"(?:^|/)(?:(docker|libpod|cri-containerd|crio)[-/])([0-9a-f]{12})[0-9a-f]{52}(?:\.scope)?(?:/container)?$"
)
_STOPS = {"docker": "docker stop", "libpod": "podman stop", "cri-containerd": "crictl stop", "crio": "crictl stop"}


@dataclasses.dataclass(frozen=True)
class Holder:
    """A process that holds a GPU open. ``group``: its control group, as /proc/<pid>/cgroup has it; empty where that is not known."""

    program: str
    pid: str
    group: str = ""

    @property
    def is_ours(self) -> bool:
        """Whether it goes with a service that is stopped before the driver is unloaded."""
        if not self.group:
            return self.program in _PROGRAMS
        return self._service in SERVICES

    @property
    def _service(self) -> str:
        parts = self.group.rstrip("/").split("/")
        named = [part for part in parts if part.endswith((".service", ".scope"))]
        # What a session starts is the user's, whatever manages it.
        mine = any(part.startswith("user@") for part in parts)
        return named[-1] if named and named[-1].endswith(".service") and not mine else ""

    @property
    def way(self) -> str:
        """What ends it, as a command."""
        job, container = _JOB.search(self.group), _CONTAINER.search(self.group)
        if job:
            return f"scancel {job[1]}"
        if container:
            return f"{_STOPS[container[1]]} {container[2]}"
        return f"systemctl stop {self._service}" if self._service else f"kill {self.pid}"

    def text(self) -> str:
        """The process and what ends it."""
        return f"{self.program} ({self.pid}: `{self.way}`)"


def group_of(text: str) -> str:
    """The control group in what /proc/<pid>/cgroup says: that of version 2, or of systemd's own hierarchy; empty for the root."""
    groups = {}
    for line in text.splitlines():
        _number, controllers, path = [*line.split(":", 2), "", ""][:3]
        groups[controllers] = path if path != "/" else ""
    # Some set limits by a hierarchy of version 1 beside it, as Slurm does for devices.
    jobs = [path for path in groups.values() if _JOB.search(path)]
    return jobs[0] if jobs else groups.get("name=systemd", "") or groups.get("", "")


__all__ = ["FABRIC_MANAGER", "SERVICES", "Holder", "group_of"]
