# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Run ``ib_write_bw`` (perftest) as server or client and read its table.

Its JSON has keys without quotes (linux-rdma/perftest#216), so the text is read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import subprocess
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

_TOOL = "ib_write_bw"
_ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+(-?[\d.]+)\s+(-?[\d.]+)(?:\s+-?[\d.]+)*\s*$")
# What a client says while the server is not there yet.
_NOT_YET = ("Couldn't connect to", "Unable to init the socket connection")
# What either side says where a connection that stood breaks off.
_BROKE_OFF = ("Completion with error", "Failed status", "Failed to exchange data")
# Errors come on another stream than the table, so that they stand anywhere among its lines.
_ERROR = re.compile(
    r"error|fail|couldn't|cannot|unable|not found|unsupported|invalid|refused|incompatib|\b[sr]cnt=", re.IGNORECASE
)
_QUOTED = 4
_RETRY_S = 0.5
_TAIL = 1500


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What both sides have to agree on. Device number n uses the TCP port ``tcp_port`` + n for its handshake."""

    devices: tuple[tuple[str, int], ...]
    size_bytes: int = 65536
    iterations: int = 1000
    tcp_port: int = 18515
    arguments: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Bandwidth:
    """One row of the table, in Gb/s. ``first_error`` is what was said where it took a second try."""

    size_bytes: int
    iterations: int
    peak_gbps: float
    average_gbps: float
    tries: int = 1
    first_error: str = ""


def argv(test: Measurement, number: int, server: str = "") -> list[str]:
    """The command line for one device; ``server`` is the address to connect to, and empty on the server itself."""
    device, port = test.devices[number]
    words = [_TOOL, "-d", device, "-i", str(port), "-p", str(test.tcp_port + number)]
    words += ["-s", str(test.size_bytes), "-n", str(test.iterations), "-F", "--report_gbits"]
    return [*words, *test.arguments, *([server] if server else [])]


def parse(output: str) -> Bandwidth:
    """The last row below a header in Gb/s; warnings about CPU frequencies may lie between them."""
    row, in_gbits = None, False
    for line in output.splitlines():
        if line.lstrip().startswith("#bytes"):
            in_gbits = "[Gb/sec]" in line
            continue
        match = _ROW.match(line)
        if match and in_gbits:
            row = match
    if row is None:
        raise ClusterError(
            "bad_output", f"{_TOOL} printed no result.", "Read its output in this result.", output=output[-_TAIL:]
        )
    size, iterations, peak, average = row.groups()
    return Bandwidth(int(size), int(iterations), float(peak), float(average))


def is_too_early(output: str) -> bool:
    """Whether a client failed only because its server does not listen yet."""
    return any(text in output for text in _NOT_YET)


def broke_off(output: str) -> bool:
    """Whether the two sides had met and lost each other: worth a second try, which is told."""
    return any(text in output for text in _BROKE_OFF)


def said(output: str) -> str:
    """The errors of an output, or its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = list(dict.fromkeys(line for line in lines if _ERROR.search(line)))
    return "; ".join(errors[:_QUOTED] or lines[-1:]) or "it said nothing"


def _result(output: str, first: str) -> Bandwidth:
    found = parse(output)
    return dataclasses.replace(found, tries=2, first_error=said(first)) if first else found


def _failure(words: t.Sequence[str], output: str, reason: str) -> ClusterError:
    return ClusterError(
        "bandwidth_failed",
        f"{' '.join(words[:3])} {reason}: {said(output)}",
        "Check that the port is ACTIVE, that both sides name the same devices, and that the TCP port is open.",
        output=output[-_TAIL:],
    )


def _start(words: t.Sequence[str]) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            env={**os.environ, "LC_ALL": "C"}, start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError:
        raise ClusterError(
            "tool_missing", f"There is no {_TOOL} on this node.", "Install the package perftest."
        ) from None


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _output(process: subprocess.Popen[str], deadline: float) -> str | None:
    """What a process said until it ended; None where it did not in time."""
    try:
        return process.communicate(timeout=max(0.1, deadline - time.monotonic()))[0]
    except subprocess.TimeoutExpired:
        return None


def serve(test: Measurement, timeout_s: float) -> list[Bandwidth]:
    """Wait for the other side on all devices at once; it comes to one after the other, and once more where it broke off."""
    deadline = time.monotonic() + timeout_s
    commands = [argv(test, number) for number in range(len(test.devices))]
    processes: list[subprocess.Popen[str]] = []
    try:
        for words in commands:
            processes.append(_start(words))
        found = []
        for number, words in enumerate(commands):
            first = ""
            while (output := _output(processes[number], deadline)) is not None:
                status = processes[number].returncode
                if status == 0:
                    found.append(_result(output, first))
                    break
                if first or not broke_off(output):
                    raise _failure(words, first + output, f"ended with {status}")
                first, processes[number] = output, _start(words)
            else:
                raise _failure(words, first, f"waited {timeout_s:.0f} s for the other side")
        return found
    finally:
        for process in processes:
            _end(process)


def measure(test: Measurement, server: str, timeout_s: float) -> list[Bandwidth]:
    """Write to the other side over one device after the other."""
    deadline = time.monotonic() + timeout_s
    return [_measured(argv(test, number, server), server, deadline, timeout_s) for number in range(len(test.devices))]


def _measured(words: t.Sequence[str], server: str, deadline: float, timeout_s: float) -> Bandwidth:
    """One device. A server that is not there yet is waited for; a connection that broke off is tried once more."""
    first, last = "", ""
    while True:
        process = _start(words)
        output = _output(process, deadline)
        if output is None:
            _end(process)
            raise _failure(words, first or last, f"did not end within {timeout_s:.0f} s")
        if process.returncode == 0:
            return _result(output, first)
        again = is_too_early(output) or (broke_off(output) and not first)
        if not again or time.monotonic() + _RETRY_S > deadline:
            raise _failure(words, first + output, f"to {server} ended with {process.returncode}")
        if is_too_early(output):
            last = output
        else:
            first = output
        time.sleep(_RETRY_S)


__all__ = ["Bandwidth", "Measurement", "argv", "broke_off", "is_too_early", "measure", "parse", "said", "serve"]
