# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Receipts of finished files, written in the background, and only when the files are on disk.

After a power cut a receipt therefore never stands for a file with holes. Many files are brought to disk at a time, while others
land and are inflated.
"""

from __future__ import annotations

import time
import typing as t
from concurrent.futures import Future, ThreadPoolExecutor

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.receipts import Receipt, ReceiptLog
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.durable import DurableTree

# A rank that takes a batch over copies every file without a receipt again.
_EVERY_S = 1.0


class Keeper:
    """Takes receipts of files below ``destination`` from one thread. Leaving the ``with`` block writes the rest, or raises why not."""

    def __init__(self, destination: str, log: ReceiptLog) -> None:
        self._tree = DurableTree(destination)
        self._log = log
        self._waiting: list[Receipt] = []
        self._writing: Future[None] | None = None
        self._begun = time.monotonic()
        self._pool = ThreadPoolExecutor(max_workers=1)

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, *_error: object) -> None:
        with self._pool:
            self._finish()
            self._write(self._waiting)

    def add(self, receipt: Receipt) -> None:
        self._waiting.append(receipt)
        if time.monotonic() - self._begun >= _EVERY_S and (self._writing is None or self._writing.done()):
            self._finish()
            waiting, self._waiting, self._begun = self._waiting, [], time.monotonic()
            self._writing = self._pool.submit(self._write, waiting)

    def broken(self) -> bool:
        """Whether receipts could not be written: nothing more should be copied. The reason is raised by the next call."""
        return self._writing is not None and self._writing.done() and self._writing.exception() is not None

    def _finish(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _write(self, receipts: t.Sequence[Receipt]) -> None:
        if receipts:
            self._tree.sync([receipt.name for receipt in receipts])
            self._log.append(receipts)


__all__ = ["Keeper"]
