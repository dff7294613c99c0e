# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""How often a rank without work looks for some: reading the claims of all ranks is what a thousand of them must not do all the time."""

from __future__ import annotations

import random

#: A rank with nothing to do looks again this soon, then half as often each time: most ranks end within the same second.
_FIRST_PAUSE_S = 0.1
#: All ranks of a run together read the directory so many times a second at most, once they have waited for a while.
_LOOKS_PER_S = 100.0
#: Ranks that begin to wait at the same time do not look at the same time.
_JITTER = 0.25


class Looks:
    """When one of ``ranks`` looks for work. Times are in seconds, of the caller's clock; ``pause_s`` is what few ranks wait."""

    def __init__(self, ranks: int, pause_s: float) -> None:
        self._longest_s = max(pause_s, ranks / _LOOKS_PER_S)
        self._first_s = min(_FIRST_PAUSE_S, pause_s)
        self._pause_s = self._first_s
        self._next = float("-inf")

    def found(self) -> None:
        """There was work, or there may be some: look at once, and soon again after that."""
        self._pause_s = self._first_s
        self._next = float("-inf")

    def missed(self, now: float) -> None:
        """There was none."""
        self._next = now + self._pause_s * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - no secret
        self._pause_s = min(2 * self._pause_s, self._longest_s)

    def wait_s(self, now: float) -> float:
        """How long until the next look; 0 for now."""
        return max(0.0, self._next - now)


__all__ = ["Looks"]
