# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Is a launch slow? Baselines, the noise, and how many samples it takes to tell."""

from __future__ import annotations

import math
import statistics
import typing as t

from .model import Found, Run, Scale

#: A launch is slow below 94 % of its baseline: between the -3.5 % at which Azure's guest health reporting warns and the -7 % at which it
#: replaces a node (AII), and half-way between a healthy node and the grey fault (x 0.88) that a planner has to find.
TOLERANCE = 0.06
#: Standard errors of a launch's median on either side of the floor within which it is unclear.
MARGIN = 2.0
#: A median's standard error is sqrt(pi / 2) that of a mean, for normal noise. It is what an interfering job cannot pull down.
MEDIAN = math.sqrt(math.pi / 2)
#: Relative standard error that samples are counted for: healthy and x 0.88 lie 5 of them from the floor.
PRECISION = 0.011
SAMPLES = range(5, 65)  # at least, to know the noise; at most, because they take time
FIRST_SAMPLES = 32  # enough for a noise of 5 %, while nothing is known of it


class Judge:
    """Knows all runs. A baseline is what was expected for that many nodes, or else learned from launches of the same scale."""

    def __init__(self, expected: t.Mapping[int, float], noise: float | None) -> None:
        self._expected = dict(expected)
        self._given = noise
        self._deviations: list[float] = []
        self._values: dict[Scale, list[float]] = {}
        self._noise: float | None = noise
        self._baselines: dict[Scale, tuple[float | None, float]] = {}

    def add(self, runs: t.Iterable[tuple[Run, t.Sequence[float]]]) -> None:
        for run, samples in runs:
            if run.busbw_gbytes_s:
                self._values.setdefault(run.scale, []).append(run.busbw_gbytes_s)
                self._deviations += [
                    abs(one / run.busbw_gbytes_s - 1) for one in samples if len(samples) >= SAMPLES.start
                ]
        self._baselines.clear()
        if self._given is None and self._deviations:
            self._noise = 1.4826 * statistics.median(self._deviations)  # MAD of a normal distribution

    def samples(self, doubt: int = 0) -> int:
        """How many a launch needs; twice as many each time that it was unclear before."""
        wanted = FIRST_SAMPLES if self._noise is None else math.ceil((MEDIAN * self._noise / PRECISION) ** 2)
        return max(SAMPLES.start, min(SAMPLES.stop - 1, wanted * 2**doubt))

    def is_known(self, scale: Scale) -> bool:
        return scale[0] in self._expected or scale in self._values

    def is_expected(self, size: int) -> bool:
        """Whether launches of so many nodes are compared with what was expected."""
        return _between(self._expected, size) is not None

    def baseline(self, scale: Scale) -> float | None:
        """GB/s of a healthy launch of this scale: expected, learned, or between those of smaller and of larger launches."""
        return self._baseline(scale)[0]

    def _baseline(self, scale: Scale) -> tuple[float | None, float]:
        if scale not in self._baselines:
            self._baselines[scale] = self._find(scale)
        return self._baselines[scale]

    def _find(self, scale: Scale) -> tuple[float | None, float]:
        learned, spread = self._learned(scale)
        expected = _between(self._expected, scale[0])
        if expected:
            return expected, spread
        if not learned:
            points = dict(self._expected)
            for other in sorted(self._values, key=lambda one: len(one[1])):
                points[other[0]] = self._expected.get(other[0]) or self._learned(other)[0] or points.get(other[0], 0)
            learned = _between({size: value for size, value in points.items() if value}, scale[0])
        # Fewer nodes are no slower than more of them. So two launches that are slow alike do not pass for the measure of all.
        least = self._expected.get(min((size for size in self._expected if size > scale[0]), default=0), 0.0)
        return max(learned or 0.0, least) or None, spread

    def _learned(self, scale: Scale) -> tuple[float | None, float]:
        """The median of the fastest launches that agree, and how they scatter. Faults only slow down, so the slow ones have no vote."""
        values = self._values.get(scale, [])
        if len(values) < 2:
            return None, 0.0
        level = max(values)
        for _step in range(
            3
        ):  # the largest of many is high by noise: each step comes nearer to the middle of the healthy
            agreed = [value for value in values if value >= (1 - TOLERANCE) * level]
            level = statistics.median(agreed)
        spread = 1.4826 * statistics.median(abs(value / level - 1) for value in agreed) if len(agreed) >= 8 else 0.0
        return level, spread

    def error(self, run: Run) -> float:
        """The relative standard error of a run's value, by its samples and by how launches of its scale scatter."""
        noise = 0.0 if self._noise is None else self._noise
        return max(MEDIAN * noise / math.sqrt(max(run.samples, 1)), self._baseline(run.scale)[1])

    def deficit(self, run: Run) -> float | None:
        """By how many standard errors a run lies below the floor; negative above it."""
        baseline = self.baseline(run.scale)
        if baseline is None or run.busbw_gbytes_s is None:
            return None
        return (1 - TOLERANCE - run.busbw_gbytes_s / baseline) / max(self.error(run), 1e-6)

    def find(self, run: Run, margin: float = MARGIN) -> Found:
        if run.incomplete:
            return Found.UNCLEAR
        if run.busbw_gbytes_s is None:
            return Found.SLOW
        deficit = self.deficit(run)
        if deficit is None or -margin < deficit < margin:
            return Found.UNCLEAR
        return Found.SLOW if deficit > 0 else Found.FAST


def _between(points: t.Mapping[int, float], size: int) -> float | None:
    """Linear in the logarithm of the node count, as rings and trees grow; nothing beyond the outermost points."""
    if size in points:
        return points[size]
    sizes = sorted(points)
    for low, high in zip(sizes, sizes[1:]):
        if low < size < high:
            share = math.log(size / low) / math.log(high / low)
            return points[low] + share * (points[high] - points[low])
    return None
