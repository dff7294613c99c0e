# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What a destination lacks of a dataset, and whether it can be brought."""

from __future__ import annotations

import heapq
import typing as t
from array import array
from dataclasses import dataclass

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.encoding import is_gzip
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import final_name
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.unreadable import check_readable
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.dataset import Dataset
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import Inventory
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.ownership import Ownership, others_below

_NAMED = 5


@dataclass(frozen=True)
class Missing:
    """What a look found among ``total`` files. ``to_copy`` are positions among them, of ``raw_bytes`` over the network.

    ``gzip_bytes`` of them will be inflated. ``others`` have another owner, group or mode than they shall have. With ``unreported`` all
    is there, and nobody has said so yet.
    """

    total: int
    inventory: Inventory
    to_copy: array[int]
    raw_bytes: int
    gzip_bytes: int
    others: list[str]
    unreported: bool


def find_missing(
    dataset: Dataset,
    indexes: range | array[int],
    ownership: Ownership,
    *,
    content: bool,
    threads: int,
    allow_overwrite: bool,
    mark: bool,
) -> Missing:
    """Compare the destination with some blobs of the manifest. For ``content`` and ``mark`` see ``Dataset.inspect``.

    Raises ClusterError where files of others are in the way, or blobs that are missing cannot be read.
    """
    blobs, inventory = dataset.inspect(indexes, content=content, threads=threads, mark=mark)
    to_copy = inventory.to_copy
    if inventory.foreign:
        if not allow_overwrite:
            raise _foreign([final_name(blobs[i], dataset.decompress) for i in inventory.foreign], dataset.destination)
        to_copy = array("I", heapq.merge(to_copy, inventory.foreign))
    missing = blobs.select(to_copy)
    check_readable(dataset.manifest.unreadable, missing)
    whole = (final_name(blob, dataset.decompress) for blob in blobs.select(inventory.verified))
    others = others_below(dataset.destination, whole, ownership) if ownership.any else []
    # The workers of an interrupted run may have finished it, and no task was left to report it.
    unreported = not to_copy and dataset.unreported()
    packed = sum(blob.size for blob in missing if is_gzip(blob.name, blob.encoding)) if dataset.decompress else 0
    return Missing(len(blobs), inventory, to_copy, sum(missing.sizes), packed, others, unreported)


def _foreign(names: t.Sequence[str], destination: str) -> ClusterError:
    shown = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    return ClusterError(
        "foreign_files",
        f"{len(names)} files at {destination} have names of the dataset but were not staged here: {shown}.",
        "Move them away, or set `allow_overwrite: true` to replace them.",
    )


__all__ = ["Missing", "find_missing"]
