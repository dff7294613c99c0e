# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""How long a rank goes on trying while a file system fails, or AzCopy crashes."""

from __future__ import annotations

import typing as t


class Tolerance:
    """What fails on the shared file system is forgiven for ``forgiven_s``. Times are in seconds, of the caller's clock.

    Only the same act's success ends its trouble: where nothing can be written, reading may go well all the time.
    """

    def __init__(self, forgiven_s: float) -> None:
        self._forgiven_s = forgiven_s
        self._trouble: dict[t.Callable[..., t.Any], tuple[float, float]] = {}  # when it began, when it was seen last

    def failed(self, act: t.Callable[..., t.Any], now: float) -> bool:
        """Note an act that failed; True when that has lasted too long to go on."""
        since, last = self._trouble.get(act, (now, now))
        # What is done seldom and failed long ago may have gone well in between.
        self._trouble[act] = (since if now - last <= self._forgiven_s else now, now)
        return now - self._trouble[act][0] > self._forgiven_s

    def went_well(self, act: t.Callable[..., t.Any]) -> None:
        """Note an act that did not fail."""
        self._trouble.pop(act, None)


class Trouble:
    """Batches that failed with one of ``TROUBLE_KINDS`` since the last one that was copied. Times are in seconds, of the caller's clock.

    A rank ends when more than ``most`` failed and the first of them is older than ``forgiven_s``. Until then it pauses between
    the tries, each time twice as long: every try uses up an attempt of a batch.
    """

    def __init__(self, most: int, forgiven_s: float, pause_s: float) -> None:
        self._most = most
        self._forgiven_s = forgiven_s
        self._first_pause_s = self._pause_s = pause_s
        self._failed = 0
        self._since = 0.0
        self._rest_until = 0.0

    def failed(self, now: float) -> bool:
        """Note a batch that failed; True when the trouble lasts too long to go on."""
        if not self._failed:
            self._since = now
        self._failed += 1
        self._rest_until = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, self._forgiven_s / 4)
        return self._failed > self._most and now - self._since > self._forgiven_s

    def over(self) -> None:
        """Note a batch that was copied."""
        self._failed = 0
        self._rest_until = 0.0
        self._pause_s = self._first_pause_s

    def rest_s(self, now: float) -> float:
        """How long to wait until the next try; 0 for not at all."""
        return max(0.0, self._rest_until - now) if self._failed else 0.0


__all__ = ["Tolerance", "Trouble"]
