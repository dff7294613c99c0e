# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Blobs that a listing shows and nobody can copy as they are: named before the copy, which would try them again and again."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

_NAMED = 5
_OR_LEAVE_OUT = "or leave them out (`exclude` of the source)."


class _Refusal(t.NamedTuple):
    kind: str
    what: str
    remedy: str


#: By the reason that a page gives. The first that is found is told.
_REFUSALS = {
    "folder": _Refusal(
        "bad_input",
        "marked as directories (hdi_isfolder) and hold data, which AzCopy does not copy",
        "Remove this metadata from them, ",
    ),
    "link": _Refusal(
        "bad_input",
        "marked as symbolic links (is_symlink), which AzCopy does not copy",
        "Upload the files that they point to under these names, ",
    ),
    "encrypted": _Refusal(
        "bad_input",
        "encrypted with a key that the storage account does not have (customer-provided), which AzCopy cannot read",
        "Upload them again without such a key, ",
    ),
    "archived": _Refusal(
        "archived",
        "in the archive tier, which cannot be read",
        "Set their tier to hot or cool, which takes hours (`az storage blob set-tier`), then run again; ",
    ),
}


def check_readable(unreadable: t.Mapping[tuple[int, str], str], wanted: t.Iterable[Blob]) -> None:
    """Raise ``archived`` or ``bad_input`` where a wanted blob is among the unreadable, by source and name."""
    if not unreadable:
        return
    found: dict[str, list[str]] = {}
    for blob in wanted:
        reason = unreadable.get((blob.source, blob.name))
        if reason:
            found.setdefault(reason, []).append(blob.name)
    for reason, refusal in _REFUSALS.items():
        if reason in found:
            names = found[reason]
            raise ClusterError(
                refusal.kind,
                f"{_count(names)} {refusal.what}: {_listed(names)}.",
                refusal.remedy + _OR_LEAVE_OUT,
                names=names[:100],
            )


def _count(names: t.Sequence[str]) -> str:
    return "1 blob is" if len(names) == 1 else f"{len(names)} blobs are"


def _listed(names: t.Sequence[str]) -> str:
    return ", ".join(map(repr, names[:_NAMED])) + (", …" if len(names) > _NAMED else "")


__all__ = ["check_readable"]
