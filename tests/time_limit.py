# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An end for what might wait for ever."""

from __future__ import annotations

import contextlib
import signal
import typing as t


@contextlib.contextmanager
def within(seconds: int) -> t.Iterator[None]:
    """Ends what waits longer. Not with TimeoutError, which is an OSError: code that reads files takes those for a file that is gone."""

    def end(_number: int, _frame: t.Any) -> t.NoReturn:
        raise AssertionError(f"still waiting after {seconds} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


__all__ = ["within"]
