# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""When a request that failed is made again.

A service that says it is busy (429, 503) says so to everybody who asks: it is asked until the deadline, after the pause
that it names. Any other passing fault is tried a few times.
"""

from __future__ import annotations

import email.utils
import time

#: Answers that pass: a time-out, throttling, and a disturbed service.
PASSING = frozenset((408, 429, 500, 502, 503, 504))
BUSY = frozenset((429, 503))
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 8.0


class Patience:
    """The pauses between the attempts at one request. ``deadline`` is on the clock of ``time.monotonic``."""

    def __init__(self, retries: int, deadline_s: float) -> None:
        self.deadline = time.monotonic() + deadline_s
        self._retries = retries
        self._pause_s = _FIRST_PAUSE_S

    def pause_s(self, *, busy: bool = False, asked_s: float = 0.0) -> float | None:
        """Seconds until the next attempt; None where there is none. ``asked_s`` is what the service asked for."""
        if not busy:
            if not self._retries:
                return None
            self._retries -= 1
        pause = max(self._pause_s, asked_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return pause if time.monotonic() + pause < self.deadline else None


def retry_after_s(value: str | None, now: float) -> float:
    """The header Retry-After in seconds from ``now`` (RFC 9110 §10.2.3: seconds, or a date). 0 where it says nothing."""
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - now)
    except (TypeError, ValueError, OverflowError):
        return 0.0


__all__ = ["BUSY", "PASSING", "Patience", "retry_after_s"]
