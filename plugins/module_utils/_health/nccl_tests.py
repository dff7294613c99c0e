# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What the programs of nccl-tests print: numbers, or why there are none.

Text of the releases 2.0 to 2.19, and the JSON that ``-J`` writes since 2.17 (NVIDIA/nccl-tests: ``src/common.cu``, later ``src/util.cu``).
``mpirun`` mixes the lines of all ranks, so a row counts only as a whole line whose numbers agree with each other.
"""

from __future__ import annotations

import dataclasses
import json
import re
import statistics
import typing as t

_NUMBER = r"[0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?"
_HALF = rf"\s+({_NUMBER})\s+({_NUMBER})\s+({_NUMBER})\s+(N/A|{_NUMBER})"
# size count type [redop] [root], then twice: time algbw busbw #wrong. Releases before 2.13 print an error where #wrong is now. What may
# follow is a time stamp (-S).
_ROW = re.compile(
    rf"^\s*([0-9]+)\s+[0-9]+\s+[a-z][a-z0-9_]*(?:\s+[a-z]\w*)?(?:\s+-?[0-9]+)?{_HALF}{_HALF}(?:\s+\d\d\d\d-.*)?\s*$"
)
_OUT_OF_BOUNDS = re.compile(r"^#\s*Out of bounds values\s*:\s*([0-9]+)\s+(OK|FAILED)\s*$", re.MULTILINE)
_AVERAGE = re.compile(rf"^#\s*Avg bus bandwidth\s*:\s*({_NUMBER})", re.MULTILINE)
_CONTENT = re.compile(r"^#.*\bbusbw\b.*$", re.MULTILINE)
# What NCCL chose (src/graph/, src/transport/net.cc: "Using network IB", "via NET/IB/0/GDRDMA"), not what it looked at on the way.
_NETWORK = re.compile(
    r"NCCL INFO .*?(?:Using network ([^\r\n]*\S)|via NET/([A-Za-z0-9 _]+?)/|Assigned NET plugin (\S+) to comm)"
)
#: Of the first failure, what the programs (``Test NCCL failure``, ``Test CUDA failure``), NCCL and the launchers print.
_FAILURE = re.compile(
    r"(Test (?:NCCL|CUDA) failure.*|NCCL WARN .*|.*(?:error while loading shared libraries|cannot execute).*)"
)
#: The columns are rounded to three digits at least.
_ROUNDING, _LEAST = 0.03, 0.011


@dataclasses.dataclass(frozen=True)
class Row:
    """One size. ``wrong`` is None where results were not checked. The second half of each pair is in place."""

    size_bytes: int
    time_us: tuple[float, float]
    algbw_gbytes_s: tuple[float, float]
    busbw_gbytes_s: tuple[float, float]
    wrong: int | None

    @property
    def busbw(self) -> float:
        """GB/s, of both halves, as the average in the last lines has it, by which sites compare (azurehpc-health-checks)."""
        return statistics.fmean(self.busbw_gbytes_s)


@dataclasses.dataclass(frozen=True)
class Report:
    """A run that ended. ``rows`` in their order: with ``-N`` each size comes once per cycle."""

    rows: tuple[Row, ...]
    wrong: int

    @property
    def samples(self) -> tuple[float, ...]:
        """GB/s at the largest size, one for each cycle."""
        largest = max(row.size_bytes for row in self.rows)
        return tuple(row.busbw for row in self.rows if row.size_bytes == largest)

    @property
    def curve(self) -> tuple[tuple[int, float], ...]:
        """The median of each size."""
        sizes = sorted({row.size_bytes for row in self.rows})
        return tuple(
            (size, statistics.median(row.busbw for row in self.rows if row.size_bytes == size)) for size in sizes
        )


@dataclasses.dataclass(frozen=True)
class Incomplete:
    """There is no result, for this reason."""

    reason: str


def parse(text: str, samples: int = 1) -> Report | Incomplete:
    """The result of a run that was to measure each size ``samples`` times. Never raises."""
    heading = _CONTENT.search(text)
    if heading is None:
        return Incomplete("there is no table of results")
    checked = "#wrong" in heading.group()
    rows = tuple(found for found in (_row(line, checked) for line in text.splitlines()) if found)
    bounds, average = _OUT_OF_BOUNDS.search(text), _AVERAGE.search(text)
    if bounds is None or average is None:
        return Incomplete("the output ends before the last lines")
    return _whole(rows, int(bounds.group(1)), float(average.group(1)), samples)


def parse_json(text: str, samples: int = 1) -> Report | Incomplete:
    """The same from the file that ``-J`` writes. Its ``env`` holds secrets, and is not read."""
    try:
        data = json.loads(text)
        rows = tuple(_json_row(one) for one in data["results"])
        # Releases before 2026-02-03 misspell it (NVIDIA/nccl-tests, pull request 370).
        average = data.get("average_bus_bandwidth") or data.get("average_bus_bandwidith") or {}
        mean = float(average.get("bandwidth", average.get("bandwidith", -1)))
        wrong = int(data["out_of_bounds"]["count"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return Incomplete("it is not the JSON of nccl-tests")
    return _whole(rows, wrong, mean, samples)


def _whole(rows: tuple[Row, ...], wrong: int, average: float, samples: int) -> Report | Incomplete:
    """Whether all rows are there: every size as often as asked, and together what the program says is their average."""
    if not rows:
        return Incomplete("there is no row of results")
    counts = {row.size_bytes: 0 for row in rows}
    for row in rows:
        counts[row.size_bytes] += 1
    if set(counts.values()) != {samples}:
        return Incomplete(
            f"{samples} rows of each size were asked for, {min(counts.values())} to {max(counts.values())} are there"
        )
    mean = statistics.fmean(row.busbw for row in rows)
    if abs(mean - average) > _LEAST + _ROUNDING * average:
        return Incomplete(f"the rows have {mean:.2f} GB/s on average, the last line {average:.2f}")
    return Report(rows, max(wrong, *(row.wrong or 0 for row in rows)))


def _row(line: str, checked: bool) -> Row | None:
    found = _ROW.match(line)
    if found is None:
        return None
    size = int(found.group(1))
    time_us, algbw, busbw, wrong = ((found.group(at), found.group(at + 4)) for at in range(2, 6))
    counts = [int(float(one)) for one in wrong if checked and one != "N/A"]
    row = Row(size, _pair(time_us), _pair(algbw), _pair(busbw), sum(counts) if counts else None)
    return row if _agrees(row) else None


def _json_row(data: t.Mapping[str, t.Any]) -> Row:
    halves = [data["out_of_place"], data["in_place"]]
    wrong = [
        int(float(half["nwrong"]))
        for half in halves
        if str(half.get("nwrong")).lower() not in ("none", "n/a", "nan", "-1")
    ]
    row = Row(
        int(data["size"]),
        _pair([half["time"] for half in halves]),
        _pair([half["alg_bw"] for half in halves]),
        _pair([half["bus_bw"] for half in halves]),
        sum(wrong) if wrong else None,
    )
    if not _agrees(row):
        raise ValueError("the numbers of a row contradict each other")
    return row


def _pair(values: t.Sequence[t.Any]) -> tuple[float, float]:
    return float(values[0]), float(values[1])


def _agrees(row: Row) -> bool:
    """Bandwidth is size by time, and the factor between both bandwidths is that of the collective: what a torn line does not keep."""
    for time_us, algbw in zip(row.time_us, row.algbw_gbytes_s):
        if not time_us > 0 or abs(row.size_bytes / time_us / 1e3 - algbw) > _LEAST + _ROUNDING * algbw:
            return False
    (alg_a, alg_b), (bus_a, bus_b) = row.algbw_gbytes_s, row.busbw_gbytes_s
    return (
        abs(alg_a * bus_b - alg_b * bus_a) <= 2 * _LEAST * (alg_a + alg_b + bus_a + bus_b) + _ROUNDING * alg_a * bus_b
    )


def transports(text: str) -> tuple[str, ...]:
    """The networks between nodes that NCCL names with NCCL_DEBUG=INFO: ``IB``, ``Socket``, ``AWS Libfabric`` … None within one node."""
    found = {next(name for name in match.groups() if name) for match in _NETWORK.finditer(text)}
    return tuple(sorted(found))


def failure(text: str) -> str:
    """The first line that says why a run failed, or the last line that says anything."""
    found = _FAILURE.search(text)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("#", "---"))]
    return (found.group(1).strip() if found else lines[-1] if lines else "it printed nothing")[:300]


__all__ = ["Incomplete", "Report", "Row", "failure", "parse", "parse_json", "transports"]
