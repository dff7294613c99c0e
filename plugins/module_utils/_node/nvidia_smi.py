# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Ask ``nvidia-smi`` once for all GPUs and make sense of every way in which it fails.

The program may be missing, hang in the driver, lose a GPU half way, or exit with one of its documented return codes
(nvidia-smi manual, "RETURN VALUE"). None of that may stop a play: it becomes a list of what is not known, and why.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import signal
import subprocess
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.sysfs import normalize_bus_id

# Spellings that every driver since R450 knows.
FIELDS: tuple[str, ...] = (
    "index",
    "uuid",
    "name",
    "pci.bus_id",
    "memory.total",
    "driver_version",
    "persistence_mode",
    "clocks.sm",
    "clocks.mem",
    "clocks.max.sm",
    "clocks.max.mem",
    "clocks.applications.graphics",
    "clocks.applications.memory",
    "ecc.mode.current",
    "ecc.mode.pending",
    "ecc.errors.corrected.volatile.total",
    "ecc.errors.uncorrected.volatile.total",
    "mig.mode.current",
    "mig.mode.pending",
)
_REQUIRED = FIELDS[:4]
# Directories that drivers use and that a non-interactive PATH often lacks (containers, Flatcar, GKE).
_EXTRA_PATH = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/bin", "/opt/bin")
_KILL_WAIT_S = 2.0

_INVALID_FIELD = re.compile(r'Field "([^"]+)" is not a valid field to query')
_NO_HANDLE = re.compile(r"Unable to determine the device handle for\s+(.*)", re.IGNORECASE)
_HANDLE_INDEX = re.compile(r"^gpu\s?(\d{1,3}):", re.IGNORECASE)
_BUS_ID_IN_TEXT = re.compile(r"([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.IGNORECASE)

_RESET_REMEDY = (
    "Drain the node, read the XID in the kernel log, reset the GPU or reboot, and report the node if it returns."
)
# Return code -> what it means and what to do. Source: nvidia-smi manual; 14 and 15 also azurehpc-health-checks v0.4.5.
RETURN_CODES: dict[int, tuple[str, str]] = {
    2: ("an argument was refused", "Install a driver of the R450 branch or newer."),
    3: ("the operation is not available on this GPU", "Check that the GPU is a data-center model."),
    4: ("no permission to reach the GPUs", "Run with become: true, or check the mode of /dev/nvidia*."),
    6: ("no GPU was found", "Check with lspci that the GPUs are on the PCI bus and that the driver supports them."),
    8: ("a GPU's external power is not attached", "Check the power cables of the node."),
    9: ("the NVIDIA driver is not loaded", "Install or load the driver (modprobe nvidia) and see dmesg."),
    10: ("the kernel found an interrupt problem with a GPU", "See dmesg, update the firmware, reboot the node."),
    12: ("libnvidia-ml.so was not found or not loaded", "Install the driver's user-space package of the same version."),
    13: ("this libnvidia-ml.so lacks a function", "Install nvidia-smi and driver of the same version."),
    14: ("an infoROM is corrupted", "Have the GPU's infoROM repaired or the GPU replaced."),
    15: ("a GPU fell off the bus", _RESET_REMEDY),
    18: ("driver and library versions differ", "Reboot, or unload and load the NVIDIA modules, after the upgrade."),
}
# With these codes the program has spoken about the hardware; with the others it could not look.
_SPEAKING_CODES = frozenset({0, 14, 15})


@dataclasses.dataclass(frozen=True)
class SmiRun:
    """What one call gave. ``rc`` is None when the program was missing or had to be killed."""

    rc: int | None
    stdout: str = ""
    stderr: str = ""
    missing: bool = False
    timed_out: bool = False
    fields: tuple[str, ...] = FIELDS


@dataclasses.dataclass(frozen=True)
class SmiReport:
    """``state`` is ``answered``, ``missing``, ``timeout`` or ``failed``; only ``answered`` is evidence of absence.

    ``cells`` holds, by UUID, what was printed for each field: for those who ask for more than ``gpus`` tells.
    """

    state: str
    rc: int | None
    gpus: list[dict[str, t.Any]]
    unknown: list[dict[str, str]]
    cells: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)


def find(program: str) -> str | None:
    """The path of the program; an absolute one is only checked."""
    search = os.pathsep.join([os.environ.get("PATH", ""), *_EXTRA_PATH])
    return shutil.which(program, path=search)


