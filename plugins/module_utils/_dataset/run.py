# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""A staging run on disk: which rank copies which batch of which blobs.

``<run>/run.json``             the plan without the names
``<run>/batches/<id>.json``    the blobs of one batch, one array per blob as in the manifest
``<run>/claims/``              see ``claims``
``<run>/progress/<rank>.json`` what each rank is doing
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import typing as t
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.blobs import Blob, Blobs
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import final_name
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import (
    StatePaths,
    read_json,
    write_json,
    write_whole,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.beneath import (
    is_proper,
    refuse_links,
    remove_tree,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.durable import sync_directory
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.own import regular

PROGRESS_DIR = "progress"
#: What a rank says at its end. One that says neither was killed, or hangs.
ENDED = ("finished", "failed")
#: A rank writes its progress every two seconds, and the controller reads that of all ranks every second.
NAMED_FAILURES = 20
_KEEP_RUNS = 3
#: A worker shows a sign of life every two seconds, also while it ends; who shows none for so long was killed.
_DEAD_AFTER_S = 6.0
#: A worker that is told to stop finishes the files that it is inflating.
_STOP_S = 60.0
_LOOK_S = 0.2
#: As ``plan_run`` names batches: landing directories and claims are called after them.
_BATCH_ID = re.compile(r"r\d{4,}b\d{2,}")


@dataclass(frozen=True)
class RankShare:
    """What one rank was given: ``bytes`` are those that cross the network."""

    rank: int
    host: str
    files: int
    bytes: int


@dataclass(frozen=True)
class BatchInfo:
    """One batch: the unit that a rank claims."""

    id: str
    rank: int
    files: int
    bytes: int


@dataclass
class Run:
    """The plan of one run, without names."""

    id: str
    destination: str
    manifest_digest: str
    decompress: bool
    sources: list[dict[str, str]]
    shares: list[RankShare]
    batches: list[BatchInfo]
    imbalance: float
    started: float = field(default_factory=time.time)
    ownership: dict[str, t.Any] = field(default_factory=dict)  # the fields of ``_host.ownership.Ownership``

    @property
    def directory(self) -> str:
        return StatePaths(self.destination).run(self.id)

    @property
    def claims(self) -> str:
        return os.path.join(self.directory, "claims")

    @property
    def progress(self) -> str:
        return os.path.join(self.directory, PROGRESS_DIR)

    def batch_blobs(self, batch_id: str) -> list[Blob]:
        path = os.path.join(self.directory, "batches", f"{batch_id}.json")
        with open(path, encoding="utf-8", opener=regular) as stream, _whole(path):
            blobs = [Blob(*row) for row in json.load(stream)]
            if not all(is_proper(blob.name) and 0 <= blob.source < len(self.sources) for blob in blobs):
                raise ValueError("a name leads elsewhere, or a source is unknown")
            return blobs


def new_run_id() -> str:
    """Sorts by time and never collides."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:6]}"


def write_run(run: Run, blobs_of: t.Mapping[str, Blobs]) -> None:
    """Write the run and make it the current one. Workers of earlier runs stop when they see it."""
    paths = StatePaths(run.destination)
    batches = os.path.join(run.directory, "batches")
    refuse_links(run.destination, [os.path.relpath(batches, run.destination)])
    for directory in (batches, run.claims, run.progress):
        os.makedirs(directory, exist_ok=True)

    def write_batch(batch: BatchInfo) -> None:
        write_whole(os.path.join(batches, f"{batch.id}.json"), blobs_of[batch.id].as_array(), durable=True)

    with ThreadPoolExecutor(max_workers=16) as pool:
        list(pool.map(write_batch, run.batches))
    write_json(os.path.join(run.directory, "run.json"), asdict(run), durable=True)
    # On disk before the first file: the names of a run tell ours from those of others, where a power cut took the receipts.
    sync_directory(paths.runs)
    write_json(paths.current, {"run": run.id}, durable=True)
    # After a clock was set back the newest run is not the last one by its name.
    earlier = sorted(name for name in os.listdir(paths.runs) if name != run.id)
    for old in earlier[: 1 - _KEEP_RUNS]:
        remove_tree(run.destination, os.path.relpath(paths.run(old), run.destination))


def read_run(destination: str, run_id: str) -> Run | None:
    """The run, or None when there is no such run. Raises ClusterError (``corrupt``) for a plan that is none of ours.

    Where to copy to is what the caller says, whatever the plan does.
    """
    path = os.path.join(StatePaths(destination).run(run_id), "run.json")
    document = read_json(path)
    if document is None:
        return None
    with _whole(path):
        shares = [RankShare(**share) for share in document["shares"]]
        batches = [BatchInfo(**batch) for batch in document["batches"]]
        run = Run(**{**document, "destination": destination, "shares": shares, "batches": batches})
        if run.id != run_id or not all(_BATCH_ID.fullmatch(batch.id) for batch in batches):
            raise ValueError("its names are not those of a plan")
        return run


@contextlib.contextmanager
def _whole(path: str) -> t.Iterator[None]:
    """Around the reading of a document that is not what we write."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        directory = os.path.dirname(path)
        raise ClusterError(
            "corrupt", f"`{path}` is no plan of ours: {exc}.", f"Look who wrote it, delete {directory}, and run again."
        ) from exc


def planned_names(destination: str, among: set[str]) -> set[str]:
    """Those of some final names that the kept runs were to write. A plan takes in a foreign file only with consent."""
    names: set[str] = set()
    runs = StatePaths(destination).runs
    for run_id in os.listdir(runs) if os.path.isdir(runs) else []:
        run = read_run(destination, run_id)
        if run is None:
            continue
        # Somebody may have removed a part of it only, and the others still say what is ours.
        for batch in run.batches:
            with contextlib.suppress(FileNotFoundError):
                names.update(among.intersection(final_name(blob, run.decompress) for blob in run.batch_blobs(batch.id)))
    return names


def current_run_id(destination: str) -> str | None:
    document = read_json(StatePaths(destination).current)
    return document.get("run") if isinstance(document, dict) else None


def withdraw_run(destination: str) -> None:
    """Tell all workers to stop, and wait until they have. Raises ClusterError when some do not."""
    paths = StatePaths(destination)
    if os.path.exists(paths.current):
        try:
            write_json(paths.current, {"run": ""})
        except OSError:  # a full file system may be the reason to remove the dataset
            os.unlink(paths.current)
    began = time.monotonic()
    seen: dict[tuple[str, int], tuple[int, float]] = {}
    while True:
        now = time.monotonic()
        alive = set()
        for run_id, rank in _working(destination):
            beat, since = seen.get((run_id, rank.rank), (-1, now))
            seen[run_id, rank.rank] = (rank.beat, since if beat == rank.beat else now)
            if now - seen[run_id, rank.rank][1] < _DEAD_AFTER_S:
                alive.add(rank.host)
        if not alive:
            return
        if now - began > _STOP_S:
            raise ClusterError(
                "busy",
                f"Workers still copy to {destination}, on {', '.join(sorted(alive))}.",
                "Wait until they have ended, or look at their processes there, then run again.",
            )
        time.sleep(_LOOK_S)


def _working(destination: str) -> t.Iterator[tuple[str, RankProgress]]:
    """The ranks of all kept runs that have not said that they ended: they work, or were killed."""
    runs = StatePaths(destination).runs
    for run_id in os.listdir(runs) if os.path.isdir(runs) else []:
        run = read_run(destination, run_id)
        if run is not None:
            yield from ((run_id, rank) for rank in read_progress(run) if not rank.ended)


@dataclass
class RankProgress:
    """What one rank has done so far. ``raw_bytes`` crossed the network, ``bytes`` were written.

    ``failed`` names the first of ``failed_count`` files that are themselves at fault; results of batches name all.
    """

    rank: int
    host: str
    state: t.Literal["working", "waiting", "finished", "failed"] = "working"
    beat: int = 0
    files: int = 0
    raw_bytes: int = 0
    bytes: int = 0
    batches: int = 0
    stolen_batches: int = 0
    retried_batches: int = 0
    seconds: float = 0.0
    failed: list[dict[str, str]] = field(default_factory=list)
    failed_count: int = 0
    error: dict[str, str] | None = None

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def add_failed(self, files: t.Sequence[dict[str, str]]) -> None:
        self.failed_count += len(files)
        self.failed += files[: NAMED_FAILURES - len(self.failed)]

    def write(self, run: Run) -> None:
        write_json(os.path.join(run.progress, f"{self.rank}.json"), asdict(self))


def read_progress(run: Run) -> list[RankProgress]:
    """The progress of every rank that has begun, by rank."""
    ranks = []
    for entry in os.scandir(run.progress):
        if entry.name.endswith(".json"):
            document = read_json(entry.path)
            with contextlib.suppress(TypeError):  # it is none, or none of ours
                ranks.append(RankProgress(**document))
    return sorted(ranks, key=lambda rank: rank.rank)


__all__ = [
    "ENDED",
    "NAMED_FAILURES",
    "PROGRESS_DIR",
    "BatchInfo",
    "RankProgress",
    "RankShare",
    "Run",
    "current_run_id",
    "new_run_id",
    "planned_names",
    "read_progress",
    "read_run",
    "withdraw_run",
    "write_run",
]
