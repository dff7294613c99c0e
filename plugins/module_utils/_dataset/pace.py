# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""How quickly a rank copies, and when it is time to begin the next batch.

The next batch starts shortly before the last one's bytes are all here, so that the network is busy while AzCopy starts and
ends and while files are inflated.
"""

from __future__ import annotations

#: What AzCopy needs for the smallest job, whatever the network.
_START_S = 2.0
#: AzCopy starts, asks for every name and only then uses the network: begin the next batch so much before the end at
#: least, and so many times as long as the first file took, since AzCopy starts slower beside a running one (on two CPUs
#: 2.9 s for 1.6 s), but not more than this part of the batch before.
_AZCOPY_START_S = 1.0
_AZCOPY_STARTS_SLOWER = 2.0
_LEAD_PART = 0.1


class Pace:
    """What the batches of one rank have shown. Sizes in bytes over the network, times in seconds."""

    def __init__(self) -> None:
        self._bytes_per_s = 0.0
        self._first_file_s = 0.0

    @property
    def known(self) -> bool:
        """Whether a batch has landed here."""
        return self._bytes_per_s > 0

    def learn(self, copied: int, seconds: float) -> None:
        """Take in a batch that has landed."""
        if copied and seconds > 0:
            rate = copied / seconds
            self._bytes_per_s = (self._bytes_per_s + rate) / 2 if self._bytes_per_s else rate

    def began(self, seconds: float) -> None:
        """Take in how long the first file of a batch took."""
        self._first_file_s = seconds

    def nearly_landed(self, size: int, copied: int, seconds: float) -> bool:
        """Whether so little of a batch of ``size`` is left after so many seconds that the next may begin."""
        rate = copied / seconds
        early = min(rate * _AZCOPY_STARTS_SLOWER * self._first_file_s, size * _LEAD_PART)
        return size - copied <= max(rate * _AZCOPY_START_S, early)

    def needs_s(self, size: int) -> float:
        """What all of a batch would take. Only where the pace is ``known``."""
        return size / self._bytes_per_s + _START_S


__all__ = ["Pace"]
