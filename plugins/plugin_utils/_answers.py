# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Ask many hosts the same thing again and again, and wait for none of them long."""

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

    Who has not answered within ``patience_s`` (a mount that hangs, a machine without power) is not waited for and not asked again
    before it has; its answer is taken when it comes. Who cannot be reached, whose answer is None, is left alone for ``rest_s``.
    """

    def __init__(
        self, ask: t.Callable[[str], Answer | None], *, patience_s: float, rest_s: float, at_once: int
    ) -> None:
        self._ask = ask
        self._patience_s = patience_s
        self._rest_s = rest_s
        self._at_once = at_once
        self._arrived: queue.Queue[tuple[str, Answer | None, Exception | None]] = queue.Queue()
        self._busy: set[str] = set()
        self._rests_until: dict[str, float] = {}

    def of(self, hosts: t.Iterable[str]) -> dict[str, Answer]:
        """The answers of those that gave one in time, and late ones of any that were asked before. Raises what asking raised."""
        answers: dict[str, Answer] = {}
        with contextlib.suppress(queue.Empty):
            while True:
                self._take(self._arrived.get_nowait(), answers)
        now = time.monotonic()
        waiting = collections.deque(
            host
            for host in hosts
            if host not in self._busy and host not in answers and self._rests_until.get(host, now) <= now
        )
        asked: dict[str, float] = {}
        while waiting or asked:
            while waiting and len(asked) < self._at_once:
                host = waiting.popleft()
                asked[host] = time.monotonic()
                self._busy.add(host)
                # No pool: its threads are waited for when the process ends.
                threading.Thread(target=self._ask_one, args=(host,), daemon=True).start()
            try:
                asked.pop(self._take(self._arrived.get(timeout=self._left_s(asked)), answers), None)
            except queue.Empty:
                now = time.monotonic()
                asked = {host: since for host, since in asked.items() if now - since < self._patience_s}
        return answers

    def _take(self, arrived: tuple[str, Answer | None, Exception | None], answers: dict[str, Answer]) -> str:
        """Keep an answer; returns whose it is."""
        host, answer, error = arrived
        self._busy.discard(host)
        if error is not None:
            raise error
        if answer is None:
            self._rests_until[host] = time.monotonic() + self._rest_s
        else:
            answers[host] = answer
        return host

    def _left_s(self, asked: t.Mapping[str, float]) -> float:
        return max(0.0, min(asked.values()) + self._patience_s - time.monotonic())

    def _ask_one(self, host: str) -> None:
        try:
            self._arrived.put((host, self._ask(host), None))
        except Exception as error:  # raised again where it is waited for
            self._arrived.put((host, None, error))


__all__ = ["Answers"]
