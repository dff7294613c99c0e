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
    """One row of the table, in Gb/s."""

    size_bytes: int
    iterations: int
    peak_gbps: float
    average_gbps: float


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


def _failure(words: t.Sequence[str], output: str, reason: str) -> ClusterError:
    said = [line.strip() for line in output.splitlines() if line.strip()]
    return ClusterError(
        "bandwidth_failed",
        f"{' '.join(words[:3])} {reason}: {said[-1] if said else 'it said nothing'}",
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


def serve(test: Measurement, timeout_s: float) -> list[Bandwidth]:
    """Wait for the other side on all devices at once; it comes to one after the other."""
    deadline = time.monotonic() + timeout_s
    commands = [argv(test, number) for number in range(len(test.devices))]
    processes: list[subprocess.Popen[str]] = []
    try:
        for words in commands:
            processes.append(_start(words))
        found = []
        for words, process in zip(commands, processes):
            try:
                output, _none = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise _failure(words, "", f"waited {timeout_s:.0f} s for the other side") from None
            if process.returncode != 0:
                raise _failure(words, output, f"ended with {process.returncode}")
            found.append(parse(output))
        return found
    finally:
        for process in processes:
            _end(process)


def measure(test: Measurement, server: str, timeout_s: float) -> list[Bandwidth]:
    """Write to the other side over one device after the other."""
    deadline = time.monotonic() + timeout_s
    found = []
    for number in range(len(test.devices)):
        words, last = argv(test, number, server), ""
        while True:
            process = _start(words)
            try:
                output, _none = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                _end(process)
                raise _failure(words, last, f"did not end within {timeout_s:.0f} s") from None
            if process.returncode == 0:
                found.append(parse(output))
                break
            if not is_too_early(output) or time.monotonic() + _RETRY_S > deadline:
                raise _failure(words, output, f"to {server} ended with {process.returncode}")
            last = output
            time.sleep(_RETRY_S)
    return found


__all__ = ["Bandwidth", "Measurement", "argv", "is_too_early", "measure", "parse", "serve"]
