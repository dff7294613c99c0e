# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The mark of an installation or removal that began and did not end: the next run does it again."""

from __future__ import annotations

import contextlib
import os
import typing as t
from pathlib import Path

#: Holds what was begun; gone when that ended well.
PATH = Path("/var/lib/mofed/unfinished")


@contextlib.contextmanager
def marked(what: str) -> t.Iterator[t.Callable[[], None]]:
    """Leave the mark unless what is done ends well. Yields what takes it back, where everything was undone."""
    before = PATH.read_text(encoding="utf-8") if PATH.exists() else ""
    _write(f"{what}\n")
    yield lambda: _write(before)
    _write("")


def _write(text: str) -> None:
    """The mark, on the disk before what it stands for begins; no text removes it."""
    if text:
        PATH.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with PATH.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        return
    PATH.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        PATH.parent.rmdir()


__all__ = ["PATH", "marked"]
