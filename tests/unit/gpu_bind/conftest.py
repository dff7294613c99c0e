# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real processes, ended with their test."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import typing as t
from pathlib import Path

import pytest
from gpu_bind_bench import Bench

Start = t.Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def start() -> t.Iterator[Start]:
    """Start a process on these CPUs: ``start("0", "sleep", "60")``; it runs when this returns."""
    processes: list[subprocess.Popen[str]] = []

    def begin(cpus: str, *argv: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        words = ["taskset", "-c", cpus, "sh", "-c", 'echo; exec "$@"', "sh", *(argv or ("sleep", "60"))]
        process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert process.stdout
        process.stdout.readline()
        processes.append(process)
        return process

    yield begin
    for process in processes:
        # With what it started: a child that lives on would keep the pipe open.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
