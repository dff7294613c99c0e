#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make simulated GPUs fail, or heal them. Each call replaces the faults of the one before.

python3 fault.py --lost 3                  the driver answers [GPU is lost] for GPU 3
python3 fault.py --no-handle 3 --exit 15   GPU 3 fell off the bus
python3 fault.py --hang 3600               nvidia-smi does not come back
python3 fault.py --no-permission           nobody may change a setting
python3 fault.py --no-memory-lock 0 1      these GPUs cannot lock their memory clock (also --no-graphics-lock, --no-applications)
python3 fault.py --deaf 2                  GPU 2 accepts every setting and does not move
python3 fault.py --stuck 2                 changing a setting of GPU 2 does not come back
python3 fault.py --no-reset 0 1            the hypervisor lets nobody reset these GPUs
python3 fault.py --no-mig 2 --no-ecc 3     from now on these GPUs have no such mode, as if they were of another model
python3 fault.py --power-cap 2             GPU 2 runs slower than its lock because of a power cap
python3 fault.py --busy 2                  GPU 2 is at work
python3 fault.py --fabric-manager-stopped  the GPUs wait for NVLink, and CUDA does not start
python3 fault.py --library-version 570.86  libraries of another version than the loaded driver: neither nvidia-smi nor CUDA starts
python3 fault.py --cuda 999                CUDA does not start, with this code; nvidia-smi is well
python3 fault.py --nccl-slow 0.6           in nccl-tests this node has 0.6 of full speed
python3 fault.py --nccl-slow-link gpu-3    a launch with this node and gpu-3 is slow
python3 fault.py --nccl-bad-leaf leaf-1    on all nodes of the leaf: a launch with nodes of other leaves, too, is slow
python3 fault.py --nccl-hang deaf          a rank on this node never returns (plain), and SIGTERM does not end it (deaf), and
                                           a process that its launcher does not know keeps the GPUs (left)
python3 fault.py --nccl-crash              a rank on this node fails while NCCL starts
python3 fault.py --nccl-wrong 3            each check of a result finds 3 wrong elements
python3 fault.py --nccl-sockets            NCCL finds no InfiniBand here
python3 fault.py --nccl-garbage            a rank on this node prints garbage
python3 fault.py --nccl-missing            there are no nccl-tests
python3 fault.py --nccl-takes 20           a launch takes seconds, as a real one does
python3 fault.py                           all well again
python3 fault.py --reload-driver           all well, and the driver has forgotten what was set
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from install import NO_FAULTS, STATE, hide_nccl_tests, reload_driver, write_state


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--root", type=Path, default=Path("/"))
    indices = (
        "missing",
        "lost",
        "requires-reset",
        "no-handle",
        "no-graphics-lock",
        "no-memory-lock",
        "no-applications",
    )
    for name in (*indices, "no-reset", "deaf", "stuck", "power-cap", "busy"):
        parser.add_argument(f"--{name}", type=int, nargs="+", default=[], metavar="INDEX")
    for name in ("mig", "ecc"):
        parser.add_argument(f"--no-{name}", type=int, nargs="+", default=[], metavar="INDEX")
    parser.add_argument("--hang", type=float, default=0, metavar="SECONDS", dest="hang_s")
    parser.add_argument("--exit", type=int, default=0, metavar="CODE", dest="exit_code")
    parser.add_argument("--after-rows", action="store_true", dest="exit_after_rows", help="exit after printing rows")
    parser.add_argument("--message", default="", help="what is printed with --exit")
    parser.add_argument("--no-permission", action="store_true")
    parser.add_argument("--fabric-manager-stopped", action="store_true", help="of machines with NVSwitches")
    parser.add_argument("--library-version", default="", metavar="VERSION")
    parser.add_argument("--cuda", type=int, default=0, metavar="CODE", help="what cuInit returns")
    parser.add_argument("--nccl-slow", type=float, default=1.0, metavar="SHARE")
    parser.add_argument("--nccl-slow-link", nargs="+", default=[], metavar="HOST")
    parser.add_argument("--nccl-bad-leaf", default="", metavar="NAME")
    parser.add_argument("--nccl-hang", choices=("plain", "deaf", "left"), default="")
    parser.add_argument("--nccl-wrong", type=int, default=0, metavar="ELEMENTS")
    for name in ("crash", "sockets", "garbage", "missing"):
        parser.add_argument(f"--nccl-{name}", action="store_true")
    parser.add_argument("--nccl-takes", type=float, default=0.0, metavar="SECONDS", dest="nccl_takes_s")
    parser.add_argument("--reload-driver", action="store_true")
    options = vars(parser.parse_args())
    reload = options.pop("reload_driver")
    root = options.pop("root")
    path = root / STATE
    state = json.loads(path.read_text(encoding="utf-8"))
    for name in ("mig", "ecc"):
        for index in options.pop(f"no_{name}"):
            state["gpus"][index][name].update(current=None, pending=None)
    # With a GPU that has no handle the real program still prints the others and then exits.
    options["exit_after_rows"] = options["exit_after_rows"] or bool(options["no_handle"])
    state["faults"] = {**NO_FAULTS, **options}
    if reload:
        reload_driver(state)
    hide_nccl_tests(root, options["nccl_missing"])
    write_state(path, state)


if __name__ == "__main__":
    main()
