#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Put the simulated nvidia-smi, libcuda, nccl-tests and their state onto a lab node (or a directory that becomes one), or take them away.

    python3 install.py --root / --machine-type Standard_ND96asr_v4
    python3 install.py --root / --machine-type Standard_ND96asr_v4 --bus-ids 0000:02:00.0 0000:03:00.0
    python3 install.py --root / --remove

Standard library only; needs the files beside it. Running it again changes nothing unless the machine type, the bus ids or
the driver change. With ``--bus-ids`` there are as many GPUs as ids: give the addresses of PCI functions that the node really has,
and the GPUs get their NUMA nodes from its /sys. libcuda is installed where libcuda/make_libcuda.py has made it; another one, as
a driver's package brings it, is left alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PROGRAM = "usr/bin/nvidia-smi"
# Where the packages of the driver have it on Debian and Ubuntu.
LIBRARY = "usr/lib/x86_64-linux-gnu/libcuda.so.1"
# Where Azure's HPC images have them.
NCCL_TESTS = "opt/nccl-tests"
NCCL_PROGRAMS = ("all_reduce_perf", "all_gather_perf", "alltoall_perf")
MADE_LIBRARY = HERE / "libcuda/libcuda.so.1"
# Both name the variable that tells them where the state is; nothing of NVIDIA's does.
OURS = b"GPU_SIMULATOR_STATE"
STATE = "var/lib/gpu-simulator/state.json"
PROCESSES = "var/lib/gpu-simulator/processes"
DRIVER = "550.163.01"
IDLE_SM_MHZ = 210
NAMESPACE = uuid.UUID("6f0d8a6e-8f0c-4c57-9d5c-0a8f5a4f7a11")
NO_FAULTS: dict[str, Any] = {
    "missing": [],
    "lost": [],
    "requires_reset": [],
    "no_handle": [],
    "hang_s": 0,
    "exit_code": 0,
    "exit_after_rows": False,
    "message": "",
    # Of settings only:
    "no_permission": False,
    "no_graphics_lock": [],
    "no_memory_lock": [],
    "no_applications": [],
    "deaf": [],
    "stuck": [],
    # Behind a hypervisor that does not let them be reset:
    "no_reset": [],
    # At work, and the driver keeps it below its lock:
    "power_cap": [],
    # At work:
    "busy": [],
    # Of the whole machine: no Fabric Manager, libraries of another version than the loaded driver, what cuInit returns.
    "fabric_manager_stopped": False,
    "library_version": "",
    "cuda": 0,
    # Of nccl-tests on this node: its share of full speed, links to other hosts and a leaf's uplinks at half of it,
    # how a rank hangs ("plain", "deaf" or "left"), how many wrong elements it has, and how long a launch takes.
    "nccl_slow": 1.0,
    "nccl_slow_link": [],
    "nccl_bad_leaf": "",
    "nccl_hang": "",
    "nccl_crash": False,
    "nccl_wrong": 0,
    "nccl_sockets": False,
    "nccl_garbage": False,
    "nccl_missing": False,
    "nccl_takes_s": 0.0,
}


def nvml_bus_id(bus_id: str) -> str:
    """sysfs spelling to the one of the driver: 8 digits of domain, capitals."""
    domain, _colon, rest = bus_id.partition(":")
    return f"{int(domain, 16):08X}:{rest.upper()}"


def make_state(machine_type: str, seed: str, bus_ids: list[str], driver: str) -> dict[str, Any]:
    """The state of healthy GPUs; ``seed`` (the host name) makes their identifiers differ between nodes."""
    machines = json.loads((HERE / "machines.json").read_text(encoding="utf-8"))
    if machine_type not in machines:
        raise SystemExit(f"There is no machine type {machine_type!r}. Known: {', '.join(machines)}.")
    machine = machines[machine_type]
    gpus = []
    for index, bus_id in enumerate(bus_ids or machine["bus_ids"]):
        mig = {"current": False, "pending": False} if machine["mig"] else {"current": None, "pending": None}
        gpus.append(
            {
                "index": index,
                "uuid": f"GPU-{uuid.uuid5(NAMESPACE, f'{seed}/{machine_type}/{index}')}",
                "serial": str(1560000000000 + index),
                "name": machine["name"],
                "bus_id": nvml_bus_id(bus_id),
                "memory_mib": machine["memory_mib"],
                "compute_cap": machine["compute_cap"],
                "persistence": False,
                # What the SM runs at when nothing is locked; the GPU is idle.
                "clocks": {
                    "sm": IDLE_SM_MHZ,
                    "mem": machine["max_mem_mhz"],
                    "max_sm": machine["max_sm_mhz"],
                    "max_mem": machine["max_mem_mhz"],
                    "applications_sm": machine["default_sm_mhz"],
                    "applications_mem": machine["max_mem_mhz"],
                    "default_applications_sm": machine["default_sm_mhz"],
                    "default_applications_mem": machine["max_mem_mhz"],
                },
                "locks": {"graphics": None, "memory": None},
                "ecc": {"current": True, "pending": True, "corrected": 0, "uncorrected": 0},
                "mig": mig,
                "temperature": 30,
                "power_w": 55,
            }
        )
    return {
        "machine_type": machine_type,
        "driver_version": driver,
        "boot_id": None,
        "gpus": gpus,
        "hcas": machine["hcas"],
        "faults": dict(NO_FAULTS),
    }


