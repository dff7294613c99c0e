# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be proven by itself."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Scenario:
    """One run of tests with a result of its own.

    ``roots``: files, directories, and patterns (``*`` stays in a directory, ``**`` does not) that its result begins with;
    what they refer to belongs to it, too. ``parts``: names of ``parts.PARTS``. ``minutes``: an estimate for the time when no
    run has been measured. ``walks``: patterns of files that it reads as text, such as pages: they count, but what they
    refer to does not.
    """

    name: str
    roots: tuple[str, ...]
    parts: tuple[str, ...] = ()
    minutes: float = 1.0
    walks: tuple[str, ...] = ()


__all__ = ["Scenario"]
