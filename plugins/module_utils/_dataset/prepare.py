# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""List, compare, plan: everything that happens before the first byte is copied."""

from __future__ import annotations

import base64
import contextlib
import os
import tempfile
import typing as t
import zlib
from array import array
from dataclasses import asdict, dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.blobs import Blobs
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.capacity import Capacity, free_memory_bytes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.catalogue import build_manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.choice import Choice
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.encoding import stays_packed
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.identity import ManagedIdentity
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Manifest, check_names
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.url import BlobUrl, parse_blob_url
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.bandwidth import (
    DownloadPlan,
    expected_bytes_per_second,
    plan_download,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.dataset import Dataset
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.followed import (
    forget_readers,
    refuse_if_followed,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.killed import killed_hosts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.missing import (
    Missing,
    find_missing,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.name_room import name_room
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import Run, write_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.shares import plan_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import Inventory, StatePaths, check_state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.writable import check_directory, check_writable
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.part_file import disk_errors
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.room import (
    ASSUMED_RATIO,
    assumed_bytes,
    check_room,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.deadline import without_deadline
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.ownership import (
    Ownership,
    find_ownership,
    give_below,
)

#: What may pass the controller on the way to all nodes together, and what a name takes of it: packed, to the node and, as every
#: module returns its options, back.
_MOST_CARRIED_BYTES = 1_000_000
_PACKED_BYTES_PER_NAME = 2 * 46
_DIGEST = "sha256:"
_NAMED = 5
#: What a receipt takes of the memory for every byte that it takes on disk: 0.65 kB and 165 bytes.
_MEMORY_PER_STORED_BYTE = 4


@dataclass(frozen=True)
class PlanRequest:
    """What is to be staged where. Rates are in Mbit/s, 0 where they are not known.

    A source has ``url``, ``prefix``, ``include``, ``exclude`` and ``sas``. ``hosts`` share the destination, and ``rank`` is None; or
    there is one, the ``rank`` of ``world_size`` nodes that keep a share each, of which ``at_once`` copy now. ``manifest`` is what
    ``list_dataset`` returned, "" for a listing of the sources. ``mount_point`` is "" where none is required, ``landing_path`` where raw
    bytes land in the destination.
    ``owner``, ``group``, ``mode`` and ``directory_mode`` are those of what is written, "" as ever.
    """

    destination: str
    sources: list[dict[str, t.Any]] = field(repr=False)
    hosts: list[str]
    rank: int | None
    world_size: int
    at_once: int
    manifest: str = field(repr=False)
    decompress: bool
    content: bool
    mount_point: str
    landing_path: str
    nic_mbps: float
    egress_mbps: float
    batch_s: float
    allow_overwrite: bool
    threads: int
    identity: str
    identity_client_id: str
    owner: str = ""
    group: str = ""
    mode: str = ""
    directory_mode: str = ""


def list_dataset(wanted: PlanRequest) -> dict[str, t.Any]:
    """Only list, for nodes that keep a share each. Nothing is stored.

    A manifest that is too large to be handed to all nodes is its digest: each lists by itself and compares. So it is where
    blobs cannot be read, which only a listing tells: a node that has its own already needs them no more, any other refuses.
    """
    find_ownership(wanted.owner, wanted.group, wanted.mode, wanted.directory_mode)
    manifest, notes = _list(wanted)
    small = len(manifest.blobs) * len(wanted.hosts) * _PACKED_BYTES_PER_NAME <= _MOST_CARRIED_BYTES
    unreadable = manifest.unreadable
    told = bool(unreadable) and any((blob.source, blob.name) in unreadable for blob in manifest.blobs)
    carried = small and not told
    return {
        **_facts(manifest, range(len(manifest.blobs)), Inventory()),
        "hosts": wanted.hosts,
        "killed": [],
        "changed": False,
        "run": "",
        "missing_files": len(manifest.blobs),
        "missing_bytes": manifest.total_bytes,
        "manifest": _pack(manifest) if carried else f"{_DIGEST}{manifest.digest}",
        "notes": notes,
    }


def _pack(manifest: Manifest) -> str:
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "manifest.jsonl")
        manifest.write(path)
        with open(path, "rb") as stream:
            return base64.b85encode(zlib.compress(stream.read())).decode()


def prepare(wanted: PlanRequest, *, write: bool) -> dict[str, t.Any]:
    """Compare the destination with the source and plan the rest. Raises ClusterError before anything is changed."""
    _check(wanted, write)
    ownership = find_ownership(wanted.owner, wanted.group, wanted.mode, wanted.directory_mode)
    manifest, notes = (_agreed(wanted), []) if wanted.manifest else _list(wanted)
    dataset = Dataset(wanted.destination, manifest, wanted.decompress, wanted.rank, wanted.world_size)
    indexes = dataset.indexes
    found = find_missing(
        dataset,
        indexes,
        ownership,
        content=wanted.content,
        threads=wanted.threads,
        allow_overwrite=wanted.allow_overwrite,
        mark=write,
    )
    if write and found.to_copy:
        check_writable("destination", wanted.destination)
        check_writable("landing_path", wanted.landing_path or wanted.destination)
    notes += check_room(wanted.destination, found.raw_bytes, found.gzip_bytes)
    bandwidth = plan_download(
        nodes=wanted.at_once,
        nic_mbps=wanted.nic_mbps,
        egress_mbps=wanted.egress_mbps,
        accounts=len({_account(source["url"]) for source in manifest.sources}),
    )
    run, blobs_of = plan_run(
        manifest,
        array("I", map(indexes.__getitem__, found.to_copy)),
        destination=wanted.destination,
        hosts=wanted.hosts,
        decompress=dataset.decompress,
        bytes_per_second=expected_bytes_per_second(bandwidth, wanted.at_once),
        batch_s=wanted.batch_s,
    )
    run.ownership = asdict(ownership)
    if write:
        _store(dataset, found, run, blobs_of, ownership, wanted.threads)
    return {**_facts(manifest, indexes, found.inventory), **_told(wanted, found, run, bandwidth), "notes": notes}


def _store(
    dataset: Dataset, found: Missing, run: Run, blobs_of: t.Mapping[str, Blobs], ownership: Ownership, threads: int
) -> None:
    """Write what workers and the next comparison need."""
    # Each of these replaces what another play compares with at its end.
    if found.to_copy or found.others or found.inventory.adopted or found.unreported:
        refuse_if_followed(dataset.destination)
        forget_readers(dataset.destination)
    if found.others:
        with disk_errors(dataset.destination):
            give_below(dataset.destination, found.others, ownership)
    if found.to_copy:
        dataset.save()
        write_run(run, blobs_of)
    if found.inventory.adopted:
        dataset.save()
        dataset.adopt(found.inventory.adopted)
    if found.unreported:
        dataset.save()
        dataset.fence()
        dataset.write_report(dataset.verify(content=False, part=(0, 1), threads=threads))


def _told(wanted: PlanRequest, found: Missing, run: Run, bandwidth: DownloadPlan) -> dict[str, t.Any]:
    """What a module returns of the plan. Killed workers are looked for after all is written."""
    to_copy, others, total = found.to_copy, found.others, found.total
    return {
        "hosts": wanted.hosts,
        "killed": [] if to_copy else killed_hosts(wanted.destination),
        "changed": bool(to_copy or others) or found.unreported,
        "run": run.id if to_copy else "",
        "missing_files": len(to_copy),
        "missing_bytes": found.raw_bytes,
        "needed_bytes": assumed_bytes(found.raw_bytes, found.gzip_bytes),
        "assumed_ratio": ASSUMED_RATIO,
        "shares": [vars(share) for share in run.shares],
        "imbalance": run.imbalance,
        "cap_mbps": bandwidth.cap_mbps,
        "bandwidth": bandwidth.explanation,
        "diff": {
            "before": f"{total - len(to_copy)} of {total} files verified at {wanted.destination}\n"
            + f"{len(others)} files and directories of another owner, group or mode\n" * bool(others),
            "after": f"{total} of {total} files verified at {wanted.destination}\n",
        },
    }


def _facts(manifest: Manifest, indexes: range | array[int], inventory: Inventory) -> dict[str, t.Any]:
    return {
        "manifest_digest": manifest.digest,
        "total_files": len(indexes),
        "total_bytes": sum(manifest.blobs.select(indexes).sizes),
        "verified_files": len(inventory.verified),
        "shares": [],
        "imbalance": 1.0,
        "cap_mbps": 0.0,
        "bandwidth": [],
    }


def _list(wanted: PlanRequest) -> tuple[Manifest, list[str]]:
    """The manifest of the chosen blobs, and what a person should know about the choice."""
    needs_token = wanted.identity != "none" and any(not source["sas"] for source in wanted.sources)
    if needs_token and wanted.identity != "msi":
        raise ClusterError(
            "bad_input",
            f"A source has no SAS, and with the identity {wanted.identity} only AzCopy can log in, not the listing.",
            "Give the source a SAS, or use the managed identity (`identity: msi`), or `identity: none` for a public container.",
        )
    login = ManagedIdentity(wanted.identity_client_id).token if needs_token else None
    choices = [Choice(source.get("include") or (), source.get("exclude") or ()) for source in wanted.sources]
    capacity = _capacity(wanted.destination, free_memory_bytes())
    with without_deadline():  # each request has its own
        manifest = build_manifest(wanted.sources, login=login, choices=choices, capacity=capacity)
    # Else such a file would fail at every node, in every round.
    room = name_room(wanted.destination, wanted.landing_path, wanted.hosts)
    check_names(manifest.blobs, wanted.decompress, room)
    notes = [
        f"The glob {glob!r} in `exclude` of {source['url']} excludes nothing."
        for source, choice in zip(manifest.sources, choices)
        for glob in choice.idle_excludes
    ]
    return manifest, notes + (_packed(manifest) if wanted.decompress else [])


def _packed(manifest: Manifest) -> list[str]:
    """A note that names the blobs which are not inflated although they are packed."""
    found = [f"{blob.name!r} ({blob.encoding})" for blob in manifest.blobs if stays_packed(blob.name, blob.encoding)]
    if not found:
        return []
    shown = ", ".join(found[:_NAMED]) + (", …" if len(found) > _NAMED else "")
    return [f"`decompress` undoes gzip, and once. What it leaves packed, by Content-Encoding ({len(found)}): {shown}."]


def _capacity(destination: str, free_bytes: int) -> Capacity:
    """How many names there is memory for beside the receipts of what was staged before; ``free_bytes`` is 0 where that is not known."""
    stored = 0
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        stored = sum(entry.stat().st_size for entry in os.scandir(StatePaths(destination).receipts))
    return Capacity(max(free_bytes - stored * _MEMORY_PER_STORED_BYTE, 1) if free_bytes else 0)


def _agreed(wanted: PlanRequest) -> Manifest:
    """What another node listed. Shares of one manifest fit together: those of two would leave files out."""
    if not wanted.manifest.startswith(_DIGEST):
        return _unpack(wanted.manifest)
    manifest, _notes = _list(wanted)
    if f"{_DIGEST}{manifest.digest}" != wanted.manifest:
        raise ClusterError(
            "changed_at_source",
            f"This node lists {len(manifest.blobs)} blobs that are not those of the first node's listing.",
            "Blobs were added, replaced or deleted in between. Run again when the source no longer changes.",
        )
    return manifest


def _unpack(packed: str) -> Manifest:
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "manifest.jsonl")
        try:
            data = zlib.decompress(base64.b85decode(packed))
        except (ValueError, zlib.error) as error:
            raise ClusterError(
                "bad_input", f"The manifest handed over is damaged: {error}.", "Pass `manifest` exactly as returned."
            ) from error
        with open(path, "wb") as stream:
            stream.write(data)
        return Manifest.read(path)


def _check(wanted: PlanRequest, write: bool) -> None:
    hosts, rank, world_size = wanted.hosts, wanted.rank, wanted.world_size
    if len(set(hosts)) != len(hosts):
        raise ClusterError("bad_input", "`hosts` names a host twice.", "Name each copying node once.")
    if rank is not None and not 0 <= rank < world_size:
        raise ClusterError("bad_input", f"There is no `rank` {rank} among {world_size} nodes.", "Ranks begin at 0.")
    mount_point = os.path.normpath(wanted.mount_point) if wanted.mount_point else ""
    # In check mode the role that mounts it has not done so either: then everything is missing.
    if write and mount_point and not os.path.ismount(mount_point):
        raise ClusterError(
            "not_mounted",
            f"{mount_point} is not mounted here.",
            "Mount the file system first (for example with playbooks/scratch.yml), or correct the mount point.",
        )
    destination = os.path.normpath(wanted.destination)
    if mount_point and os.path.commonpath([mount_point, destination]) != mount_point:
        raise ClusterError(
            "bad_input",
            f"The destination {destination} is not below the mount point {mount_point}.",
            "Correct one of the two.",
        )
    check_directory("destination", destination)
    check_state(destination)


def _account(url: str) -> str:
    """What has an egress limit of its own."""
    parsed: BlobUrl = parse_blob_url(url)
    return f"{parsed.host}/{parsed.account}"


__all__ = ["PlanRequest", "list_dataset", "prepare"]
