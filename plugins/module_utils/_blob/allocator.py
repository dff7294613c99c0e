# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What a listing frees goes back to the system, instead of lying in pieces between the blocks of names that stay."""

from __future__ import annotations

import contextlib
import ctypes

# Of glibc's malloc.h, and its own first value, which it raises to the size of whatever large piece is freed: with pages of 2 MB
# that come and go, half as much again as the names would be lost between them. Setting it ends that (mallopt(3)).
_M_MMAP_THRESHOLD = -3
_THRESHOLD_BYTES = 128 << 10


def return_what_is_freed() -> None:
    """For the rest of the process. Where the C library is another one, nothing happens."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES)


__all__ = ["return_what_is_freed"]
