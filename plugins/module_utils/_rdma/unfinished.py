# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The mark of an installation or removal that began and did not end: the next run does it again."""

from __future__ import annotations

import contextlib
import typing as t
from pathlib import Path

#: Holds what was begun; gone when that ended well.
PATH = Path("/var/lib/mofed/unfinished")


@contextlib.contextmanager
def marked(what: str) -> t.Iterator[None]:
    """Leave the mark unless what is done ends well."""
    PATH.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    PATH.write_text(f"{what}\n", encoding="utf-8")
    yield
    PATH.unlink()
    with contextlib.suppress(OSError):
        PATH.parent.rmdir()


__all__ = ["PATH", "marked"]
