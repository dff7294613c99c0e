# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Whether CUDA starts: ``cuInit`` of the driver's own library, in a process that may hang or crash for itself.

``nvidia-smi`` speaks to the driver through NVML and answers where CUDA does not, for example on a machine with NVSwitches
whose fabric is not there yet (802). No CUDA toolkit is needed.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.nvidia_smi import SmiRun, call

# The first start after a boot reads the memory of all GPUs, without persistence mode every one does.
TIMEOUT_S = 60.0
_NO_DEVICE = 100
# Returns what CUDA says as JSON: {"code", "name", "devices"}, or {"library": reason}.
_PROGRAM = """
import ctypes, json, os, sys
for variable in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
    os.environ.pop(variable, None)
try:
    cuda = ctypes.CDLL(sys.argv[1])
    start, count, name_of = cuda.cuInit, cuda.cuDeviceGetCount, cuda.cuGetErrorName
except (AttributeError, OSError) as exc:
    print(json.dumps({"library": str(exc)}))
    sys.exit()
name, devices = ctypes.c_char_p(), ctypes.c_int(0)
code = start(0) or count(ctypes.byref(devices))
name_of(code, ctypes.byref(name))
print(json.dumps({"code": code, "name": (name.value or b"").decode(), "devices": devices.value}))
"""
_RESTART = "Reboot the node, or unload and load the driver."
# CUDA driver API, CUresult.
_REMEDIES = {
    100: "See dmesg, and whether nvidia_uvm is loaded and /dev/nvidia* are there.",
    802: "See `nvidia-smi -q` (Fabric) and `journalctl -u nvidia-fabricmanager`: the GPUs wait for their NVSwitches.",
    803: "Driver and libraries have different versions. " + _RESTART,
    804: "A library of CUDA's forward compatibility is found first; see `ldconfig -p`.",
    999: "See dmesg, and whether nvidia_uvm is loaded. " + _RESTART,
}


@dataclasses.dataclass(frozen=True)
class Started:
    """What a start of CUDA gave. ``code`` is None where it gave nothing; ``reason`` says why."""

    code: int | None
    name: str = ""
    devices: int = 0
    reason: str = ""
    timed_out: bool = False


def start(library: str, timeout_s: float = TIMEOUT_S) -> Started:
    """Start CUDA once with this library, and count its devices."""
    return read(call(sys.executable, ["-c", _PROGRAM, library], timeout_s), library)


def read(run: SmiRun, library: str) -> Started:
    """What the child said, or what became of it."""
    if run.timed_out:
        return Started(None, reason="CUDA did not start in time", timed_out=True)
    try:
        said = json.loads(run.stdout)
    except ValueError:
        return Started(None, reason=f"the program that starts CUDA ended with {run.rc}: {run.stderr.strip()[-200:]}")
    if "library" in said:
        return Started(None, reason=f"{library} cannot be used: {said['library']}")
    return Started(said["code"], said["name"], said["devices"])


def findings(started: Started, gpus: int, *, mig: bool) -> t.Iterator[dict[str, str]]:
    """What is wrong. ``gpus``: how many nvidia-smi lists; with ``mig`` some of them may be no device of CUDA."""
    if started.code is None:
        verdict = "incomplete" if started.timed_out else "fail"
        yield _finding(verdict, f"{started.reason}.", "Install the driver's libraries of the same version; see dmesg.")
    elif started.code == _NO_DEVICE and mig:
        yield _finding("incomplete", "CUDA has no device.", "GPUs with MIG are none before they have instances.")
    elif started.code:
        said = f"{started.code} ({started.name})" if started.name else str(started.code)
        remedy = _REMEDIES.get(started.code, "Look the code up among CUresult of the CUDA driver API, and see dmesg.")
        yield _finding("fail", f"CUDA does not start: cuInit returns {said}.", remedy)
    elif started.devices < gpus and not mig:
        yield _finding("fail", f"CUDA has {started.devices} of {gpus} GPUs.", "See dmesg for XIDs.")


def _finding(verdict: str, message: str, remedy: str) -> dict[str, str]:
    return {"verdict": verdict, "what": "cuda", "message": message, "remedy": remedy}


__all__ = ["TIMEOUT_S", "Started", "findings", "read", "start"]
