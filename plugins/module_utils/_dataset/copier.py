# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""AzCopy beside the thread that finishes what it lands."""

from __future__ import annotations

import threading
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.argv import CopyRequest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.run import CopyOutcome, run_copies


class Copier:
    """AzCopy in a thread of its own, while this one finishes what has landed. It does not outlive the ``with`` block."""

    def __init__(
        self, requests: t.Sequence[CopyRequest], stall_timeout_s: float, should_stop: t.Callable[[], bool]
    ) -> None:
        self._outcome: CopyOutcome | None = None
        self._crash: BaseException | None = None
        self._complete = threading.Event()
        self._abandoned = threading.Event()

        def work() -> None:
            try:
                self._outcome = run_copies(
                    requests,
                    stall_timeout_s=stall_timeout_s,
                    should_stop=lambda: self._abandoned.is_set() or should_stop(),
                    is_complete=self._complete.is_set,
                )
            except BaseException as error:  # handed to the caller of result()
                self._crash = error

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def __enter__(self) -> Copier:
        return self

    def __exit__(self, *_error: object) -> None:
        self._abandoned.set()
        self._thread.join()

    def done(self) -> bool:
        return not self._thread.is_alive()

    def finish(self) -> None:
        """Every file is here: AzCopy need not go on until its next look at the clock."""
        self._complete.set()

    def result(self) -> CopyOutcome:
        self._thread.join()
        if self._crash is not None:
            raise self._crash
        return t.cast("CopyOutcome", self._outcome)


__all__ = ["Copier"]
