# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Whether the owner of a batch is so much slower than others that an idle rank copies the batch, too.

Where an account throttles, or a shared file system is busy, all ranks are slow, and whoever copies what another copies makes all of
them slower. So an owner is compared with what batches of others take in the same run, and only few batches are copied twice at a time.
Both are what LATE does for MapReduce (Zaharia et al., OSDI 2008): it compares rates of progress, and caps speculative copies.
"""

from __future__ import annotations

import collections
import random
import statistics
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.claims import BatchState, Claims

#: An owner is slow who has needed so many times what the whole batch takes others,
_LONGER = 1.5
#: and by its pace so far needs so many times that for the rest.
_SLOWER = 1.5
#: At most one in so many ranks copies what another copies; one always may.
_RANKS_PER_COPY = 10
#: So many finished batches tell what is usual, the last ones that were seen to end.
_USUAL = 16
#: So many of those at work are read at a look: all ranks of a run look at the same directory.
_READ = 4
#: Who has done less than this part shows no pace: AzCopy asks for all names before it fetches the first file.
_TELLING = 0.1


class SlowOwners:
    """What batches take in one run, by the accounts of their owners. ``bytes_of`` are those that cross the network."""

    def __init__(self, claims: Claims, bytes_of: t.Mapping[str, int], ranks: int) -> None:
        self._claims = claims
        self._bytes_of = bytes_of
        self._copies = max(1, ranks // _RANKS_PER_COPY)
        self._ended: set[str] = set()
        self._finished: collections.deque[tuple[str, float]] = collections.deque(maxlen=_USUAL)

    def much_slower(self, batch: str, states: t.Mapping[str, BatchState], own_s: float) -> bool:
        """Whether the owner of a claimed batch is much slower than others. ``own_s``: what all of it would take this rank."""
        state = states[batch]
        if self._claims.last_attempt(state.attempt):
            return False  # it would be given up while somebody copies it
        account = self._claims.account(batch, state.attempt)
        if account is None or account.seconds <= _LONGER * own_s:
            return False
        if sum(other.claimed and other.attempt > 0 for other in states.values()) >= self._copies:
            return False
        usual_s = max(own_s, self._bytes_of[batch] * self._usual(account.owner, states))
        left_s = account.seconds * (1 - account.fraction) / max(account.fraction, 0.01)
        return account.seconds > _LONGER * usual_s and left_s > _SLOWER * usual_s

    def _usual(self, owner: str, states: t.Mapping[str, BatchState]) -> float:
        """Seconds per byte of batches that are not this owner's, finished and at work; 0 where none tells."""
        self._look_at_finished(states)
        known = [(who, seconds) for who, seconds in (*self._finished, *self._working(states)) if who != owner]
        return statistics.median(seconds for _who, seconds in known) if known else 0.0

    def _look_at_finished(self, states: t.Mapping[str, BatchState]) -> None:
        # Those that were tried again: nobody knows here which try took how long.
        ended = [name for name, state in states.items() if state.done and not state.attempt and name not in self._ended]
        self._ended.update(ended)
        for name in random.sample(ended, min(_USUAL, len(ended))):
            account = self._claims.account(name, 0)
            if account is not None and self._bytes_of[name]:
                self._finished.append((account.owner, account.seconds / self._bytes_of[name]))

    def _working(self, states: t.Mapping[str, BatchState]) -> t.Iterator[tuple[str, float]]:
        names = [name for name, state in states.items() if state.claimed]
        for name in random.sample(names, min(_READ, len(names))):
            account = self._claims.account(name, states[name].attempt)
            if account is not None and account.fraction >= _TELLING and self._bytes_of[name]:
                yield account.owner, account.seconds / account.fraction / self._bytes_of[name]


__all__ = ["SlowOwners"]