def _start(path: str, arguments: t.Sequence[str]) -> subprocess.Popen[str] | None:
    try:
        # A session of its own: when the call hangs, everything it started can be killed with it.
        return subprocess.Popen(
            [path, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C"},
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError:
        # Not executable, wrong architecture, gone since it was found.
        return None


def _finish(process: subprocess.Popen[str] | None, deadline: float, fields: tuple[str, ...]) -> SmiRun:
    if process is None:
        return SmiRun(rc=None, missing=True)
    try:
        stdout, stderr = process.communicate(timeout=max(0.0, deadline - time.monotonic()))
        return SmiRun(rc=process.returncode, stdout=stdout, stderr=stderr, fields=fields)
    except subprocess.TimeoutExpired:
        pass
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        stdout, stderr = process.communicate(timeout=_KILL_WAIT_S)
    except subprocess.TimeoutExpired:
        # Stuck in the driver (state D): not even SIGKILL ends it. Leave it behind rather than hang with it.
        stdout, stderr = "", ""
    return SmiRun(rc=None, stdout=stdout, stderr=stderr, timed_out=True, fields=fields)


def call(program: str, arguments: t.Sequence[str], timeout_s: float) -> SmiRun:
    """Run the program to its end, or to the end of our patience."""
    path = find(program)
    process = _start(path, arguments) if path else None
    return _finish(process, time.monotonic() + timeout_s, ())


class Query:
    """A query that runs while the caller reads sysfs: start it, do something else, then ask for the result."""

    def __init__(self, program: str, timeout_s: float, fields: tuple[str, ...] = FIELDS) -> None:
        self._path = find(program)
        self._fields = fields
        self._deadline = time.monotonic() + timeout_s
        self._process = self._ask(fields)

    def _ask(self, fields: tuple[str, ...]) -> subprocess.Popen[str] | None:
        arguments = [f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
        return _start(self._path, arguments) if self._path else None

    def result(self) -> SmiRun:
        fields = self._fields
        run = _finish(self._process, self._deadline, fields)
        # A driver that does not know one of the optional fields refuses the whole query and names the field.
        while run.rc not in (None, 0):
            refused = set(_INVALID_FIELD.findall(run.stdout + run.stderr)) & set(fields) - set(_REQUIRED)
            if not refused:
                break
            fields = tuple(field for field in fields if field not in refused)
            run = _finish(self._ask(fields), self._deadline, fields)
        return run


def _number(text: str | None) -> int | None:
    match = re.match(r"^(\d+)(?:\.\d+)?(?:\s*[A-Za-z]+)?$", text or "")
    return int(match.group(1)) if match else None


def _enabled(text: str | None) -> bool | None:
    return {"enabled": True, "disabled": False}.get((text or "").lower())


def _value(text: str | None) -> str | None:
    """None for what is not a value: N/A, and everything in brackets ([N/A], [Not Supported], [Unknown Error], ...)."""
    if text is None or text in ("", "N/A") or (text.startswith("[") and text.endswith("]")):
        return None
    return text


def _out_of_service(cells: t.Iterable[str]) -> str:
    """``GPU is lost`` or ``GPU requires reset`` when the driver answers that instead of a value."""
    states = [cell.strip("[]") for cell in cells if cell.startswith("[GPU ")]
    return states[0] if states else ""


def _gpu(raw: dict[str, str]) -> dict[str, t.Any]:
    if _out_of_service(raw.values()):
        raise ValueError("the GPU is out of service")
    row = {field: _value(text) for field, text in raw.items()}
    bus_id, uuid, name = row.get("pci.bus_id"), row.get("uuid"), row.get("name")
    index = _number(row.get("index"))
    if index is None or not bus_id or not uuid or not name:
        raise ValueError("the row does not say which GPU it is")
    return {
        "index": index,
        "uuid": uuid,
        "name": name,
        "bus_id": normalize_bus_id(bus_id),
        "numa": None,
        "minor": None,
        "memory_mib": _number(row.get("memory.total")),
        "driver": row.get("driver_version"),
        "persistence": _enabled(row.get("persistence_mode")),
        "clocks": {
            "sm_mhz": _number(row.get("clocks.sm")),
            "mem_mhz": _number(row.get("clocks.mem")),
            "max_sm_mhz": _number(row.get("clocks.max.sm")),
            "max_mem_mhz": _number(row.get("clocks.max.mem")),
            "applications_sm_mhz": _number(row.get("clocks.applications.graphics")),
            "applications_mem_mhz": _number(row.get("clocks.applications.memory")),
        },
        "ecc": {
            "enabled": _enabled(row.get("ecc.mode.current")),
            "pending": _enabled(row.get("ecc.mode.pending")),
            "corrected": _number(row.get("ecc.errors.corrected.volatile.total")),
            "uncorrected": _number(row.get("ecc.errors.uncorrected.volatile.total")),
        },
        # None: the GPU has no MIG.
        "mig": {
            "enabled": _enabled(row.get("mig.mode.current")),
            "pending": _enabled(row.get("mig.mode.pending")),
        },
    }


def _broken_row(raw: dict[str, str], line: str) -> dict[str, str]:
    """What to say about a row that names no usable GPU."""
    label = raw.get("index", "")
    bus_id = _BUS_ID_IN_TEXT.search(line)
    what = f"gpu {label}" if label.isdigit() else "gpu"
    if bus_id:
        what += f" ({normalize_bus_id(bus_id.group(1))})"
    state = _out_of_service(raw.values())
    if state:
        return _unknown(what, f"the driver answers {state!r} for it", _RESET_REMEDY)
    return _unknown(what, f"nvidia-smi printed an incomplete row: {line[:120]!r}", _RESET_REMEDY)


def _unknown(what: str, reason: str, remedy: str) -> dict[str, str]:
    return {"what": what, "reason": reason, "remedy": remedy}


def _lost_handle(line: str) -> dict[str, str] | None:
    """``Unable to determine the device handle for GPU3: 0000:04:00.0: Unknown Error`` and its relatives."""
    match = _NO_HANDLE.search(line)
    if not match:
        return None
    rest = match.group(1).strip()
    index, bus_id = _HANDLE_INDEX.match(rest), _BUS_ID_IN_TEXT.search(rest)
    what = f"gpu {index.group(1)}" if index else "gpu"
    if bus_id:
        what += f" ({normalize_bus_id(bus_id.group(1))})"
    return _unknown(what, f"nvidia-smi: {line.strip()}", _RESET_REMEDY)


def _failure(run: SmiRun, text: str) -> dict[str, str] | None:
    """The sentence about the whole call, None when it went well."""
    if run.missing:
        return _unknown(
            "gpus",
            "nvidia-smi is not installed or cannot be started",
            "Install the NVIDIA driver, or set `nvidia_smi`.",
        )
    if run.timed_out:
        return _unknown(
            "gpus",
            "nvidia-smi did not answer in time and was killed",
            "See dmesg for XIDs, start nvidia-persistenced, reboot the node if the driver hangs.",
        )
    if run.rc == 0:
        return None
    if "Driver/library version mismatch" in text:
        meaning, remedy = RETURN_CODES[18]
    else:
        meaning, remedy = RETURN_CODES.get(
            run.rc or 0, ("an unknown failure", "Run nvidia-smi by hand on the node and see dmesg.")
        )
    said = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return _unknown(
        "gpus", f"nvidia-smi exited with {run.rc}: {meaning}" + (f" ({said[:160]})" if said else ""), remedy
    )


def parse(run: SmiRun) -> SmiReport:
    """The GPUs that answered, and everything that is not known. Rows printed before a failure count."""
    gpus: list[dict[str, t.Any]] = []
    printed: dict[str, dict[str, str]] = {}
    unknown: list[dict[str, str]] = []
    remarks: list[str] = run.stderr.splitlines()
    for line in run.stdout.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) < len(run.fields) and not cells[0].isdigit():
            remarks.append(line)
            continue
        # A row that was cut short by a crash lacks its last cells; what identifies the GPU comes first.
        raw = dict(zip(run.fields, cells))
        try:
            if len(cells) != len(run.fields):
                raise ValueError("the row has the wrong number of fields")
            gpus.append(_gpu(raw))
            printed[raw["uuid"]] = raw
        except ValueError:
            unknown.append(_broken_row(raw, line))
    unknown += [lost for lost in map(_lost_handle, remarks) if lost]
    text = "\n".join(remarks)
    failure = _failure(run, text)
    if failure:
        unknown.insert(0, failure)
    elif not gpus and not unknown:
        meaning, remedy = RETURN_CODES[6]
        said = text.strip().splitlines()[0].strip() if text.strip() else meaning
        unknown.append(_unknown("gpus", f"nvidia-smi lists none: {said}", remedy))
    if run.missing:
        state = "missing"
    elif run.timed_out:
        state = "timeout"
    else:
        state = "answered" if run.rc in _SPEAKING_CODES or "No devices were found" in run.stdout + text else "failed"
    ordered = sorted(gpus, key=lambda gpu: gpu["index"])
    return SmiReport(state=state, rc=run.rc, gpus=ordered, unknown=unknown, cells=printed)


__all__ = ["FIELDS", "RETURN_CODES", "Query", "SmiReport", "SmiRun", "call", "find", "parse"]
