# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""List all sources of a dataset side by side, and join what they hold to one manifest."""

from __future__ import annotations

import contextlib
import itertools
import threading
import typing as t
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.allocator import return_what_is_freed
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.blobs import (
    Blob,
    Blobs,
    Block,
    decode,
    in_order,
    pack_all,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.capacity import Capacity, free_memory_bytes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.choice import Choice
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.listing import (
    PAGE_SIZE,
    Limits,
    Listing,
    Login,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Manifest, collector_paused
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.page import Page, Reason
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

# More virtual directories than ``MAX_DIRECTORIES`` are listed side by side only where the average one fills a part of a page:
# half-filled last pages would cost more LIST calls than the parallelism is worth.
_MAX_FILLED_DIRECTORIES = 10_000
_FILLED_PART = 1 / 4
# Smaller containers are listed in one go: half-filled pages of many directories would only cost more calls.
SPLIT_AFTER_PAGES = 8
_MAX_DESCENT = 4


def build_manifest(
    sources: t.Sequence[t.Mapping[str, t.Any]],
    *,
    login: Login | None = None,
    choices: t.Sequence[Choice] = (),
    page_size: int = PAGE_SIZE,
    timeout_s: float = 30,
    retries: int = 4,
    deadline_s: float = 60,
    threads: int = 8,
    capacity: Capacity | None = None,
) -> Manifest:
    """List every source once and join them to one dataset.

    A source has ``url`` (container), ``prefix`` (a directory in it, with or without slashes around) and ``sas``; where
    it has no SAS, ``login`` is asked for a token with every page: one may end before a long listing does. Names are
    relative to the directory. More than ``capacity`` are refused. Sources, and the virtual directories of a large source, are
    listed in parallel. ``choices``, one per source, say which of its blobs the dataset has. The caller still has to pass the
    names to ``check_names``.
    """
    if not sources:
        raise ClusterError("bad_input", "There is no source to list.", "Give at least one source with its url.")
    return_what_is_freed()
    plain = [
        {"url": str(source["url"]).rstrip("/"), "prefix": directory_prefix(str(source.get("prefix") or ""))}
        for source in sources
    ]
    crew = _Crew(Limits(page_size, timeout_s, retries, deadline_s), threads, capacity or Capacity(free_memory_bytes()))
    with collector_paused():
        blocks = _list_and_choose(crew, plain, [str(source.get("sas") or "") for source in sources], login, choices)
        manifest = Manifest(plain, Blobs(in_order(blocks)))
    manifest.unreadable = {(blob.source, blob.name): reason for blob, reason in crew.unreadable}
    return manifest


def _list_and_choose(
    crew: _Crew,
    places: t.Sequence[dict[str, str]],
    sas: t.Sequence[str],
    login: Login | None,
    choices: t.Sequence[Choice],
) -> list[Block]:
    """The chosen blobs of all places. Raises ClusterError where one holds none, or none that was asked for."""
    jobs = [
        _Job(index, place["url"], place["prefix"], place["prefix"], own, None if own else login)
        for index, (place, own) in enumerate(zip(places, sas))
    ]
    listed, taken = [0] * len(places), [0] * len(places)
    blocks: list[Block] = []
    for block in crew.list_all(jobs):
        source = block.first.source
        chosen = _choose(block, choices[source]) if choices else [block]
        listed[source] += len(block.sizes)
        taken[source] += sum(len(part.sizes) for part in chosen)
        blocks += chosen
    for place, count in zip(places, listed):
        if not count:
            raise _nothing_there(place["url"], place["prefix"])
    for place, choice, count in zip(places, choices, taken):
        choice.check(f"{place['url']}/{place['prefix']}", count)
    return blocks


def _choose(block: Block, choice: Choice) -> list[Block]:
    return pack_all(blob for blob in decode(block.text) if choice.takes(blob.name))


def directory_prefix(prefix: str) -> str:
    """A source's prefix as the service wants it: ``/train`` and ``train/`` both mean the directory ``train/``."""
    stripped = prefix.strip("/")
    return f"{stripped}/" if stripped else ""


class _Job(t.NamedTuple):
    """A prefix to list to its end. ``base`` is the part of its names that the dataset does not keep."""

    source: int
    url: str
    prefix: str
    base: str
    sas: str
    login: Login | None


class _Crew:
    """Lists sources and their virtual directories with a pool of threads; the first error stops them all."""

    def __init__(self, limits: Limits, threads: int, capacity: Capacity) -> None:
        self._limits = limits
        self._capacity = capacity
        self._threads = max(threads, 1)
        self._stop = threading.Event()
        self._local = threading.local()
        self._opened: list[Listing] = []
        self.unreadable: list[tuple[Blob, Reason]] = []  # may name a blob twice

    def list_all(self, jobs: t.Iterable[_Job]) -> t.Iterator[Block]:
        """All blobs, those of a job when it is done."""
        pool = ThreadPoolExecutor(max_workers=self._threads, thread_name_prefix="list")
        try:
            pending = {pool.submit(self._run, job) for job in jobs}
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    found, more = future.result()
                    pending |= {pool.submit(self._run, job) for job in more}
                    yield from found
                del done, future, found  # or they would be in memory as long as the next are waited for
        finally:
            self._stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            for listing in self._opened:
                listing.close()

    def _run(self, job: _Job) -> tuple[list[Block], list[_Job]]:
        """Page by page; the rest of a large container is split into its virtual directories if it has some."""
        listing = self._own_listing(job)
        blocks: list[Block] = []
        last = ""
        for number, page in enumerate(listing.pages(job.prefix, len(job.base), job.source), 1):
            blocks += pack_all(page.blobs)
            last = page.blobs[-1].name if page.blobs else last
            self.unreadable += page.unreadable
            self._capacity.add(len(page.blobs))
            if page.next_marker and number == SPLIT_AFTER_PAGES:
                listed = Blobs(blocks)
                parent, level = self._find_directories(job, listed)
                if level.prefixes:
                    return _split(job, listed, last, parent, level)
            if self._stop.is_set():  # another listing failed, and its error ends this one too
                break
        return blocks, []

    def _own_listing(self, job: _Job) -> Listing:
        """The connection of this thread, which goes on to the next directory of the same source."""
        source, listing = getattr(self._local, "listing", (-1, None))
        if listing is None or source != job.source:
            if listing is not None:
                listing.close()
            listing = self._listing(job)
            self._local.listing = job.source, listing
            self._opened.append(listing)
        return t.cast(Listing, listing)

    def _find_directories(self, job: _Job, listed: t.Sequence[Blob]) -> tuple[str, Page]:
        """A prefix with the virtual directories right below it and the blobs beside them, or none where that would not help.

        What is ``listed`` already tells how many blobs a directory has.
        """
        prefix = job.prefix
        # A connection of its own: on the other one the answer to the next page is already under way.
        with contextlib.closing(self._listing(job)) as listing:
            for _depth in range(_MAX_DESCENT):
                level = listing.level(prefix, len(job.base), job.source)
                if level.next_marker and self._are_filled(level, listed, len(prefix) - len(job.base)):
                    level = listing.level(prefix, len(job.base), job.source, _MAX_FILLED_DIRECTORIES)
                self.unreadable += level.unreadable
                if level.next_marker or not level.prefixes:
                    break
                if len(level.prefixes) > 1:
                    return prefix, level
                if level.blobs:
                    break
                prefix = level.prefixes[0]
        return prefix, Page([], [], "")

    def _are_filled(self, level: Page, listed: t.Sequence[Blob], start: int) -> bool:
        """Whether the directories of a level, whose names begin at ``start``, have enough blobs to be listed one by one."""
        directories = {_directory(blob.name, start) for blob in listed}
        filled = len(listed) >= len(directories) * self._limits.page_size * _FILLED_PART
        return filled and len(level.prefixes) > len(level.blobs)

    def _listing(self, job: _Job) -> Listing:
        return Listing(job.url, job.sas, job.login, self._limits, self._stop)


def _split(job: _Job, listed: Blobs, last: str, parent: str, level: Page) -> tuple[list[Block], list[_Job]]:
    """Keep what was listed of whole directories below ``parent``; list the one that was begun and those to come side by side.

    A service lists a directory's blobs one after the other, whatever order it has for directories: the one that was begun is that
    of the name that came last.
    """
    start = len(parent) - len(job.base)
    whole = {_directory(blob.name, start) for blob in listed} - {_directory(last, start), None}
    kept = (blob for blob in listed if _directory(blob.name, start) in whole)
    left = [prefix for prefix in level.prefixes if prefix[len(parent) :] not in whole]
    return pack_all(itertools.chain(kept, level.blobs)), [job._replace(prefix=prefix) for prefix in left]


def _directory(name: str, start: int) -> str | None:
    """The component of a name that begins at ``start``, with its slash; None where that is the last, and so no directory."""
    end = name.find("/", start)
    return name[start : end + 1] if end >= 0 else None


def _nothing_there(url: str, prefix: str) -> ClusterError:
    if prefix:
        return ClusterError(
            "not_found", f"There is no blob below {prefix!r} in {url}.", "Check the prefix: it is case-sensitive."
        )
    return ClusterError("no_match", f"The container {url} is empty.", "Check the URL of the container.")


__all__ = ["build_manifest", "directory_prefix"]
