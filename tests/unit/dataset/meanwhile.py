# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Somebody else at work, while a test looks at what it does to the code."""

from __future__ import annotations

import contextlib
import threading
import typing as t


@contextlib.contextmanager
def meanwhile(work: t.Callable[[threading.Event], None]) -> t.Iterator[None]:
    """Run ``work`` in a thread beside the block. At its end the event tells ``work`` to stop, and the thread is waited for."""
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


__all__ = ["meanwhile"]
