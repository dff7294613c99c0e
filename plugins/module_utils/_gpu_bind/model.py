# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is seen of a node and of the processes of a job on it, and what is found wrong."""

from __future__ import annotations

import dataclasses
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._ranges import format_ranges, parse_ranges


@dataclasses.dataclass(frozen=True)
class Request:
    """What to look at. Without ``pids`` and ``name`` all processes that nvidia-smi lists; ``memory``: also where theirs is."""

    pids: tuple[int, ...] = ()
    name: str = ""
    memory: bool = False
    map: Path = Path("/etc/gpu-bind/map")
    nvidia_smi: str = "nvidia-smi"
    timeout_s: float = 20
    sysfs: Path = Path("/sys")
    procfs: Path = Path("/proc")


@dataclasses.dataclass
class Gpu:
    """``minor`` is the N of its /dev/nvidiaN; None where neither driver nor map tells it. ``pids`` are its users."""

    index: int
    uuid: str
    bus_id: str
    numa: int | None = None
    numa_from: str = ""
    minor: int | None = None
    pids: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Thread:
    """``cpus`` are those that it may run on, ``last_cpu`` the one that it ran on last."""

    tid: int
    name: str
    cpus: set[int]
    state: str
    last_cpu: int | None


@dataclasses.dataclass
class Process:
    """``policy`` and ``memory`` are None where the kernel does not show them to this user. ``shows_no_gpu``: its environment
    says that it is to use none."""

    pid: int
    parent: int
    command: str
    cpus: set[int]
    mems: set[int]
    threads: list[Thread]
    rank: int | None = None
    gpus: list[Gpu] = dataclasses.field(default_factory=list)
    gpus_from: str = ""
    shows_no_gpu: bool = False
    policy: str | None = None
    memory_mib: dict[int, int] | None = None


@dataclasses.dataclass
class Finding:
    """``verdict`` is fail, warn or incomplete; ``what`` happened to the process or GPU, and what to do about it."""

    kind: str
    verdict: str
    what: str
    remedy: str
    pid: int | None = None
    gpu: int | None = None


@dataclasses.dataclass
class Node:
    """``cpus`` by NUMA node; ``memory``: the NUMA nodes that have some."""

    cpus: dict[int, set[int]]
    memory: set[int]
    gpus: list[Gpu]
    findings: list[Finding]

    def near(self, numbers: t.Iterable[int]) -> set[int]:
        """The CPUs of these NUMA nodes."""
        return {cpu for number in numbers for cpu in self.cpus.get(number, set())}

    def numa_of(self, cpus: set[int]) -> list[int]:
        """The NUMA nodes that have some of these CPUs."""
        return [number for number, mine in sorted(self.cpus.items()) if cpus & mine]


@dataclasses.dataclass
class Map:
    """The map of gpu-bind: places of each rank's GPUs; NUMA node and UUID of each GPU; the numbers of their devices.

    ``damaged`` are lines that tell none of this and should.
    """

    ranks: dict[int, list[int]] = dataclasses.field(default_factory=dict)
    gpus: dict[int, tuple[int | None, str]] = dataclasses.field(default_factory=dict)
    minors: dict[int, int] = dataclasses.field(default_factory=dict)
    damaged: list[str] = dataclasses.field(default_factory=list)


def parse_set(text: str) -> set[int]:
    """``0-3,8-11`` as the kernel writes it."""
    return set(parse_ranges(text))


def format_set(numbers: t.Iterable[int]) -> str:
    """The reverse, for people: ``none`` where there are none."""
    return format_ranges(numbers) or "none"


__all__ = ["Finding", "Gpu", "Map", "Node", "Process", "Request", "Thread", "format_set", "parse_set"]
