# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is to be done, as plain data."""

from __future__ import annotations

import dataclasses

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.find import Found
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.judge import Verdict


@dataclasses.dataclass(frozen=True)
class Step:
    """One change. ``what`` says it in words; the rest is for the half that carries it out."""

    kind: str
    what: str
    device: str = ""
    disks: tuple[str, ...] = ()
    value: str = ""


def release(point: str) -> Step:
    """Let a directory be written to that was kept from it while nothing was mounted there."""
    return Step("release", f"let {point} be written to again", value=point)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to do, in order, and what is worth knowing besides: ``warnings`` tell what was probably not meant."""

    verdicts: tuple[Verdict, ...]
    found: Found | None
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    degraded: str = ""
    warnings: tuple[str, ...] = ()
    disks_to_expect: int = 0  # only after a look: what the request would have to say before an array is first made


__all__ = ["Plan", "Step", "release"]