def reload_driver(state: dict[str, Any]) -> None:
    """What the driver forgets when it is loaded again."""
    for gpu in state["gpus"]:
        clocks = gpu["clocks"]
        gpu["persistence"] = False
        gpu["locks"] = {"graphics": None, "memory": None}
        clocks["applications_sm"] = clocks["default_applications_sm"]
        clocks["applications_mem"] = clocks["default_applications_mem"]
        # From Hopper on the MIG mode lives in the driver, before that in the GPU.
        if float(gpu["compute_cap"]) >= 9 and gpu["mig"]["current"]:
            gpu["mig"] = {"current": False, "pending": False}


def write_state(path: Path, state: dict[str, Any]) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def identity(state: dict[str, Any]) -> tuple[str, str, list[str], set[str]]:
    """What makes a machine another one; the rest of its state may have been changed on purpose."""
    gpus = state["gpus"]
    # The keys as well: a state that an older simulator made is made anew.
    return (
        state["machine_type"],
        state["driver_version"],
        [gpu["bus_id"] for gpu in gpus],
        {*state, *gpus[0], *state["faults"]},
    )


def refresh_cache(root: Path) -> None:
    """What packages with libraries have done, so that ``ldconfig -p`` tells of them."""
    if root == Path("/"):
        subprocess.run(["/sbin/ldconfig"], check=True)


def install_library(root: Path) -> bool:
    library = root / LIBRARY
    present = library.read_bytes() if library.exists() else None
    if not MADE_LIBRARY.exists() or (present is not None and OURS not in present):
        return False
    if present == MADE_LIBRARY.read_bytes():
        return False
    library.parent.mkdir(parents=True, exist_ok=True)
    # Renamed into place: a process may have the old one loaded.
    part = library.with_name(library.name + ".part")
    shutil.copyfile(MADE_LIBRARY, part)
    part.chmod(0o644)
    part.replace(library)
    refresh_cache(root)
    return True


def install_nccl_tests(root: Path) -> bool:
    """The programs, and beside them what they have in common. The machines of the VM lab go without."""
    source, place = HERE / "nccl_tests", root / NCCL_TESTS
    if not source.is_dir():
        return False
    files = {place / "simulator/nccl_tests" / path.name: path for path in sorted(source.glob("*.py"))}
    files.update({place / "build" / name: source / "launcher" for name in NCCL_PROGRAMS})
    changed = False
    for target, path in files.items():
        if target.exists() and target.read_bytes() == path.read_bytes():
            continue
        if target.parent.name == "build" and target.exists() and OURS not in target.read_bytes():
            raise SystemExit(f"{target} is the real one: the simulator is for nodes without GPUs.")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
        changed = True
    return changed


def hide_nccl_tests(root: Path, hidden: bool) -> None:
    shown, away = root / NCCL_TESTS / "build", root / NCCL_TESTS / "build.hidden"
    if (shown if hidden else away).exists():
        shutil.rmtree(away if hidden else shown, ignore_errors=True)
        (shown if hidden else away).rename(away if hidden else shown)


def install(root: Path, machine_type: str, seed: str, bus_ids: list[str], driver: str) -> bool:
    program, state, processes = root / PROGRAM, root / STATE, root / PROCESSES
    for directory in (program.parent, state.parent, processes):
        directory.mkdir(parents=True, exist_ok=True)
    # Like /tmp: users without root register their processes there.
    processes.chmod(0o1777)
    source = (HERE / "nvidia-smi").read_bytes()
    changed = False
    if program.is_symlink() or not program.exists() or program.read_bytes() != source:
        if program.exists() and OURS not in program.read_bytes():
            raise SystemExit(f"{program} is a real nvidia-smi: the simulator is for nodes without GPUs.")
        program.write_bytes(source)
        changed = True
    program.chmod(0o755)
    changed = install_library(root) or changed
    changed = install_nccl_tests(root) or changed
    fresh = make_state(machine_type, seed, bus_ids, driver)
    if not state.exists() or identity(json.loads(state.read_text(encoding="utf-8"))) != identity(fresh):
        write_state(state, fresh)
        changed = True
    return changed


def remove(root: Path) -> bool:
    state = root / STATE
    found = state.parent.exists()
    for ours in (root / PROGRAM, root / LIBRARY):
        if ours.exists() and OURS in ours.read_bytes():
            ours.unlink()
            refresh_cache(root)
            found = True
    if (root / NCCL_TESTS / "simulator").exists():
        shutil.rmtree(root / NCCL_TESTS)
        found = True
    shutil.rmtree(state.parent, ignore_errors=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--root", type=Path, default=Path("/"), help="directory that stands for / (default: /)")
    parser.add_argument("--machine-type", help="a name in machines.json")
    parser.add_argument("--seed", default=os.environ.get("HOSTNAME") or platform.node(), help="default: the host name")
    parser.add_argument(
        "--bus-ids",
        nargs="+",
        default=[],
        metavar="DDDD:BB:DD.F",
        help="addresses of the GPUs (default: the machine type's)",
    )
    parser.add_argument(
        "--driver", default=DRIVER, help=f"version (default: {DRIVER}); from 580 on, application clocks are deprecated"
    )
    parser.add_argument("--remove", action="store_true", help="take the simulator away")
    options = parser.parse_args()
    if options.remove:
        print("removed" if remove(options.root) else "nothing to remove")
    elif options.machine_type:
        bus_ids = [bus_id for text in options.bus_ids for bus_id in text.split(",") if bus_id]
        changed = install(options.root, options.machine_type, options.seed, bus_ids, options.driver)
        print("installed" if changed else "unchanged")
    else:
        parser.error("--machine-type or --remove is required")


if __name__ == "__main__":
    main()
