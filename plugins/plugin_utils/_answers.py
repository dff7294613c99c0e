# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Ask many hosts the same thing, and wait for none of them for ever."""

from __future__ import annotations

import collections
import contextlib
import queue
import threading
import time
import typing as t

Answer = t.TypeVar("Answer")


class Answers(t.Generic[Answer]):
    """Asks hosts side by side, each in a thread of its own.

    Who has not answered within ``deadline_s`` (a mount that hangs, a machine without power) is left alone until it has.
    """

    def __init__(self, ask: t.Callable[[str], Answer], *, deadline_s: float, at_once: int) -> None:
        self._ask = ask
        self._deadline_s = deadline_s
        self._at_once = at_once
        self._arrived: queue.Queue[tuple[str, Answer | None, Exception | None]] = queue.Queue()
        self._silent: set[str] = set()

    def of(self, hosts: t.Iterable[str]) -> dict[str, Answer]:
        """The answers of those that gave one in time. Raises what asking raised."""
        self._take_late_ones()
        answers: dict[str, Answer] = {}
        waiting = collections.deque(host for host in hosts if host not in self._silent)
        asked: dict[str, float] = {}
        while waiting or asked:
            while waiting and len(asked) < self._at_once:
                host = waiting.popleft()
                asked[host] = time.monotonic()
                # No pool: its threads are waited for when the process ends.
                threading.Thread(target=self._ask_one, args=(host,), daemon=True).start()
            try:
                host, answer, error = self._arrived.get(timeout=self._patience_s(asked))
            except queue.Empty:
                late = [host for host, since in asked.items() if time.monotonic() - since >= self._deadline_s]
                self._silent.update(late)
                for host in late:
                    del asked[host]
                continue
            self._silent.discard(host)
            if asked.pop(host, None) is None:
                continue  # too late for this time
            if error is not None:
                raise error
            answers[host] = t.cast("Answer", answer)
        return answers

    def _patience_s(self, asked: t.Mapping[str, float]) -> float:
        return max(0.0, min(asked.values()) + self._deadline_s - time.monotonic())

    def _take_late_ones(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._silent.discard(self._arrived.get_nowait()[0])

    def _ask_one(self, host: str) -> None:
        try:
            self._arrived.put((host, self._ask(host), None))
        except Exception as error:  # raised again where it is waited for
            self._arrived.put((host, None, error))


__all__ = ["Answers"]
