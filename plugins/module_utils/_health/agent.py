# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What runs on every node of a launch that did not end well: it reaches a node as text, through ssh, and stands on Python's own library.

``main`` takes one request as JSON and prints one answer. ``sweep`` ends what a run has left, and tells what could not be ended; ``holders``
asks the driver who still has a GPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
import typing as t

#: In the environment of everything that a run starts.
TAG = "HPCAI_HEALTH_RUN"
_GRACE_S = 3.0
_KILL_S = 5.0
#: A driver that does not answer for so long after a launch that failed is what is wrong with the node.
_NVIDIA_SMI_S = 8.0


def tagged(tag: str) -> list[int]:
    """Processes of a run that live. One that has ended and waits for its parent holds nothing."""
    wanted = f"{TAG}={tag}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                inside = wanted in file.read().split(b"\0")
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                state = file.read().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if inside and state not in ("Z", "X"):
            found.append(int(name))
    return sorted(found)


def sweep(tag: str) -> list[str]:
    """End them: first by a signal that lets GPUs be given back, then by force. What is left, as text."""
    for number, patience_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _KILL_S)):
        deadline = time.monotonic() + patience_s
        while True:
            pids = tagged(tag)
            if not pids:
                return []
            for pid in pids:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
    return [f"process {pid} ({_name(pid)}) of the check cannot be ended" for pid in tagged(tag)]


def holders(programs: t.Sequence[str]) -> list[str]:
    """Processes of these programs that the driver still lists, whatever became of them. Nothing where there is no nvidia-smi."""
    argv = ["nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_NVIDIA_SMI_S
        )
    except subprocess.TimeoutExpired:
        return [f"nvidia-smi does not answer within {_NVIDIA_SMI_S:g} s"]
    except OSError:
        return []
    found = [line.partition(", ") for line in done.stdout.splitlines()]
    names = {os.path.basename(path) for path in programs}
    return [
        f"process {pid} ({name}) still holds a GPU"
        for pid, _comma, name in found
        if os.path.basename(name.strip()) in names
    ]


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "ended"


def main(text: str) -> None:
    """Answer a request: ``left``, and which of ``programs`` are ``missing``."""
    request: dict[str, t.Any] = json.loads(text)
    missing = [path for path in request["programs"] if not os.access(path, os.X_OK)]
    left = sweep(request["tag"]) or holders(request["programs"])
    print(json.dumps({"left": left, "missing": missing}))


__all__ = ["TAG", "holders", "main", "sweep", "tagged"]
