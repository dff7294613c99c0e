# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What those who choose batches, copy them, and judge the copies say to each other."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import BatchInfo
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

#: Trying again does not help, on this rank or on another.
FATAL_KINDS = frozenset(
    {
        "auth_failed",
        "azcopy_missing",
        "azcopy_unsuitable",
        "bad_input",
        "container_missing",
        "sas_expired",
        "tls_untrusted",
    }
)
#: May pass, or may be this node's alone: it pauses, tries again, and leaves the rest to others where that lasts.
TROUBLE_KINDS = frozenset({"azcopy_crashed", "io"})
#: This rank cannot go on, another one may.
RANK_KINDS = frozenset({"disk_full", "not_mounted", "stuck", "superseded"})


@dataclass
class BatchOutcome:
    """What became of a batch. ``failed`` files will not get better by trying again at once, ``error`` concerns the batch."""

    failed: list[dict[str, str]] = field(default_factory=list)
    error: ClusterError | None = None


@dataclass(frozen=True)
class Hooks:
    """How a batch that is being copied and its worker talk to each other.

    The copy calls ``on_file(raw_bytes, bytes)`` for each file that reached its final name, ``landed()`` once it needs the
    network no longer, and gives up soon after ``should_stop()`` says so.
    """

    on_file: t.Callable[[int, int], None]
    landed: t.Callable[[], None]
    should_stop: t.Callable[[], bool]


#: Copies the files of one batch to their final names. The attempt counts from 0; files that an earlier one finished need not be
#: copied again.
CopyBatch = t.Callable[[BatchInfo, int, Hooks], BatchOutcome]


def stopped() -> ClusterError:
    """The error of a copy that was told to stop."""
    return ClusterError("cancelled", "The copy was stopped.", "Run again to copy the rest.")


__all__ = ["FATAL_KINDS", "RANK_KINDS", "TROUBLE_KINDS", "BatchOutcome", "CopyBatch", "Hooks", "stopped"]
