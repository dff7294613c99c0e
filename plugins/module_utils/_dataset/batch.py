# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""How one batch is copied: AzCopy lands raw bytes, every file is checked and renamed as soon as it is whole."""

from __future__ import annotations

import contextlib
import os
import shutil
import typing as t
import urllib.parse
from dataclasses import dataclass, field, replace

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.argv import (
    CopyRequest,
    slowed,
    suggest_processes,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.run import CopyOutcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.encoding import is_gzip
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.identity import ManagedIdentity
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob, final_name
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.probe import explain_absence
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.url import clean_sas, parse_blob_url
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.version import Source, Versions
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.bandwidth import most_processes, split_cap
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.copier import Copier
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.fence import permit_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.judge import judge
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.keeper import Keeper
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.landing import words_for
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.landing_room import LandingRoom, full_disk
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.model import BatchOutcome, Hooks, stopped
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.place import Place
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.receipts import (
    Receipt,
    ReceiptLog,
    receipts_of,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import BatchInfo, Run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import StatePaths, inspect_destination
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.drain import Finished, LandingItem, drain
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.part_file import disk_errors
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.room import available_cpus
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.durable import DurableTree
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.ownership import Ownership


@dataclass(frozen=True)
class CopySettings:
    """What is the same for all batches of a rank. ``sas`` has one entry per source and is in no repr.

    ``landing_limit_bytes`` bounds the raw bytes that wait on this node; 0 is what the disk has.
    """

    azcopy: str
    landing: str
    sas: list[str] = field(repr=False)
    cap_mbps: float = 0.0
    concurrency: int = 0
    processes: int = 8
    threads: int = 0
    decompress_engine: str = "collection"
    stall_timeout_s: float = 45.0
    landing_limit_bytes: int = 0
    log_dir: str = ""
    identity: str = "none"
    identity_client_id: str = ""


class BatchCopier:
    """Copies batches of one run on one node. Used by ``worker.Worker``."""

    def __init__(self, run: Run, settings: CopySettings) -> None:
        self._run = run
        self._settings = settings
        self._ownership = Ownership(**run.ownership)
        self._place = Place(run)
        self._permit = permit_of(run, self._place)
        self._room = LandingRoom(settings.landing, settings.landing_limit_bytes)
        self._receipts = StatePaths(run.destination).receipts
        self._throttled = 0  # how many times an account was asked for too much by this rank
        # Keeps its token from batch to batch.
        self._login = ManagedIdentity(settings.identity_client_id).token if settings.identity == "msi" else None

    def __call__(self, batch: BatchInfo, attempt: int, hooks: Hooks) -> BatchOutcome:
        self._place.check()
        left = self._left(batch, attempt)
        if not left:
            return BatchOutcome()
        landing = os.path.join(self._settings.landing, f"{self._run.id}-{batch.id}")
        shutil.rmtree(landing, ignore_errors=True)  # of an attempt that was killed here
        stuck = False
        try:
            with disk_errors(landing, words_for(landing, self._run.destination)):
                os.makedirs(landing, mode=0o700)
            log = ReceiptLog(self._receipts, self._writer(batch, attempt))
            landed = self._land_all(left, landing, log, hooks)
            stuck = landed.error is not None and landed.error.kind == "stuck"
            self._throttled += landed.error is not None and landed.error.kind == "throttled"
            return landed
        except OSError as error:
            return BatchOutcome(
                error=ClusterError("io", f"{error}.", "Check the landing directory and the destination.")
            )
        finally:
            if not stuck:  # a disk that does not answer would not answer us either
                shutil.rmtree(landing, ignore_errors=True)

    def _land_all(self, blobs: list[Blob], landing: str, log: ReceiptLog, hooks: Hooks) -> BatchOutcome:
        """All blobs, as many at a time as there is room for."""
        failed: list[dict[str, str]] = []
        while blobs:
            with self._room.take(blobs, hooks.should_stop) as portion:
                if not portion.count:
                    return BatchOutcome(error=stopped())
                now, blobs = blobs[: portion.count], blobs[portion.count :]

                def on_file(raw_bytes: int, final_bytes: int, gone: t.Callable[[int], None] = portion.give) -> None:
                    gone(raw_bytes)
                    hooks.on_file(raw_bytes, final_bytes)

                # The network is free for the next batch when nothing of this one is left to land.
                landed = _later if blobs else hooks.landed
                outcome = self._land_portion(now, landing, log, replace(hooks, on_file=on_file, landed=landed))
            if outcome.error is not None:
                return outcome
            failed += outcome.failed
        return BatchOutcome(failed=failed)

    def _land_portion(self, portion: t.Sequence[Blob], landing: str, log: ReceiptLog, hooks: Hooks) -> BatchOutcome:
        blobs = {self._raw_name(blob): blob for blob in portion}
        failed, outcome = self._copy(blobs, landing, log, hooks)
        if hooks.should_stop():
            return BatchOutcome(error=outcome.error or stopped())
        return judge(failed, outcome, lambda name: self._explain(name, blobs))

    def _copy(
        self, blobs: t.Mapping[str, Blob], landing: str, log: ReceiptLog, hooks: Hooks
    ) -> tuple[list[tuple[str, ClusterError]], CopyOutcome]:
        """Copy blobs by their raw names; returns the files that failed, and what AzCopy did. Nothing runs any more afterwards."""
        with Keeper(self._run.destination, log) as keeper:
            watched = replace(hooks, should_stop=lambda: hooks.should_stop() or keeper.broken())
            with contextlib.closing(self._versions(watched.should_stop)) as versions:
                return self._land(blobs, landing, watched, keeper, versions)

    def _land(
        self, blobs: t.Mapping[str, Blob], landing: str, hooks: Hooks, keeper: Keeper, versions: Versions
    ) -> tuple[list[tuple[str, ClusterError]], CopyOutcome]:
        requests = self._requests(blobs.values(), landing)
        with Copier(requests, self._settings.stall_timeout_s, hooks.should_stop) as copier:

            def on_landed() -> None:
                if not hooks.should_stop():
                    copier.finish()
                hooks.landed()

            def confirm(name: str) -> None:
                if hooks.should_stop():
                    raise stopped()
                self._place.check()
                if not self._known_md5(blobs[name]):
                    versions.confirm(blobs[name])

            draining = drain(
                [self._item(name, blob, landing) for name, blob in blobs.items()],
                copier_done=copier.done,
                threads=self._settings.threads,
                should_stop=hooks.should_stop,
                on_landed=on_landed,
                confirm=confirm,
            )
            with contextlib.closing(draining) as finished:
                failed = self._keep(finished, blobs, hooks.on_file, keeper)
            return failed, self._told(copier.result())

    def _told(self, outcome: CopyOutcome) -> CopyOutcome:
        """What AzCopy says of a full disk in words of ours: what it calls its destination is where raw bytes land."""
        if outcome.error is None or outcome.error.kind != "disk_full":
            return outcome
        full = full_disk(self._settings.landing, self._settings.log_dir, self._run.destination)
        return replace(outcome, error=full)

    def _explain(self, raw_name: str, blobs: t.Mapping[str, Blob]) -> ClusterError | None:
        """Why a blob did not land although AzCopy complains about nothing."""
        blob = blobs[raw_name]
        sas = self._settings.sas[blob.source]
        if not sas and self._settings.identity != "none":
            return None  # AzCopy's own login decides, and says so when it is refused
        directory = parse_blob_url(_directory_url(self._run.sources[blob.source]))
        return explain_absence(replace(directory, path=f"{directory.path}/{blob.name}".lstrip("/")), clean_sas(sas))

    def _left(self, batch: BatchInfo, attempt: int) -> list[Blob]:
        """The batch's blobs; after a first attempt only those that it did not finish."""
        blobs = self._run.batch_blobs(batch.id)
        if not attempt:
            return blobs
        receipts = receipts_of(self._receipts, [self._writer(batch, earlier) for earlier in range(attempt)])
        inventory = inspect_destination(blobs, self._run.destination, receipts, decompress=self._run.decompress)
        if inventory.adopted:
            # Renamed by a try that was killed before it wrote their receipts; those that there are may be of an older version.
            DurableTree(self._run.destination).sync([receipt.name for receipt in inventory.adopted])
            ReceiptLog(self._receipts, self._writer(batch, attempt)).append(inventory.adopted)
        done = set(inventory.verified)
        return [blob for index, blob in enumerate(blobs) if index not in done]

    def _writer(self, batch: BatchInfo, attempt: int) -> str:
        """Who tries a batch again finds what the tries before it have finished, without a look at all other receipts."""
        return f"{self._run.id}-{batch.id}.{attempt}"

    @staticmethod
    def _raw_name(blob: Blob) -> str:
        """Unique below the landing directory: two sources may use one name for different final names."""
        return f"{blob.source}/{blob.name}"

    def _inflates(self, blob: Blob) -> bool:
        return self._run.decompress and is_gzip(blob.name, blob.encoding)

    def _requests(self, blobs: t.Iterable[Blob], landing: str) -> list[CopyRequest]:
        # AzCopy's --decompress fails at encodings that it does not know, so all but its own blobs have a copy without it.
        kinds: dict[tuple[int, bool], list[str]] = {}
        size_of: dict[tuple[int, bool], int] = {}
        settings = self._settings
        for blob in blobs:
            kind = (blob.source, self._inflated_by_azcopy(blob))
            kinds.setdefault(kind, []).append(blob.name)
            size_of[kind] = size_of.get(kind, 0) + blob.size
        caps = split_cap(settings.cap_mbps, size_of)
        requests = [
            CopyRequest(
                azcopy=settings.azcopy,
                source=_directory_url(self._run.sources[source]),
                destination=os.path.join(landing, str(source)),
                sas=settings.sas[source],
                file_list=names,
                decompress=by_azcopy,
                # Checked while the file is read anyway; AzCopy cannot check what it inflates without reading it twice.
                check_md5="FailIfDifferent" if by_azcopy else "NoCheck",
                cap_mbps=caps[source, by_azcopy],
                concurrency=settings.concurrency,
                processes=min(
                    settings.processes,
                    suggest_processes(len(names), available_cpus()),
                    most_processes(caps[source, by_azcopy]),
                ),
                log_dir=settings.log_dir,
                plan_dir=os.path.join(settings.log_dir, "plans"),
                identity="none" if settings.sas[source] else settings.identity,
                identity_client_id=settings.identity_client_id,
            )
            for (source, by_azcopy), names in kinds.items()
        ]
        return [slowed(request, self._throttled, available_cpus()) for request in requests]

    def _item(self, raw_name: str, blob: Blob, landing: str) -> LandingItem:
        by_azcopy = self._inflated_by_azcopy(blob)
        return LandingItem(
            name=raw_name,
            raw_path=os.path.join(landing, raw_name),
            final_path=os.path.join(self._run.destination, final_name(blob, self._run.decompress)),
            raw_size=None if by_azcopy else blob.size,
            raw_md5=self._known_md5(blob),
            decompress=self._inflates(blob) and not by_azcopy,
            root=self._run.destination,
            ownership=self._ownership,
            permit=self._permit,
        )

    def _inflated_by_azcopy(self, blob: Blob) -> bool:
        # It goes by this one word. What is gzip by its name, or in other words, is inflated here.
        by_azcopy = self._settings.decompress_engine == "azcopy" and blob.encoding.lower() == "gzip"
        return by_azcopy and self._inflates(blob)

    def _known_md5(self, blob: Blob) -> str:
        """The MD5 that the landed file must have, "" where none is known."""
        # What AzCopy inflated has neither the size nor the MD5 of the blob any more.
        return "" if self._inflated_by_azcopy(blob) else blob.md5

    def _versions(self, should_stop: t.Callable[[], bool]) -> Versions:
        """What tells whether a blob without MD5 is still the version that was listed."""
        sources = zip(self._run.sources, self._settings.sas)
        return Versions([Source(_directory_url(source), sas, self._login) for source, sas in sources], should_stop)

    def _keep(
        self,
        finished: t.Iterable[Finished],
        blobs: t.Mapping[str, Blob],
        on_file: t.Callable[[int, int], None],
        keeper: Keeper,
    ) -> list[tuple[str, ClusterError]]:
        """Hand receipts to the keeper; return the files that failed."""
        failed: list[tuple[str, ClusterError]] = []
        for file in finished:
            blob = blobs[file.name]
            if file.result is None:
                failed.append((file.name, t.cast("ClusterError", file.error)))
                continue
            name = final_name(blob, self._run.decompress)
            mtime_ns = os.stat(os.path.join(self._run.destination, name)).st_mtime_ns
            result = file.result
            version = (name, blob.etag, blob.md5, blob.size)
            keeper.add(Receipt(*version, result.bytes, result.crc32, mtime_ns, self._inflates(blob)))
            on_file(blob.size, result.bytes)
        return failed


def _later() -> None:
    """More is to land."""


def _directory_url(source: t.Mapping[str, str]) -> str:
    prefix = urllib.parse.quote(source["prefix"].strip("/"))
    return f"{source['url']}/{prefix}" if prefix else source["url"]


__all__ = ["BatchCopier", "CopySettings"]
