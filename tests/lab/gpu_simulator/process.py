#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a command as a process that uses simulated GPUs, so that nvidia-smi lists it while it lives.

    python3 process.py -- sleep 60                    the GPU that CUDA would take: the first of CUDA_VISIBLE_DEVICES
    python3 process.py --gpu 2 --gpu 3 -- sleep 60    these GPUs, whatever the environment says
    python3 process.py --gpu 2 --pid 4711             a process that runs already
    python3 process.py --pid 4711 --forget            it uses none any more

Needs no root. The process is forgotten by itself when it ends.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from install import PROCESSES, STATE


def start_time(pid: int) -> str:
    """Clock ticks from boot to the process's start: tells a process from a later one with the same number."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    # The second field, the command, is in parentheses and may contain anything.
    return stat.rpartition(")")[2].split()[19]


def visible_gpu(state: dict[str, list[dict[str, object]]]) -> int:
    """The index of CUDA's device 0: CUDA_VISIBLE_DEVICES may name indices or (the beginnings of) UUIDs."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    for gpu in state["gpus"]:
        if first == str(gpu["index"]) or (first.startswith("GPU-") and str(gpu["uuid"]).startswith(first)):
            return int(str(gpu["index"]))
    raise SystemExit(f"CUDA_VISIBLE_DEVICES leaves no GPU to use: {first!r} is none of them.")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--root", type=Path, default=Path("/"))
    parser.add_argument("--gpu", type=int, action="append", default=[], metavar="INDEX", help="may be repeated")
    parser.add_argument("--memory-mib", type=int, default=512, metavar="MIB", help="on each of them (default: 512)")
    parser.add_argument("--pid", type=int, help="an existing process, instead of a command")
    parser.add_argument("--forget", action="store_true", help="with --pid")
    parser.add_argument("command", nargs="*")
    options = parser.parse_args()
    if bool(options.command) == bool(options.pid):
        parser.error("Give either a command or --pid.")
    pid = options.pid or os.getpid()
    record = options.root / PROCESSES / str(pid)
    if options.forget:
        record.unlink(missing_ok=True)
        return
    gpus = options.gpu or [visible_gpu(json.loads((options.root / STATE).read_text(encoding="utf-8")))]
    text = json.dumps({"gpus": gpus, "memory_mib": options.memory_mib, "start": start_time(pid)})
    # Renamed into place: nvidia-smi never reads half a record.
    part = record.with_name(f".{pid}")
    part.write_text(text, encoding="utf-8")
    part.replace(record)
    if options.command:
        os.execvp(options.command[0], options.command)


if __name__ == "__main__":
    main()
