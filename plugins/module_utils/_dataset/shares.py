# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""From what is missing to who copies it: shares balanced by time, cut into batches that ranks can claim."""

from __future__ import annotations

import typing as t
from array import array

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.blobs import Blobs
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import (
    BatchInfo,
    RankShare,
    Run,
    new_run_id,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._shards.plan import (
    DEFAULT_BATCH_SECONDS,
    DEFAULT_BYTES_PER_SECOND,
    MAX_BATCHES_PER_RANK,
    file_seconds,
    make_batches,
    plan_shards,
)

# A share too small for batches of the wanted length is still cut, so that a dead rank's work can be split among others,
# but not below twenty seconds: AzCopy needs two for the smallest job.
_SMALL_BATCH_S = 20.0
_SMALL_BATCHES = 4
# Every batch is two files or more in one directory, which idle ranks read: 20,000 of 60 s each are 900 TB at 6 Gb/s.
_MAX_BATCHES = 20_000


def plan_run(
    manifest: Manifest,
    to_copy: t.Sequence[int],
    *,
    destination: str,
    hosts: t.Sequence[str],
    decompress: bool,
    bytes_per_second: float = DEFAULT_BYTES_PER_SECOND,
    batch_s: float = DEFAULT_BATCH_SECONDS,
) -> tuple[Run, dict[str, Blobs]]:
    """Share the blobs ``to_copy`` (indexes into the manifest) among ``hosts``; rank is the index of the host.

    Returns the run and the blobs of each batch. A rank without a share gets no batch and helps the others.
    """
    blobs = manifest.blobs.select(to_copy)
    sizes = blobs.sizes
    seconds = file_seconds(sizes, bytes_per_second)
    plan = plan_shards(seconds, len(hosts))
    most = max(_SMALL_BATCHES, min(MAX_BATCHES_PER_RANK, _MAX_BATCHES // len(hosts)))
    batches: list[BatchInfo] = []
    blobs_of: dict[str, Blobs] = {}
    shares: list[RankShare] = []
    for rank, (host, share) in enumerate(zip(hosts, plan.shares)):
        shares.append(RankShare(rank, host, len(share), sum(map(sizes.__getitem__, share))))
        for number, members in enumerate(_batches(share, seconds, plan.loads[rank], batch_s, most)):
            batch_id = f"r{rank:04d}b{number:02d}"
            blobs_of[batch_id] = blobs.select(members)
            batches.append(BatchInfo(batch_id, rank, len(members), sum(map(sizes.__getitem__, members))))
    run = Run(
        id=new_run_id(),
        destination=destination,
        manifest_digest=manifest.digest,
        decompress=decompress,
        sources=manifest.sources,
        shares=shares,
        batches=batches,
        imbalance=plan.imbalance,
    )
    return run, blobs_of


def _batches(
    share: t.Sequence[int], seconds: t.Sequence[float], load_s: float, batch_s: float, most: int
) -> list[list[int]]:
    smaller = max(1, min(_SMALL_BATCHES, int(load_s / min(_SMALL_BATCH_S, batch_s))))
    return make_batches(share, seconds, target_s=batch_s, min_batches=smaller, max_batches=most)


def own_share(manifest: Manifest, rank: int, world_size: int) -> array[int]:
    """The blobs of one rank when every node keeps a share of its own: the same on every node, whatever is there already."""
    return plan_shards(file_seconds(manifest.blobs.sizes), world_size).shares[rank]


__all__ = ["own_share", "plan_run"]
