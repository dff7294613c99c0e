# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Whether GPUs have joined the fabric of their NVSwitches: what ``nvidia-smi -q`` says under ``Fabric``.

An active Fabric Manager is no proof: a GPU that has not joined makes CUDA return 802 (Fabric Manager User Guide, "Checking
Fabric Registration Status"). GPUs before Hopper do not register and say N/A.
"""

from __future__ import annotations

import re
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.nvidia_smi import call
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.sysfs import normalize_bus_id

# Fabric Manager that was started a moment ago is given this long, and is asked this often.
SETTLE_S, _PAUSE_S = 120.0, 3.0
_GPU = re.compile(r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])$")
_PENDING = frozenset({"Not Started", "In Progress"})
_UNANSWERED = "See `nvidia-smi -q` and dmesg on the node, and verify again."
_REMEDY = "Read `journalctl -u nvidia-fabricmanager` and /var/log/fabricmanager.log on the node."


def parse(text: str) -> dict[str, tuple[str, str]]:
    """State and status of each GPU's fabric, by bus id, of ``nvidia-smi -q``; GPUs that say nothing of it are left out."""
    found: dict[str, tuple[str, str]] = {}
    bus_id, depth = "", -1
    for line in text.splitlines():
        gpu, indent = _GPU.match(line.rstrip()), len(line) - len(line.lstrip())
        name, _colon, value = (part.strip() for part in line.partition(":"))
        if gpu:
            bus_id, depth = normalize_bus_id(gpu.group(1)), -1
        elif line.strip() == "Fabric":
            depth = indent
        elif line.strip() and indent <= depth:
            depth = -1
        elif depth >= 0 and bus_id and name in ("State", "Status"):
            state, status = found.get(bus_id, ("", ""))
            found[bus_id] = (state or value, status) if name == "State" else (state, status or value)
    return found


def pending(fabric: t.Mapping[str, tuple[str, str]]) -> bool:
    """Whether a GPU is still on its way."""
    return any(state in _PENDING for state, _status in fabric.values())


def findings(fabric: t.Mapping[str, tuple[str, str]] | None) -> t.Iterator[dict[str, str]]:
    """GPUs that are not in the fabric, one finding for all that say the same. None: nvidia-smi did not answer."""
    if fabric is None:
        message = "`nvidia-smi -q` did not answer: whether the GPUs have joined the NVLink fabric is not known."
        yield {"verdict": "incomplete", "what": "fabric", "message": message, "remedy": _UNANSWERED}
        return
    groups: dict[tuple[str, str], list[str]] = {}
    for bus_id, (state, status) in sorted(fabric.items()):
        if state in _PENDING or (state == "Completed" and status not in ("Success", "N/A")):
            groups.setdefault((state, status), []).append(bus_id)
    for (state, status), where in groups.items():
        message = f"The NVLink fabric of {', '.join(where)} is {state!r} (status {status!r}): CUDA returns 802."
        yield {"verdict": "fail", "what": "fabric", "message": message, "remedy": _REMEDY}


def ask(program: str, timeout_s: float, settle_s: float) -> dict[str, tuple[str, str]] | None:
    """The fabric of all GPUs, after the time that it takes to come up; None where nvidia-smi does not answer."""
    deadline = time.monotonic() + settle_s
    while True:
        run = call(program, ["-q"], timeout_s)
        if run.rc != 0:
            return None
        fabric = parse(run.stdout)
        if not pending(fabric) or time.monotonic() >= deadline:
            return fabric
        time.sleep(_PAUSE_S)


__all__ = ["SETTLE_S", "ask", "findings", "parse", "pending"]
