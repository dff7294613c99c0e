# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What several files of the driver know: the driver that the kernel runs."""

from __future__ import annotations

import dataclasses
import typing as t


@dataclasses.dataclass(frozen=True)
class Loaded:
    """The NVIDIA kernel module that runs; an empty version means none."""

    version: str = ""
    flavor: str = ""
    parameters: t.Mapping[str, str] = dataclasses.field(default_factory=dict)


__all__ = ["Loaded"]
