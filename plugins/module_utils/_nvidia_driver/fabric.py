# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Whether GPUs have joined the fabric of their NVSwitches, and are whole in it: what ``nvidia-smi -q`` says under ``Fabric``.

An active Fabric Manager is no proof: a GPU that has not joined makes CUDA return 802 (Fabric Manager User Guide, "Checking
Fabric Registration Status"). Nor is a GPU that has joined: it may have done so with fewer NVLinks than it should have, which
drivers from 550 on tell under ``Health``. GPUs before Hopper do not register and say N/A, and so does a GPU whose NVLinks reach no
NVSwitch: it runs, and others reach it over PCIe alone.
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
_OUTSIDE = frozenset({"N/A", "Not Supported"})
_JOINED = frozenset({"Completed", *_OUTSIDE})
_NO_ERROR = frozenset({"Success", "N/A"})
# The only good value of every row, beside N/A: NVML's fabric definitions (NVML_GPU_FABRIC_HEALTH_*) in nvidia-smi's words.
_HEALTHY = {
    "Health": "Healthy",
    "Summary": "Healthy",
    "Bandwidth": "Full",
    "Route Recovery in progress": "False",
    "Route Unhealthy": "False",
    "Access Timeout Recovery": "False",
    "Incorrect Configuration": "None",
}
# These say which part of a fabric a GPU is in; that it should have a partition and has none is an incorrect configuration.
_PLACES = frozenset({"CliqueId", "ClusterUUID", "Partition Assigned"})
_UNANSWERED = "See `nvidia-smi -q` and dmesg on the node, and verify again."
_REMEDY = "Read `journalctl -u nvidia-fabricmanager` and /var/log/fabricmanager.log on the node."
_HEALTH_REMEDY = (
    "Look for SXid and Xid messages of NVLink in the kernel log and for the cause in /var/log/fabricmanager.log. Drain the node, "
    "and reset all of its GPUs or reboot; if it stays, have GPUs and NVSwitches looked at."
)


class Fabric(t.NamedTuple):
    """What a GPU says of its fabric, in nvidia-smi's words. ``health``: the further rows, as (name, value). ``model``: its own."""

    state: str = ""
    status: str = ""
    health: tuple[tuple[str, str], ...] = ()
    model: str = ""

    @property
    def joined(self) -> bool:
        """Whether nothing is known to keep CUDA from starting."""
        return self.state in _JOINED and self.status in _NO_ERROR

    def unhealthy(self) -> list[tuple[str, str]]:
        """The rows that say something is wrong: all whose value is not the good one."""
        return [
            (name, value) for name, value in self.health if name in _HEALTHY and value not in ("N/A", _HEALTHY[name])
        ]

    def unheard_of(self) -> list[tuple[str, str]]:
        """Rows that say something which is not known here."""
        return [(name, value) for name, value in self.health if name not in _HEALTHY and value != "N/A"]


def parse(text: str) -> dict[str, Fabric]:
    """The fabric of each GPU, by bus id, of ``nvidia-smi -q``; GPUs that say nothing of it are left out."""
    found: dict[str, Fabric] = {}
    bus_id, model, depth = "", "", -1
    for line in text.splitlines():
        gpu, indent = _GPU.match(line.rstrip()), len(line) - len(line.lstrip())
        name, _colon, value = (part.strip() for part in line.partition(":"))
        if gpu:
            bus_id, model, depth = normalize_bus_id(gpu.group(1)), "", -1
        elif name == "Product Name":
            model = value
        elif line.strip() == "Fabric":
            depth = indent
        elif line.strip() and indent <= depth:
            depth = -1
        elif depth >= 0 and bus_id and value:
            found[bus_id] = _with_row(found.get(bus_id, Fabric(model=model)), name, value)
    return found


def _with_row(fabric: Fabric, name: str, value: str) -> Fabric:
    if name == "State":
        return fabric._replace(state=fabric.state or value)
    if name == "Status":
        return fabric._replace(status=fabric.status or value)
    return fabric if name in _PLACES else fabric._replace(health=(*fabric.health, (name, value)))


def pending(fabric: t.Mapping[str, Fabric]) -> bool:
    """Whether a GPU is still on its way."""
    return any(one.state in _PENDING for one in fabric.values())


def findings(fabric: t.Mapping[str, Fabric] | None, *, all_join: bool = False) -> t.Iterator[dict[str, str]]:
    """GPUs that are not in the fabric or not whole in it, one finding for all that say the same. None: nvidia-smi did not answer.

    Where one has joined, so have all of its model. ``all_join``: it is known that every GPU here has to.
    """
    if fabric is None:
        message = "`nvidia-smi -q` did not answer: whether the GPUs have joined the NVLink fabric is not known."
        yield {"verdict": "incomplete", "what": "fabric", "message": message, "remedy": _UNANSWERED}
        return
    joining = {one.model for one in fabric.values() if one.state == "Completed"}
    groups: dict[tuple[str, str, str], list[str]] = {}
    for bus_id, one in sorted(fabric.items()):
        for said in _said(one, joins=all_join or one.model in joining):
            groups.setdefault(said, []).append(bus_id)
    for (verdict, text, remedy), where in groups.items():
        message = f"The NVLink fabric of {', '.join(where)} {text}"
        yield {"verdict": verdict, "what": "fabric", "message": message, "remedy": remedy}


def _said(fabric: Fabric, *, joins: bool) -> t.Iterator[tuple[str, str, str]]:
    """Verdict, the end of the sentence about a GPU's fabric, and remedy, for everything that is wrong with it."""
    if not fabric.joined:
        yield "fail", f"is {fabric.state!r} (status {fabric.status!r}): CUDA returns 802.", _REMEDY
    elif joins and fabric.state in _OUTSIDE:
        yield "fail", f"is {fabric.state!r}: they are outside of it, and are reached over PCIe alone.", _HEALTH_REMEDY
    if fabric.unhealthy():
        yield "fail", f"is not healthy: {_rows(fabric.unhealthy())}.", _HEALTH_REMEDY
    if fabric.unheard_of():
        yield "warn", f"says what this release does not know: {_rows(fabric.unheard_of())}.", _UNANSWERED


def _rows(rows: t.Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {value!r}" for name, value in rows)


def ask(program: str, timeout_s: float, settle_s: float) -> dict[str, Fabric] | None:
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


__all__ = ["SETTLE_S", "Fabric", "ask", "findings", "parse", "pending"]
