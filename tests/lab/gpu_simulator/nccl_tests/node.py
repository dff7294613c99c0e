# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rank knows of its own node: the simulated GPUs through libcuda, as any CUDA program, and the faults in the simulator's state."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .fabric import POWER_CAP_MHZ, Device, Member

#: Where the node's state is, and what it is called: tests have several nodes on one computer.
STATE = Path(os.environ.get("GPU_SIMULATOR_STATE", "/var/lib/gpu-simulator/state.json"))
HOST = os.environ.get("GPU_SIMULATOR_HOST") or socket.gethostname()


class CudaError(Exception):
    """A call of libcuda failed; the text is CUDA's."""


class Cuda:
    """The driver API, with CUDA's device numbers."""

    def __init__(self) -> None:
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            # What the CUDA runtime says without a driver: cudaErrorInsufficientDriver.
            raise CudaError("CUDA driver version is insufficient for CUDA runtime version") from error
        code = self._cuda.cuInit(0)
        if code:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(code, ctypes.byref(text))
            raise CudaError((text.value or b"unrecognized error code").decode())

    def count(self) -> int:
        number = ctypes.c_int()
        self._cuda.cuDeviceGetCount(ctypes.byref(number))
        return number.value

    def device(self, number: int) -> Device:
        bus_id, name = ctypes.create_string_buffer(13), ctypes.create_string_buffer(128)
        size = ctypes.c_size_t()
        self._cuda.cuDeviceGetPCIBusId(bus_id, 13, number)
        self._cuda.cuDeviceGetName(name, 128, number)
        self._cuda.cuDeviceTotalMem_v2(ctypes.byref(size), number)
        return Device(number, bus_id.value.decode(), name.value.decode(), size.value)


def state() -> dict[str, Any]:
    return dict(json.loads(STATE.read_text(encoding="utf-8")))


def gpus(devices: list[Device], node: dict[str, Any]) -> list[dict[str, Any]]:
    """Their part of the state. CUDA_VISIBLE_DEVICES may have numbered them anew."""
    places = [device.bus_id for device in devices]
    return [gpu for gpu in node["gpus"] if gpu["bus_id"][4:] in places]


def member(devices: list[Device], node: dict[str, Any], environ: Mapping[str, str]) -> Member:
    """What this rank tells the others. NCCL takes sockets where it is told so, and where the machine has no InfiniBand."""
    faults = node["faults"]
    capped = [
        POWER_CAP_MHZ / gpu["clocks"]["max_sm"] for gpu in gpus(devices, node) if gpu["index"] in faults["power_cap"]
    ]
    told = environ.get("NCCL_IB_DISABLE") == "1" or environ.get("NCCL_NET") == "Socket"
    return Member(
        host=HOST,
        pid=os.getpid(),
        devices=tuple(devices),
        hca_gbps=tuple(node["hcas"].values()),
        factor=min([faults["nccl_slow"], *capped]),
        slow_links=tuple(faults["nccl_slow_link"]),
        bad_leaf=faults["nccl_bad_leaf"],
        wrong=faults["nccl_wrong"],
        sockets=faults["nccl_sockets"] or told or not node["hcas"],
    )


def hold(indices: list[int]) -> None:
    """Use these GPUs until this process ends, so that nvidia-smi lists it: a record as process.py writes it, with the program's name."""
    record = STATE.parent / "processes" / str(os.getpid())
    start = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    part = record.with_name(f".{os.getpid()}")
    name = os.path.realpath(sys.argv[0])
    part.write_text(json.dumps({"gpus": indices, "memory_mib": 1024, "start": start, "name": name}), encoding="utf-8")
    part.replace(record)
    atexit.register(record.unlink, missing_ok=True)


def interface() -> str:
    """NCCL's spelling of the node's first address: ``eth0:10.89.0.11<0>``."""
    names = sorted(name for _number, name in socket.if_nameindex() if name != "lo")
    try:
        address = socket.gethostbyname(HOST)
    except OSError:
        address = "127.0.0.1"
    return f"{names[0] if names else 'lo'}:{address}<0>"
