# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""One line per cluster about a staging run, made from what the ranks say about themselves."""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import RankProgress

#: Rates are taken over this many seconds: long enough to be calm, short enough to show a change.
_RATE_WINDOW_S = 15.0
#: A rank with nothing left to do looks every second whether the run is over; who needs longer hangs in its disk.
_WIND_DOWN_S = 10.0
#: Decimal units, the largest first. Below the last one everything is in it.
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def parse_progress(text: str) -> list[RankProgress]:
    """Read JSON documents that stand one behind the other, as ``cat`` prints them. A cut last one is left out."""
    decoder = json.JSONDecoder()
    ranks: list[RankProgress] = []
    position = 0
    while (position := text.find("{", position)) >= 0:
        try:
            document, position = decoder.raw_decode(text, position)
            ranks.append(RankProgress(**document))
        except (ValueError, TypeError):
            break
    return ranks


@dataclass
class Watch:
    """Follows a run: who is alive, how fast it is, whether it is over. Times are seconds of one monotonic clock.

    ``shared``: the ranks help each other, so that one of them can tell when every batch is done.
    """

    ranks: dict[int, str]
    total_files: int
    total_raw_bytes: int
    silent_after_s: float = 60.0
    shared: bool = False
    _progress: dict[int, RankProgress] = field(default_factory=dict)
    _last_beat: dict[int, tuple[int, float]] = field(default_factory=dict)
    _samples: list[tuple[float, int]] = field(default_factory=list)
    _began: float | None = None
    _complete_since: float | None = None

    def update(self, ranks: t.Iterable[RankProgress], now: float) -> None:
        if self._began is None:
            self._began = now
            self._last_beat = dict.fromkeys(self.ranks, (-1, now))
        for rank in ranks:
            if rank.rank not in self.ranks or rank.beat < self._last_beat[rank.rank][0]:
                continue  # an answer that came late says less than is known
            self._progress[rank.rank] = rank
            if self._last_beat[rank.rank][0] != rank.beat:
                self._last_beat[rank.rank] = (rank.beat, now)
            # A rank finishes when every batch of the run is done or given up.
            if self.shared and rank.state == "finished" and self._complete_since is None:
                self._complete_since = now
        self._samples.append((now, self.raw_bytes))
        while len(self._samples) > 2 and now - self._samples[0][0] > _RATE_WINDOW_S:
            self._samples.pop(0)

    @property
    def files(self) -> int:
        return sum(rank.files for rank in self._progress.values())

    @property
    def raw_bytes(self) -> int:
        return sum(rank.raw_bytes for rank in self._progress.values())

    def silent(self, now: float) -> list[int]:
        """Ranks that have not ended and gave no sign of life for a while; a shorter one when no batch is left for them."""
        patience_s = min(self.silent_after_s, _WIND_DOWN_S) if self._complete(now) else self.silent_after_s
        return [
            rank
            for rank, (_beat, since) in sorted(self._last_beat.items())
            if not self._ended(rank) and now - since >= patience_s
        ]

    def over(self, now: float) -> bool:
        """True when every rank has ended or is silent, and soon after no batch is left."""
        if self._complete(now):
            return True
        silent = set(self.silent(now))
        return all(self._ended(rank) or rank in silent for rank in self.ranks)

    @property
    def complete(self) -> bool:
        """Whether every batch is done or given up, as a rank that finished says."""
        return self._complete_since is not None

    def _complete(self, now: float) -> bool:
        return self._complete_since is not None and now - self._complete_since >= _WIND_DOWN_S

    def late(self, now: float) -> list[int]:
        """Ranks that neither ended nor are silent although no batch is left for them."""
        if not self._complete(now):
            return []
        silent = set(self.silent(now))
        return [rank for rank in sorted(self.ranks) if not self._ended(rank) and rank not in silent]

    def _ended(self, rank: int) -> bool:
        progress = self._progress.get(rank)
        return progress is not None and progress.ended

    def line(self, now: float) -> str:
        """Files, bytes over the network, rate, time left where that can be told, and who is in trouble."""
        (first, first_bytes), (last, last_bytes) = self._samples[0], self._samples[-1]
        rate = (last_bytes - first_bytes) / (last - first) if last > first else 0.0
        left = self.total_raw_bytes - self.raw_bytes
        # What one rank takes over from another both may have counted.
        twice = self.files - self.total_files
        divisor, unit = next((pair for pair in _UNITS if self.total_raw_bytes >= pair[0] / 10), _UNITS[-1])
        parts = [
            f"staging: {min(self.files, self.total_files)}/{self.total_files} files"
            + (f" ({twice} of them twice)" if twice > 0 else ""),
            f"{min(self.raw_bytes, self.total_raw_bytes) / divisor:.2f}/{self.total_raw_bytes / divisor:.2f} {unit}",
            f"{rate / divisor:.3f} {unit}/s",
        ]
        if rate > 0 and left > 0:
            parts.append(f"ETA {_duration(left / rate)}")
        for label, ranks in (("silent", self.silent(now)), ("late", self.late(now)), ("failed", self._failed())):
            if ranks:
                parts.append(f"{label}: {', '.join(self.ranks[rank] for rank in ranks)}")
        return ", ".join(parts)

    def _failed(self) -> list[int]:
        return [rank for rank, progress in sorted(self._progress.items()) if progress.state == "failed"]

    def errors(self) -> list[dict[str, t.Any]]:
        """What stopped or troubled ranks, each with its host."""
        return [
            {"rank": rank, "host": self.ranks[rank], **progress.error}
            for rank, progress in sorted(self._progress.items())
            if progress.error is not None
        ]


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


__all__ = ["Watch", "parse_progress"]
