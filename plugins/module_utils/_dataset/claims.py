# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Batches of a staging run that ranks claim on a shared file system.

The only primitive is the exclusive creation of a file, which every shared file system offers. One directory holds

    ``<batch>.<attempt>``           claimed: the owner rewrites it as a heartbeat, ``owner beat seconds fraction-done``
    ``<batch>.<attempt>.released``  the attempt failed or its owner was given up; the next attempt may be claimed
    ``<batch>.done``                finished, with its result
    ``end``                         nothing is left to claim: whoever waits need not read all the others to see it

A claim is *stale* when an observer saw no new heartbeat for ``expiry_s`` of the observer's own clock, so that clocks of
nodes need not agree. Two owners of one batch do no harm: both write the same checked content and rename it.
"""

from __future__ import annotations

import contextlib
import os
import time
import typing as t
from dataclasses import dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import read_json, write_json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.own import regular

_END = "end"


@dataclass
class BatchState:
    """What the directory says about one batch. ``attempt`` is the highest one seen, -1 for none."""

    attempt: int = -1
    released: set[int] = field(default_factory=set)
    done: bool = False

    @property
    def claimed(self) -> bool:
        return not self.done and self.attempt >= 0 and self.attempt not in self.released

    @property
    def next_attempt(self) -> int | None:
        """The attempt that may be claimed now, or None while a rank works on it or when it is done."""
        return None if self.done or self.claimed else self.attempt + 1


class Account(t.NamedTuple):
    """What an owner says of one attempt: seconds since its claim, and the fraction of the batch that is done."""

    owner: str
    seconds: float
    fraction: float


class Claims:
    """The claims of one run, seen by one owner (``owner`` is unique per worker process)."""

    def __init__(
        self,
        directory: str,
        owner: str,
        *,
        expiry_s: float = 60.0,
        max_attempts: int = 4,
        clock: t.Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._owner = owner
        self._expiry_s = expiry_s
        self._max_attempts = max_attempts
        self._clock = clock
        self._beats = 0
        self._seen: dict[str, tuple[str, float]] = {}
        self._held: dict[str, tuple[int, float]] = {}
        os.makedirs(directory, exist_ok=True)

    def _path(self, batch: str, attempt: int) -> str:
        return os.path.join(self._directory, f"{batch}.{attempt}")

    def claim(self, batch: str, attempt: int) -> bool:
        """Try to become the owner of this attempt. Only one caller ever succeeds."""
        try:
            descriptor = os.open(self._path(batch, attempt), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "w") as stream:
            stream.write(f"{self._owner} 0 0 0")
        self._held[batch] = (attempt, self._clock())
        return True

    def heartbeat(self, done: t.Mapping[str, float]) -> None:
        """Show that the owner of the held claims is alive, and which fraction of each batch is done."""
        self._beats += 1
        for batch, (attempt, since) in list(self._held.items()):
            line = f"{self._owner} {self._beats} {self._clock() - since:.3f} {done.get(batch, 0.0):.4f}"
            with open(self._path(batch, attempt), "w", encoding="utf-8", opener=regular) as stream:
                stream.write(line)

    def account(self, batch: str, attempt: int) -> Account | None:
        """How the attempt went until the owner's last heartbeat, by the owner's own account; None while that cannot be told."""
        try:
            with open(self._path(batch, attempt), encoding="utf-8", opener=regular) as stream:
                owner, _beat, seconds, fraction = stream.read().rsplit(" ", 3)
            return Account(owner, float(seconds), float(fraction))
        except (FileNotFoundError, ValueError):
            return None

    def is_done(self, batch: str) -> bool:
        return os.path.exists(os.path.join(self._directory, f"{batch}.done"))

    def forget(self, batch: str) -> None:
        """Stop holding a batch that another rank has finished."""
        self._held.pop(batch, None)

    def release(self, batch: str, reason: str) -> None:
        """Give the batch back, so that a rank may try it again."""
        attempt, _since = self._held.pop(batch)
        write_json(self._path(batch, attempt) + ".released", {"owner": self._owner, "reason": reason})

    def finish(self, batch: str, result: dict[str, t.Any]) -> None:
        """The batch is done; the first result stays when two owners finish."""
        self._held.pop(batch, None)
        done = os.path.join(self._directory, f"{batch}.done")
        if not os.path.exists(done):
            write_json(done, {"owner": self._owner, **result})

    def survey(self, batches: t.Collection[str]) -> dict[str, BatchState]:
        """The state of all batches, from one reading of the directory."""
        states = {batch: BatchState() for batch in batches}
        for name in os.listdir(self._directory):
            batch, _dot, rest = name.partition(".")
            state = states.get(batch)
            if state is None or rest.endswith(".part"):
                continue
            if rest == "done":
                state.done = True
                continue
            attempt = int(rest.partition(".")[0])
            state.attempt = max(state.attempt, attempt)
            if rest.endswith(".released"):
                state.released.add(attempt)
        return states

    def finished(self, state: BatchState) -> bool:
        """True when no rank will work on the batch again: it is done, or given up after too many attempts."""
        return state.done or (state.next_attempt is not None and state.next_attempt >= self._max_attempts)

    def end(self) -> None:
        """Tell all that wait that every batch is finished."""
        with open(os.path.join(self._directory, _END), "w", encoding="utf-8"):
            pass

    def ended(self) -> bool:
        return os.path.exists(os.path.join(self._directory, _END))

    def claimable(self, state: BatchState) -> bool:
        return state.next_attempt is not None and state.next_attempt < self._max_attempts

    def last_attempt(self, attempt: int) -> bool:
        """Whether nobody may try again after this one."""
        return attempt + 1 >= self._max_attempts

    def is_stale(self, batch: str, attempt: int) -> bool:
        """True when the claim's heartbeat has not moved for ``expiry_s`` since we first looked at it."""
        path = self._path(batch, attempt)
        try:
            with open(path, encoding="utf-8", opener=regular) as stream:
                beat = stream.read()
        except FileNotFoundError:
            return False
        known = self._seen.get(path)
        if known is None or known[0] != beat:
            self._seen[path] = (beat, self._clock())
            return False
        return self._clock() - known[1] >= self._expiry_s

    def take_over(self, batch: str, attempt: int, reason: str) -> bool:
        """Claim the next attempt of a batch whose owner is silent or slow, unless attempts are used up."""
        write_json(self._path(batch, attempt) + ".released", {"owner": self._owner, "reason": reason})
        return not self.last_attempt(attempt) and self.claim(batch, attempt + 1)

    def result(self, batch: str) -> dict[str, t.Any] | None:
        return t.cast("dict[str, t.Any] | None", read_json(os.path.join(self._directory, f"{batch}.done")))

    def release_all(self, reason: str) -> None:
        for batch in list(self._held):
            with contextlib.suppress(OSError):
                self.release(batch, reason)


__all__ = ["Account", "BatchState", "Claims"]
