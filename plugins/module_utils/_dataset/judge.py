# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What became of a batch, from what became of its files and of AzCopy."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.run import CopyOutcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.model import BatchOutcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

#: What is wrong with a file itself: the next attempt would find the same bytes.
_FILE_KINDS = frozenset({"changed_at_source", "corrupt", "not_gzip", "truncated"})


def judge(
    failed: t.Sequence[tuple[str, ClusterError]],
    outcome: CopyOutcome,
    explain: t.Callable[[str], ClusterError | None],
) -> BatchOutcome:
    """A batch is done when every file is finished or is itself at fault; else it is given back with the reason."""
    absent = [name for name, error in failed if error.kind == "partial"]
    others = [error for _name, error in failed if error.kind not in {*_FILE_KINDS, "partial"}]
    if others:
        return BatchOutcome(error=next((error for error in others if error.kind == "disk_full"), others[0]))
    if absent and outcome.error is not None and outcome.error.kind != "not_found":
        return BatchOutcome(error=outcome.error)
    if absent:
        # AzCopy passes over listed names that it cannot see: what did not land is gone, or we are not let in.
        reason = explain(absent[0])
        if reason is None or reason.kind != "not_found":
            return BatchOutcome(error=reason or dict(failed)[absent[0]])
    return BatchOutcome(failed=[_failure(name, error) for name, error in failed])


def _failure(raw_name: str, error: ClusterError) -> dict[str, str]:
    name = raw_name.partition("/")[2]
    if error.kind == "partial":
        error = _gone(name)
    return {"name": name, "kind": error.kind, "message": error.message, "remedy": error.remedy}


def _gone(name: str) -> ClusterError:
    return ClusterError(
        "changed_at_source", f"`{name}` was listed but is not there any more.", "Run again to list the source anew."
    )


__all__ = ["judge"]
